// A whole propagation of one case as one kernel: every warp works through a queue of its own, and an entry itself tells
// whether it has been written.
//
// Every entry of a table is written once a run, and none is ever negative, so its sign can tell in which run it was
// written. The host passes the sign of this run (it alternates from launch to launch); a writer stores with it; a reader
// loads the entries that it needs anyway, and loads again while any of them still has the other sign. A hand-over is
// one store and one load through L2: no barrier, no fence, no counter, nothing to reset, and no warp waits for more than
// it reads. A product of two entries has no sign left, and a product with a factor that never changes has the run's
// sign, like all others of its sum: only a finished sum is examined.
//
// The host assigns the work (jtgpu/backends/gpu/dataflow/assignment.py): a unit is a warp's share of an evidence
// factor or of a contraction, or one posterior. Queues hold their units in an order in which they can run, so with all
// blocks on the device at once (a cooperative launch) some warp can always proceed. The record of the next unit and the
// task after it are loaded while a warp works.
//
// Wins if many contractions wait for each other. Nothing is scaled: the host bounds the error by P(e), and uses
// the level engine where that is not enough. What was tried: docs/notes.
#include "single/tile.cuh"

#define MAX_WARPS 16          // of a block
#define MAX_VARIABLES 1792    // their states are a parameter of the kernel, of 4 KB in all
#define ENTER_SHARE 4         // entries of a factor that a lane computes
#define NAP 300               // nanoseconds between two looks at a hint
#define LONG 0x40             // a tile with longer batches of loads
#define ENTER_UNIT 0x80u      // in place of a tile: evidence into a factor
#define ANSWER_UNIT 0x81u     // a posterior
#define ROOT_UNIT 0x82u       // P(e) of every component

#ifdef __CUDACC__
#define GRID_CONSTANT const __grid_constant__
#define LET_OTHERS_RUN()
#define REST() __nanosleep(NAP)
#else
#define GRID_CONSTANT const
#define LET_OTHERS_RUN() host::pause()  // a fiber that waits for another
#define REST() host::pause()
#endif

// An axis of an evidence factor. Of an observed axis that is not the table's, `inner` is its stride in `pristine`.
struct Known { u32 variable, inner, card, weight; };

struct Dataflow {
    double* arena;
    const double* pristine;   // the evidence factors without evidence
    const uint2* ops;         // 256 bytes each
    const Digit* digits;
    const uint2* steps;
    const Task* tasks;        // warp after warp
    const u32* starts;        // (warps + 1,) first task of each warp
    const Known* known;
    const double* weights;    // one vector a variable
    const uint2* roots;       // cell of P(e); all ones if every run writes it, else 0
    double* posterior;        // host
    double* root;             // host
    u32 sign;                 // of this run: 0 or 1 << 31
    u32 n_roots;
    short state[MAX_VARIABLES];  // -1 not observed, -2 weights, else the state
};

// Fields of records that are no contraction; `shape` tells what a record is.
#define ENTER_FROM(op) (op).a     // in `pristine`
#define ENTER_N(op) (op).n_tiles
#define ENTER_KNOWN(op) (op).steps
#define ENTER_N_KNOWN(op) (op).n_steps
#define ENTER_N_SELECTED(op) (op).n_digits  // observed axes that are not the table's, after the others in `known`
#define ANSWER_CARD(op) (op).n_tiles
#define ANSWER_AT(op) (op).out
#define HINT(op) (op).counter          // NONE, or the last cell of a table that its inputs are computed from
#define WAITS_FOR_A(op) ((op).slot_a)  // all ones, or 0 if the input never changes
#define WAITS_FOR_B(op) ((op).slot_b)

template <bool AGAIN>
__device__ __forceinline__ double load(const double* at) {
#ifdef __CUDA_ARCH__
    double x;
    if (AGAIN)  // not from the first-level cache, which may hold entries of the run before
        asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(x) : "l"(at));
    else
        asm volatile("ld.global.f64 %0, [%1];" : "=d"(x) : "l"(at));
    return x;
#else
    return *(const volatile double*)at;
#endif
}

