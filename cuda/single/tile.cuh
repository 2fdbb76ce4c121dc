// The inner work of a contraction, shared by the engines of single cases.
//
// Mapping. A thread owns a tile of TM x TN outputs: TM places on an axis that only A and the output have, TN on one
// that only B and the output have, so TM + TN loads feed TM * TN multiply-adds. Elements of a tile are `step` apart
// and neighbouring lanes next to each other, so a warp's loads and stores stay contiguous. 2^log_lanes lanes share a
// tile and take every 2^log_lanes-th step of the sum; `fold` then adds them up, each lane ending with a share of the
// outputs. Extents that the tile does not divide are clamped for loads and left out for stores.
//
// Wins nearly everywhere; loses if outputs and sums are both tiny, where only latency counts.
#include "common/types.cuh"

struct Place {   // of a thread's tile
    u32 out, a, b;        // offsets of element (0, 0)
    u32 m_index, n_index; // index on the two sides
};

__device__ __forceinline__ void take_digit(const Op& op, const Digit& d, u32 i, u32& rest, Place& p) {
    u32 q = __umulhi(rest, d.magic) >> d.shift;
    u32 r = rest - q * d.extent;
    rest = q;
    p.out += r * d.out;
    p.a += r * d.a;
    p.b += r * d.b;
    if (i == op.m.digit) p.m_index = r;
    if (i == op.n.digit) p.n_index = r;
}

__device__ __forceinline__ Place place_of(const Op& op, const Digit* digits, u32 tile) {
    Place p = {0, 0, 0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < INLINE_DIGITS; i++)
        if (i < op.n_digits) take_digit(op, op.first[i], i, tile, p);
    for (u32 i = INLINE_DIGITS; i < op.n_digits; i++) take_digit(op, digits[op.digits + i - INLINE_DIGITS], i, tile, p);
    return p;
}

// Offsets of a side's elements from element 0, clamped to the axis.
template <int T>
__device__ __forceinline__ void side_offsets(const Side& side, u32 index, u32 base, u32 (&at)[T]) {
    at[0] = base;
#pragma unroll
    for (int i = 1; i < T; i++) {
        u32 far = index + i * side.step;
        far = far < side.extent ? far : side.extent - 1;
        at[i] = base + (far - index) * side.stride;
    }
}

// The sum over steps k, k + stride, ... The offsets of a batch of steps are fetched while the batch before is summed,
// the first of them before the kernel waits for the one before it: they never change.
template <int UNROLL>
struct Steps {
    uint2 next[UNROLL];
    __device__ __forceinline__ void fetch(const uint2* steps, u32 k, u32 n_steps, u32 stride) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 at = k + u * stride;
            next[u] = steps[at < n_steps ? at : n_steps - 1];
        }
    }
};

// Entries of UNROLL steps that are being loaded.
template <int TM, int TN, int UNROLL>
struct Loaded {
    double x[UNROLL][TM], y[UNROLL][TN];
    __device__ __forceinline__ void load(const Steps<UNROLL>& ready, const double* a, const double* b,
                                         const u32 (&at_a)[TM], const u32 (&at_b)[TN], u32 k, u32 n_steps, u32 stride) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const bool there = k + u * stride < n_steps;
#pragma unroll
            for (int i = 0; i < TM; i++) x[u][i] = there ? a[at_a[i] + ready.next[u].x] : double(0);
#pragma unroll
            for (int j = 0; j < TN; j++) y[u][j] = there ? b[at_b[j] + ready.next[u].y] : double(0);
        }
    }
    __device__ __forceinline__ void add_to(double (&sum)[TM * TN], double scale_a, double scale_b) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < TM; i++) x[u][i] *= scale_a;
#pragma unroll
            for (int j = 0; j < TN; j++) y[u][j] *= scale_b;
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i * TN + j] += x[u][i] * y[u][j];
        }
    }
};

// Add the sums of 2^log lanes. Halves at a time: a lane sends the half that it does not keep, so N + 1 exchanges do
// what N * log would. Afterwards a lane holds max(1, N >> log) outputs, from output `first` on.
template <int N>
struct Fold {
    static __device__ __forceinline__ void run(double* v, u32 lane, u32 log, u32& first) {
        if (log == 0) return;
        u32 bit = 1u << (log - 1);
        bool upper = (lane & bit) != 0;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            double sent = upper ? v[i] : v[i + N / 2];
            double kept = upper ? v[i + N / 2] : v[i];
            v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, bit);
        }
        if (upper) first += N / 2;
        Fold<N / 2>::run(v, lane, log - 1, first);
    }
};

