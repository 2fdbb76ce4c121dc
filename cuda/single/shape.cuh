// One contraction whose extents and strides are template arguments: what jtgpu/backends/gpu/single/specialised/shape_code.py writes down
// for the heavy contractions of a network, and shaped.cuh runs beside records.
//
// Mapping. As in tile.cuh a thread owns a tile of outputs, here M x N x V: M places that only A and the output have, N
// that only B and the output have, V that all three have; (M + N) * V loads feed M * N * V multiply-adds. Lanes, warps
// of a block (SHARE) and blocks (SPLITS) may share a sum. Where it differs: every index is divided by constants, every
// tile's offsets are immediates of its loads and stores, the sum's offsets need no table, and a side may lie on
// several axes. What is left of a warp's 700 instructions of fixed work are about 150.
//
// Where it wins: contractions of many multiply-adds or outputs. Where it loses: small ones, since code that the SM has
// not seen yet costs about a microsecond; those stay records.
#include "single/tile.cuh"

struct Offsets { u32 out, a, b; };

__device__ __forceinline__ Offsets operator+(Offsets x, Offsets y) {
    return {x.out + y.out, x.a + y.a, x.b + y.b};
}

// An axis: its extent, its strides in the output, in A and in B.
template <u32 EXTENT, u32 OUT, u32 A, u32 B>
struct Axis {
    static constexpr u32 SIZE = EXTENT;
    static __device__ __forceinline__ Offsets at(u32 i) { return {i * OUT, i * A, i * B}; }
};

// T places of an axis, STEP apart; the last is LAST, where a step too far would leave the axis. Then some outputs are
// computed twice, by two threads that store the same number.
template <u32 T, u32 STEP, u32 LAST, u32 OUT, u32 A, u32 B>
struct Places {
    static constexpr u32 SIZE = T;
    static __device__ __forceinline__ Offsets at(u32 i) {
        const u32 place = i == T - 1 ? LAST : i * STEP;
        return {place * OUT, place * A, place * B};
    }
};

// Axes one inside the other, the slowest first, numbered through.
template <class... X>
struct Nest {
    static constexpr u32 SIZE = 1;
    static __device__ __forceinline__ Offsets at(u32) { return {0, 0, 0}; }
};

template <class X, class... Inner>
struct Nest<X, Inner...> {
    static constexpr u32 SIZE = X::SIZE * Nest<Inner...>::SIZE;
    static __device__ __forceinline__ Offsets at(u32 i) {
        if constexpr (sizeof...(Inner) == 0) {
            return X::at(i);
        } else {
            const u32 outer = i / Nest<Inner...>::SIZE;
            return X::at(outer) + Nest<Inner...>::at(i - outer * Nest<Inner...>::SIZE);
        }
    }
};

// Tiles_: the axes of the output that count tiles. Sum_: those summed over. TWO: whether there is a B. LOG: log2 of the
// lanes that share a sum: neighbours have different tiles. UNROLL: steps whose loads fly together.
template <class Tiles_, class M_, class N_, class V_, class Sum_, bool TWO_, u32 LOG_, u32 SHARE_, u32 SPLITS_,
          u32 UNROLL_>
struct Contraction {
    using Tiles = Tiles_;
    using M = M_;
    using N = N_;
    using V = V_;
    using Sum = Sum_;
    using Cells = Nest<M, N, V>;  // outputs of a thread
    static constexpr bool TWO = TWO_;
    static constexpr u32 LOG = LOG_, SHARE = SHARE_, SPLITS = SPLITS_, UNROLL = UNROLL_;
};

struct alignas(16) Job {  // 48 bytes: a block's part of a contraction; one trip to L2 fetches all of it
    u32 shape, unit;               // which code; which of its blocks
    u32 a, b, out;                 // as in Op
    u32 slot_a, slot_b, slot_out;
    u32 scratch, counter, pad[2];
};

__device__ __forceinline__ Job fetched(const Job* job) {
    union { uint4 part[3]; Job whole; } both;
#pragma unroll
    for (u32 i = 0; i < 3; i++) both.part[i] = ((const uint4*)job)[i];
    return both.whole;
}

// Outputs that a lane holds after `fold`.
__device__ constexpr u32 held(u32 n, u32 log) { return log == 0 || n == 1 ? n : held((n + 1) / 2, log - 1); }