__device__ __forceinline__ void store(double* at, double value, u32 sign, bool there) {
    const u64 bits = (u64)__double_as_longlong(value) & 0x7fffffffffffffffull;
    value = __longlong_as_double(bits | (u64)sign << 32);
#ifdef __CUDA_ARCH__
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.relaxed.gpu.global.f64 [%0], %1;\n}" ::"l"(at), "d"(value),
                 "r"((u32)there));
#else
    if (there) *(volatile double*)at = value;
#endif
}

__device__ __forceinline__ u32 high_word(double x) { return (u32)__double2hiint(x); }

// The value of an entry of this run.
__device__ __forceinline__ double await(const double* at, u32 sign) {
    double x = load<false>(at);
    while ((int)(high_word(x) ^ sign) < 0) {
        LET_OTHERS_RUN();
        x = load<true>(at);
    }
    return fabs(x);
}

// Load the entries of a batch of steps; whether one of them has not been written yet.
template <bool AGAIN, int TM, int TN, int UNROLL>
__device__ __forceinline__ bool load_batch(double (&x)[UNROLL][TM], double (&y)[UNROLL][TN], const double* a,
                                           const double* b, const u32 (&at_a)[TM], const u32 (&at_b)[TN],
                                           const Steps<UNROLL>& ready, u32 sign, u32 waits_a, u32 waits_b) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < TM; i++) x[u][i] = load<AGAIN>(a + (at_a[i] + ready.next[u].x));
#pragma unroll
        for (int j = 0; j < TN; j++) y[u][j] = load<AGAIN>(b + (at_b[j] + ready.next[u].y));
    }
    u32 late_a = 0, late_b = 0;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < TM; i++) late_a |= high_word(x[u][i]) ^ sign;
#pragma unroll
        for (int j = 0; j < TN; j++) late_b |= high_word(y[u][j]) ^ sign;
    }
    return (int)((late_a & waits_a) | (late_b & waits_b)) < 0;
}

// Wait until one of a lane's missing entries has been written. Polling all of them would take L2's bandwidth from the
// warps that work.
template <int TM, int TN, int UNROLL>
__device__ __forceinline__ void look(const double (&x)[UNROLL][TM], const double (&y)[UNROLL][TN], const double* a,
                                     const double* b, const u32 (&at_a)[TM], const u32 (&at_b)[TN],
                                     const Steps<UNROLL>& ready, u32 sign, u32 waits_a, u32 waits_b) {
    const double* late = a;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < TM; i++)
            if ((int)((high_word(x[u][i]) ^ sign) & waits_a) < 0) late = a + (at_a[i] + ready.next[u].x);
#pragma unroll
        for (int j = 0; j < TN; j++)
            if ((int)((high_word(y[u][j]) ^ sign) & waits_b) < 0) late = b + (at_b[j] + ready.next[u].y);
    }
    do LET_OTHERS_RUN();
    while ((int)(high_word(load<true>(late)) ^ sign) < 0);
}

// Wait until a table has been written that a unit's inputs are computed from. Most waits last some microseconds, so one
// cell is polled, and seldom.
__device__ __forceinline__ void rest_until(const double* hint, double seen, u32 sign) {
    while ((int)(high_word(seen) ^ sign) < 0) {
        REST();
        seen = load<true>(hint);
    }
}

// A lane's steps of a sum, from `first + mine` on, batch by batch, as soon as their entries have been written. `add`
// gets the entries and the first of the batch's steps; steps past the last are loaded as the last.
template <int TM, int TN, int UNROLL, class Add>
__device__ __forceinline__ void sum_steps(const Dataflow& f, const Op& op, const u32 (&at_a)[TM], const u32 (&at_b)[TN],
                                          Steps<UNROLL>& ready, u32 first, u32 mine, u32 stride, Add add) {
    const u32 n_steps = op.n_steps, sign = f.sign, waits_a = WAITS_FOR_A(op), waits_b = WAITS_FOR_B(op);
    const uint2* steps = f.steps + op.steps;
    const double *a = f.arena + op.a, *b = f.arena + op.b;
    const double* hint = f.arena + HINT(op);
    const double seen = load<false>(HINT(op) == NONE ? a : hint);  // on its way with the first entries
    bool near = HINT(op) == NONE;
    for (u32 from = first; from < n_steps;) {  // the same for all lanes
        double x[UNROLL][TM], y[UNROLL][TN];
        const u32 k = from + mine;
        from += UNROLL * stride;
        bool late = load_batch<false, TM, TN, UNROLL>(x, y, a, b, at_a, at_b, ready, sign, waits_a, waits_b);
        while (__ballot_sync(0xffffffffu, late)) {
            if (!near) rest_until(hint, seen, sign);
            near = true;
            if (late) look<TM, TN, UNROLL>(x, y, a, b, at_a, at_b, ready, sign, waits_a, waits_b);
            __syncwarp();
            late = load_batch<true, TM, TN, UNROLL>(x, y, a, b, at_a, at_b, ready, sign, waits_a, waits_b);
        }
        if (from < n_steps) ready.fetch(steps, from + mine, n_steps, stride);
        add(x, y, k);
    }
}