template <>
struct Fold<1> {
    static __device__ __forceinline__ void run(double* v, u32 lane, u32 log, u32&) {
        for (; log > 0; log--) v[0] += __shfl_xor_sync(0xffffffffu, v[0], 1u << (log - 1));
    }
};

// Store one output where it exists; the largest entry stored so far.
__device__ __forceinline__ double put(const Op& op, const Place& p, u32 tn, u32 e, double value, double* out, double top) {
    u32 i = e / tn, j = e % tn;
    bool there = (i == 0 || p.m_index + i * op.m.step < op.m.extent) &&
                 (j == 0 || p.n_index + j * op.n.step < op.n.extent);
    if (!there) return top;
    out[p.out + i * op.out_m + j * op.out_n] = value;
    return value > top ? value : top;
}

// Publish the table's largest entry for its readers. Called by every lane of the warp.
__device__ __forceinline__ void publish(Slot* slot, double top, u32 lane) {
    int high = warp_max(word_of(top));
    if (lane == 0 && high > 0) atomicMax(&slot->top, high);
}

struct Scales { double a, b; int exponent; };

// What a reader multiplies its two inputs by, and the exponent of what it writes.
__device__ __forceinline__ Scales scales_of(const Slot& a, const Slot& b) {
    int sa = shift_of(a.top), sb = shift_of(b.top);
    Scales s = {power_of_two(-sa), power_of_two(-sb), a.exponent + sa + b.exponent + sb};
    return s;
}

// The sums of a thread, and the exponent of the output. Entries are requested before the slots have arrived: one trip to
// L2 instead of two.
template <int TM, int TN, int UNROLL>
__device__ __forceinline__ Scales accumulate(double (&sum)[TM * TN], Steps<UNROLL>& ready, const double* a, const double* b,
                                             const u32 (&at_a)[TM], const u32 (&at_b)[TN], const uint2* steps, u32 k,
                                             u32 n_steps, u32 stride, const Slot* from_a, const Slot* from_b) {
    const Slot slot_a = *from_a, slot_b = *from_b;
    Loaded<TM, TN, UNROLL> batch;
    batch.load(ready, a, b, at_a, at_b, k, n_steps, stride);
    const Scales scale = scales_of(slot_a, slot_b);
    while (true) {
        k += UNROLL * stride;
        const bool more = k < n_steps;
        if (more) ready.fetch(steps, k, n_steps, stride);
        batch.add_to(sum, scale.a, scale.b);
        if (!more) return scale;
        batch.load(ready, a, b, at_a, at_b, k, n_steps, stride);
    }
}