// Add up the sums of 2^LOG lanes, told apart by the bits from BIT on; see Fold in tile.cuh. N may be odd: then both
// halves keep the one in the middle.
template <u32 N, u32 LOG, u32 BIT>
__device__ __forceinline__ void fold(real* v, u32 lane, u32& first) {
    if constexpr (LOG > 0) {
        constexpr u32 bit = 1u << (BIT + LOG - 1), half = (N + 1) / 2;
        if constexpr (N == 1) {
            v[0] += __shfl_xor_sync(0xffffffffu, v[0], bit);
        } else {
            const bool upper = (lane & bit) != 0;
#pragma unroll
            for (u32 i = 0; i < half; i++) {
                const real sent = upper ? v[i] : v[N - half + i], kept = upper ? v[N - half + i] : v[i];
                v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, bit);
            }
            if (upper) first += N - half;
        }
        fold<half, LOG - 1, BIT>(v, lane, first);
    }
}

// Entries of UNROLL steps, on their way to the sums of a thread.
template <class C, u32 WAYS>
struct Steady {
    static constexpr u32 M = C::M::SIZE, N = C::N::SIZE, V = C::V::SIZE, ALL = C::Sum::SIZE, UNROLL = C::UNROLL;
    static constexpr u32 BATCHES = (ALL + WAYS * UNROLL - 1) / (WAYS * UNROLL);
    static constexpr bool EVEN = BATCHES * WAYS * UNROLL == ALL;
    real x[UNROLL][M * V], y[UNROLL][N * V];

    __device__ __forceinline__ void load(const real* a, const real* b, u32 way, u32 batch) {
#pragma unroll
        for (u32 u = 0; u < UNROLL; u++) {
            const u32 k = way + (batch * UNROLL + u) * WAYS;
            const bool there = EVEN || k < ALL;
            const Offsets step = C::Sum::at(there ? k : 0);
            const real *at_a = a + step.a, *at_b = b + step.b;  // the rest are immediates
#pragma unroll
            for (u32 v = 0; v < V; v++) {
#pragma unroll
                for (u32 m = 0; m < M; m++) x[u][m * V + v] = there ? at_a[C::M::at(m).a + C::V::at(v).a] : real(0);
#pragma unroll
                for (u32 n = 0; n < N; n++) y[u][n * V + v] = C::TWO ? at_b[C::N::at(n).b + C::V::at(v).b] : real(1);
            }
        }
    }

    __device__ __forceinline__ void add_to(real (&sum)[C::Cells::SIZE], Scales scale) {
#pragma unroll
        for (u32 u = 0; u < UNROLL; u++) {
#pragma unroll
            for (u32 i = 0; i < M * V; i++) x[u][i] *= scale.a;
#pragma unroll
            for (u32 i = 0; i < N * V; i++) y[u][i] *= scale.b;
#pragma unroll
            for (u32 m = 0; m < M; m++)
#pragma unroll
                for (u32 n = 0; n < N; n++)
#pragma unroll
                    for (u32 v = 0; v < V; v++) sum[(m * N + n) * V + v] += x[u][m * V + v] * y[u][n * V + v];
        }
    }
};

// The sums of a thread over its ways through the summed axes, and the exponent of what they make. As in tile.cuh the
// first entries are asked for before the slots have arrived.
template <class C, u32 WAYS>
__device__ __forceinline__ Scales sum_up(real (&sum)[C::Cells::SIZE], const real* a, const real* b, u32 way,
                                         const Slot* from_a, const Slot* from_b) {
    const Slot slot_a = *from_a, slot_b = *from_b;
    Steady<C, WAYS> steps;
    steps.load(a, b, way, 0);
    const Scales scale = scales_of(slot_a, slot_b);
#pragma unroll 1
    for (u32 batch = 1; batch < Steady<C, WAYS>::BATCHES; batch++) {
        steps.add_to(sum, scale);
        steps.load(a, b, way, batch);
    }
    steps.add_to(sum, scale);
    return scale;
}

// Tell readers how large the table is. Every thread of the block takes part; nobody else writes `shared` meanwhile.
__device__ __forceinline__ void publish_block(Slot* slot, int top, u32 warp, u32 lane, int* shared) {
    const int high = warp_max(top);
    if (lane == 0) shared[warp] = high;
    __syncthreads();
    if (warp == 0) {
        const int all = warp_max(lane < WARPS ? shared[lane] : 0);
        if (lane == 0 && all > 0) atomicMax(&slot->top, all);
    }
}

#define SHARED_CELLS 4096  // of a block: sums that warps or blocks share