// A warp's unit of a contraction.
template <int TM, int TN, int UNROLL>
__device__ __forceinline__ void contract(const Dataflow& f, const Op& op, u32 unit, u32 lane) {
    const u32 log = op.log_lanes, mine = lane & ((1u << log) - 1), sign = f.sign;
    u32 group = unit, split = 0;
    if (op.splits > 1) {
        group = unit / op.splits;
        split = unit - group * op.splits;
    }
    const u32 tile = (group << (5 - log)) + (lane >> log), n_steps = op.n_steps, stride = op.splits << log;
    const bool there = tile < op.n_tiles;
    Steps<UNROLL> ready;
    ready.fetch(f.steps + op.steps, (split << log) + mine, n_steps, stride);
    const Place at = place_of(op, f.digits, there ? tile : op.n_tiles - 1);
    u32 at_a[TM], at_b[TN];
    side_offsets<TM>(op.m, at.m_index, at.a, at_a);
    side_offsets<TN>(op.n, at.n_index, at.b, at_b);
    double sum[TM * TN];
#pragma unroll
    for (int e = 0; e < TM * TN; e++) sum[e] = 0.0;
    sum_steps<TM, TN, UNROLL>(
        f, op, at_a, at_b, ready, split << log, mine, stride,
        [&](const double(&x)[UNROLL][TM], const double(&y)[UNROLL][TN], u32 k) {
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (k + u * stride < n_steps) {
#pragma unroll
                    for (int i = 0; i < TM; i++)
#pragma unroll
                        for (int j = 0; j < TN; j++) sum[i * TN + j] += x[u][i] * y[u][j];
                }
        });
    double* out = f.arena + op.out + split * op.scratch + at.out;
    const u32 step_m = op.m.step, step_n = op.n.step, left_m = op.m.extent - at.m_index;
    const u32 left_n = op.n.extent - at.n_index, out_m = op.out_m, out_n = op.out_n;
    if (log == 0) {  // every index is a compile-time constant
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                store(out + (i * out_m + j * out_n), sum[i * TN + j], sign,
                      there && (i == 0 || i * step_m < left_m) && (j == 0 || j * step_n < left_n));
        return;
    }
    u32 first = 0;
    Fold<TM * TN>::run(sum, lane, log, first);
    const u32 held = (u32)(TM * TN) >> log ? (u32)(TM * TN) >> log : 1;
    const bool keeper = there && ((u32)(TM * TN) >> log || (mine & ((1u << log) / (TM * TN) - 1)) == 0);
#pragma unroll
    for (int e = 0; e < TM * TN / 2 + (TM * TN == 1); e++) {
        if ((u32)e >= held) break;
        const u32 i = (first + e) / TN, j = (first + e) % TN;
        store(out + (i * out_m + j * out_n), sum[e], sign,
              keeper && (i == 0 || i * step_m < left_m) && (j == 0 || j * step_n < left_n));
    }
}