// A warp's unit of a contraction, from the sums to the table. Only wide contractions use `shared`.
template <int TM, int TN, int UNROLL>
__device__ __forceinline__ void run_unit(const Program& p, const Op& op, u32 unit, u32 warp, u32 lane, double* shared,
                                         bool wait) {
    const u32 log = op.log_lanes, per_warp = 32u >> log, mine = lane & ((1u << log) - 1);
    const u32 group = op.wide ? unit / op.splits : unit;
    const u32 split = op.wide ? unit - group * op.splits : 0;
    const u32 tile = group * per_warp + (lane >> log);
    const bool there = tile < op.n_tiles;
    Place at = place_of(op, p.digits, there ? tile : op.n_tiles - 1);
    u32 at_a[TM], at_b[TN];
    side_offsets<TM>(op.m, at.m_index, at.a, at_a);
    side_offsets<TN>(op.n, at.n_index, at.b, at_b);
    u32 k = mine, stride = 1u << log;
    if (op.wide) {
        k += ((split * WARPS + warp) << log);
        stride *= WARPS * op.splits;
    }
    double sum[TM * TN];
#pragma unroll
    for (int e = 0; e < TM * TN; e++) sum[e] = 0;
    Steps<UNROLL> ready;
    ready.fetch(p.steps + op.steps, k, op.n_steps, stride);
    // read now: after the wait only tables and slots are left to load
    const double *a = p.arena + op.a, *b = p.arena + op.b;
    const Slot *from_a = p.slots + op.slot_a, *from_b = p.slots + op.slot_b;
    const u32 n_steps = op.n_steps;
    const uint2* steps = p.steps + op.steps;
    if (wait) wait_for_previous_with((op.out + at.out) & (op.a + at_a[TM - 1]) & (op.b + at_b[TN - 1]));
    const Scales scale =
        accumulate<TM, TN, UNROLL>(sum, ready, a, b, at_a, at_b, steps, k, n_steps, stride, from_a, from_b);
    double* out = p.arena + op.out;
    double top = 0;
    if (log == 0 && !op.wide) {  // the common case, with every index a compile-time constant
        if (unit == 0 && lane == 0) p.slots[op.slot_out].exponent = scale.exponent;
#pragma unroll
        for (int e = 0; e < TM * TN; e++)
            if (there) top = put(op, at, TN, e, sum[e], out, top);
        publish(p.slots + op.slot_out, top, lane);
        return;
    }
    u32 first = 0;
    Fold<TM * TN>::run(sum, lane, log, first);
    const u32 held = (u32)(TM * TN) >> log ? (u32)(TM * TN) >> log : 1;
    const bool keeper = there && ((u32)(TM * TN) >> log || (mine & ((1u << log) / (TM * TN) - 1)) == 0);
    if (unit == 0 && warp == 0 && lane == 0 && op.wide) p.slots[op.slot_out].exponent = scale.exponent;
    if (!op.wide) {
        if (unit == 0 && lane == 0) p.slots[op.slot_out].exponent = scale.exponent;
#pragma unroll
        for (int e = 0; e < TM * TN; e++)
            if (keeper && (u32)e < held) top = put(op, at, TN, first + e, sum[e], out, top);
        publish(p.slots + op.slot_out, top, lane);
        return;
    }
    // the block's warps, in order; then, where blocks share a sum, the last of them adds theirs in order
    const u32 cells = per_warp * TM * TN;
#pragma unroll
    for (int e = 0; e < TM * TN; e++)
        if (keeper && (u32)e < held) shared[warp * cells + (lane >> log) * TM * TN + first + e] = sum[e];
    __syncthreads();
    if (op.splits > 1) {
        double* partial = p.scratch + op.scratch + (u64)group * op.splits * cells;
        u32* flag = (u32*)(shared + WARPS * cells);
        for (u32 c = warp * 32 + lane; c < cells; c += WARPS * 32) {
            double total = 0;
            for (u32 w = 0; w < WARPS; w++) total += shared[w * cells + c];
            partial[split * cells + c] = total;
        }
        __threadfence();
        __syncthreads();
        if (warp == 0 && lane == 0) {
            u32 before = atomicAdd(p.counters + op.counter + group, 1u);
            *flag = before == op.splits - 1;
            if (*flag) p.counters[op.counter + group] = 0;  // for the next run
        }
        __syncthreads();
        if (!*flag) return;
        __threadfence();
    }
    for (u32 c = warp * 32 + lane; c < ((cells + 31) & ~31u); c += WARPS * 32) {
        double mine_top = 0;
        if (c < cells) {
            double total = 0;
            if (op.splits > 1) {
                const volatile double* partial = p.scratch + op.scratch + (u64)group * op.splits * cells;
                for (u32 s = 0; s < op.splits; s++) total += partial[s * cells + c];
            } else {
                for (u32 w = 0; w < WARPS; w++) total += shared[w * cells + c];
            }
            u32 t = group * per_warp + c / (TM * TN);
            if (t < op.n_tiles) mine_top = put(op, place_of(op, p.digits, t), TN, c % (TM * TN), total, out, double(0));
        }
        publish(p.slots + op.slot_out, mine_top, lane);
    }
}

// A warp's task of a level, which begins with task `first`.
template <bool HEAVY>
__device__ __forceinline__ void level(const Program& p, u32 first, u32 block, double* shared) {
    let_next_start();
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const Task task = p.tasks[first + block * WARPS + warp];
    if (task.op == NONE) {
        wait_for_previous();
        return;
    }
    const Op& op = p.ops[task.op];
    switch (op.shape) {
        case 1 * 8 + 1: run_unit<1, 1, 4>(p, op, task.unit, warp, lane, shared, true); break;
        case 4 * 8 + 1: run_unit<4, 1, 2>(p, op, task.unit, warp, lane, shared, true); break;
        case 2 * 8 + 2: run_unit<2, 2, 2>(p, op, task.unit, warp, lane, shared, true); break;
        case 4 * 8 + 2: if (HEAVY) { run_unit<4, 2, 2>(p, op, task.unit, warp, lane, shared, true); break; }
        case 4 * 8 + 4: if (HEAVY) { run_unit<4, 4, 1>(p, op, task.unit, warp, lane, shared, true); break; }
        default: __trap();
    }
}