// A block's unit of a contraction, from the sums to the table.
template <class C>
__device__ __forceinline__ void run_contraction(const Program& p, const Job& job, u32 warp, u32 lane, real* shared,
                                                int* tops) {
    constexpr u32 LANES = 1u << C::LOG, PER_WARP = 32 >> C::LOG, GROUPS = WARPS / C::SHARE, CELLS = C::Cells::SIZE;
    constexpr u32 TILES = C::Tiles::SIZE, PER_BLOCK = GROUPS * PER_WARP;
    constexpr bool ALONE = C::SHARE * C::SPLITS == 1;  // warps share nothing
    static_assert(ALONE || WARPS * PER_WARP * CELLS <= SHARED_CELLS, "sums of a block's warps");
    const u32 group = job.unit / C::SPLITS, split = job.unit % C::SPLITS;
    const u32 my_way = lane / PER_WARP, my_tile = lane % PER_WARP;
    const u32 tile = (group * GROUPS + warp / C::SHARE) * PER_WARP + my_tile;
    const bool there = TILES % PER_BLOCK == 0 || tile < TILES;
    const Offsets at = C::Tiles::at(there ? tile : TILES - 1);
    const u32 way = ((split * C::SHARE + warp % C::SHARE) << C::LOG) + my_way;
    const Slot *from_a = p.slots + job.slot_a, *from_b = p.slots + job.slot_b;
    Slot* to = p.slots + job.slot_out;
    const real *a = p.arena + (job.a + at.a), *b = p.arena + (job.b + at.b);
    real* out = p.arena + job.out;
    real sum[CELLS];
#pragma unroll
    for (u32 e = 0; e < CELLS; e++) sum[e] = 0;
    wait_for_previous_with((job.out + at.out) & (job.a + at.a) & (job.b + at.b));
    const Scales scale = sum_up<C, C::SPLITS * C::SHARE * LANES>(sum, a, b, way, from_a, from_b);
    if (job.unit == 0 && warp == 0 && lane == 0) to->exponent = scale.exponent;
    u32 first = 0;
    fold<CELLS, C::LOG, 5 - C::LOG>(sum, lane, first);
    constexpr u32 HELD = held(CELLS, C::LOG);
    int top = 0;
    if constexpr (ALONE) {
        if (there) {
            real* mine = out + at.out;
#pragma unroll
            for (u32 e = 0; e < HELD; e++) {
                mine[C::Cells::at(first + e).out] = sum[e];
                const int word = word_of(sum[e]);
                top = word > top ? word : top;
            }
        }
    } else {  // the block's warps, in order; then, where blocks share a sum, the last of them adds theirs in order
        constexpr u32 EACH = PER_WARP * CELLS, ALL = GROUPS * EACH;  // sums of a warp, and of a block
#pragma unroll
        for (u32 e = 0; e < HELD; e++) shared[warp * EACH + (first + e) * PER_WARP + my_tile] = sum[e];
        __syncthreads();
        const u32 thread = warp * 32 + lane;
        real* partial = p.scratch + job.scratch + group * (C::SPLITS * ALL);
        if constexpr (C::SPLITS > 1) {
            for (u32 c = thread; c < ALL; c += WARPS * 32) {
                real total = 0;
#pragma unroll
                for (u32 w = 0; w < C::SHARE; w++) total += shared[(c / EACH * C::SHARE + w) * EACH + c % EACH];
                partial[split * ALL + c] = total;
            }
            __threadfence();
            __syncthreads();
            if (thread == 0) {
                const u32 before = atomicAdd(p.counters + job.counter + group, 1u);
                tops[WARPS] = before == C::SPLITS - 1;
                if (tops[WARPS]) p.counters[job.counter + group] = 0;  // as the next run wants to find it
            }
            __syncthreads();
            if (!tops[WARPS]) return;
            __threadfence();
        }
        for (u32 c = thread; c < ALL; c += WARPS * 32) {
            const u32 g = c / EACH, e = c % EACH / PER_WARP, t = (group * GROUPS + g) * PER_WARP + c % PER_WARP;
            real total = 0;
            if constexpr (C::SPLITS > 1) {
                const volatile real* each = partial + c;
#pragma unroll 8
                for (u32 s = 0; s < C::SPLITS; s++) total += each[s * ALL];
            } else {
#pragma unroll
                for (u32 w = 0; w < C::SHARE; w++) total += shared[(g * C::SHARE + w) * EACH + c % EACH];
            }
            if (t >= TILES) continue;
            out[C::Tiles::at(t).out + C::Cells::at(e).out] = total;
            const int word = word_of(total);
            top = word > top ? word : top;
        }
    }
    publish_block(to, top, warp, lane, tops);
}