// Multiply evidence into a warp's share of a factor. For an evidence pattern (backends/gpu/dataflow/graph.py) observed
// variables are no axes: the part of the factor that belongs to their states is contiguous in `pristine`.
__device__ __forceinline__ void enter_unit(const Dataflow& f, const Op& op, u32 unit, u32 lane) {
    const u32 from = unit * 32 * ENTER_SHARE + lane, n = ENTER_N(op);
    u32 first = ENTER_FROM(op);
    for (u32 v = 0; v < ENTER_N_SELECTED(op); v++) {
        const Known axis = f.known[ENTER_KNOWN(op) + ENTER_N_KNOWN(op) + v];
        first += (u32)f.state[axis.variable] * axis.inner;
    }
    double value[ENTER_SHARE];
#pragma unroll
    for (u32 k = 0; k < ENTER_SHARE; k++) {
        const u32 i = from + 32 * k;
        value[k] = f.pristine[first + (i < n ? i : n - 1)];
    }
    for (u32 v = 0; v < ENTER_N_KNOWN(op); v++) {
        const Known axis = f.known[ENTER_KNOWN(op) + v];
        const int state = f.state[axis.variable];
        if (state == -1) continue;
#pragma unroll
        for (u32 k = 0; k < ENTER_SHARE; k++) {
            const u32 at = (from + 32 * k) / axis.inner % axis.card;
            if (state == -2)
                value[k] *= f.weights[axis.weight + at];
            else if (state != (int)at)
                value[k] = 0.0;
        }
    }
#pragma unroll
    for (u32 k = 0; k < ENTER_SHARE; k++)
        store(f.arena + op.out + from + 32 * k, value[k], f.sign, from + 32 * k < n);
}

// Write a normalised posterior to the host.
__device__ __forceinline__ void answer_unit(const Dataflow& f, const Op& op, u32 lane) {
    const double* from = f.arena + op.a;
    const u32 card = ANSWER_CARD(op), sign = f.sign & WAITS_FOR_A(op);
    const double mine = lane < card ? await(from + lane, sign) : 0.0;
    double total = mine;
    for (u32 i = lane + 32; i < card; i += 32) total += await(from + i, sign);
    for (u32 bit = 16; bit; bit >>= 1) total += __shfl_xor_sync(0xffffffffu, total, bit);
    double* to = f.posterior + ANSWER_AT(op);
    if (lane < card) to[lane] = total > 0.0 ? mine / total : 0.0;
    for (u32 i = lane + 32; i < card; i += 32) to[i] = total > 0.0 ? await(from + i, sign) / total : 0.0;
}

extern "C" __global__ void __launch_bounds__(32 * MAX_WARPS, 1) dataflow(GRID_CONSTANT Dataflow f) {
    __shared__ uint2 records[MAX_WARPS][32];
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31, queue = blockIdx.x * (blockDim.x >> 5) + warp;
    u32 at = f.starts[queue];
    const u32 end = f.starts[queue + 1];
    if (at == end) return;
    Task next = f.tasks[at], after = next;
    uint2 record = f.ops[(u64)next.op * 32 + lane];
    if (at + 1 < end) after = f.tasks[at + 1];
    for (; at < end; at++) {
        records[warp][lane] = record;
        const u32 unit = next.unit;
        next = after;
        record = f.ops[(u64)next.op * 32 + lane];
        if (at + 2 < end) after = f.tasks[at + 2];
        __syncwarp();
        const Op& op = *(const Op*)records[warp];
        switch (op.shape) {
            case 1 * 8 + 1: contract<1, 1, 4>(f, op, unit, lane); break;
            case 4 * 8 + 1: contract<4, 1, 2>(f, op, unit, lane); break;
            case 2 * 8 + 2: contract<2, 2, 2>(f, op, unit, lane); break;
            case LONG + 1 * 8 + 1: contract<1, 1, 8>(f, op, unit, lane); break;
            case LONG + 2 * 8 + 2: contract<2, 2, 4>(f, op, unit, lane); break;
            case 4 * 8 + 2: contract<4, 2, 2>(f, op, unit, lane); break;
            case 4 * 8 + 4: contract<4, 4, 1>(f, op, unit, lane); break;
            case ENTER_UNIT: enter_unit(f, op, unit, lane); break;
            case ANSWER_UNIT: answer_unit(f, op, lane); break;
            case ROOT_UNIT:
                for (u32 i = lane; i < f.n_roots; i += 32)
                    f.root[i] = await(f.arena + f.roots[i].x, f.sign & f.roots[i].y);
                break;
            default: __trap();
        }
        __syncwarp();
    }
}
