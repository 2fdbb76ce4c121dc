// Many cases at once: a lane a case, the tables of 32 cases together ([group of 32][cell][lane]), one kernel a level.
//
//   batch_scatter    evidence given as columns of small integers, to the rows that the other kernels read; that given as
//                    rows enters by count_codes (counts.cu)
//   batch_clear      zeros, once: entries that are structurally zero are never written
//   batch_enter      evidence factors of every case: observed states, and weights if there are any; a warp 32 entries
//   batch_level      a warp computes one tile of outputs for 32 cases: all lanes and cases read the same record, loads
//                    are 256 contiguous bytes, and factors without evidence are read from one copy that all cases
//                    share; a tile sums the configurations in which any of its products is structurally non-zero
//                    (jtgpu/backends/gpu/batch/tiling.py)
//   batch_slim       the same with fewer registers, and so more warps, for tiles of few outputs
//   batch_finish     posteriors and ln P(e), column by column; resets the slots for the next chunk
//   batch_check      float32: sets ln P(e) to NaN if a posterior does not sum to P(e); the case is computed again
//   batch_rows       posteriors transposed, if the caller wants rows
//
// Wins from some hundred cases on. The warps of a block compute the same tile for neighbouring groups and so share its
// record; neighbouring blocks compute neighbouring tiles of the same groups, so that what tiles have in common is still
// in L2. Bound by latency where tiles sum little: what a tile reads is requested at once as far as registers allow. Loses
// on long sums, since no other warp helps with them (jtgpu/backends/gpu/lower.py splits them), and to products.cu
// where many outputs sum the same configurations.
#include "batch/batch.cuh"

#define DIFFERENCE (1.0 / 1024)  // float: relative difference of two sums of P(e) from which on neither is reliable

// Four cases a thread: n_cases is a multiple of 32.
template <class Four>
__device__ __forceinline__ int4 widened(const void* codes, u64 at) {
    const Four c = ((const Four*)codes)[at];
    return make_int4(c.x, c.y, c.z, c.w);
}

extern "C" __global__ void __launch_bounds__(256) batch_scatter(Columns c) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 fours = c.n_cases / 4, what = (u32)(thread / fours), at = (u32)(thread % fours);
    if (what >= c.n_columns) return;
    int4* const out = (int4*)c.state + (u64)c.variables[what] * fours + at;
    if (c.width == 1) *out = widened<char4>(c.codes, thread);
    else if (c.width == 2) *out = widened<short4>(c.codes, thread);
    else *out = widened<int4>(c.codes, thread);
}

extern "C" __global__ void __launch_bounds__(256) batch_clear(u64* words, u32 n, u32 times) {
    const u64 all = (u64)n * times;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (u64)gridDim.x * blockDim.x) words[i] = 0;
}

// A warp enters evidence into up to 32 entries of a factor: those that are not used stay zero.
extern "C" __global__ void __launch_bounds__(256) batch_enter(Batch b) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    if (warp >= b.n_factors * groups) return;
    const Factor f = b.factors[warp / groups];
    const Group g = group_of(b, warp % groups, lane);
    const u32 at = warp % groups * 32 + lane;
    real top = 0;
    for (u32 first = 0; first < 32; first += 8) {
        const u32 used = f.used >> first & 255u;
        if (!used) continue;
        double value[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) value[i] = used >> i & 1 ? (double)b.shared[f.cell + first + i] : 0.0;
        for (u32 v = 0; v < f.n_axes; v++) {
            const Axis axis = b.axes[f.axes + v];
            const u32 row = b.weight_row[axis.variable], e = f.from + first;
            const int state = b.state[(u64)axis.variable * b.stride + at];
            u32 rest = e % axis.inner, digit = e / axis.inner % axis.card;
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                if (state != -1 && state != (int)digit) value[i] = 0.0;
                if (row != NONE && used >> i & 1) value[i] *= b.weight[(u64)(row + digit) * b.stride + at];
                if (++rest == axis.inner) rest = 0, digit = digit + 1 == axis.card ? 0 : digit + 1;
            }
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if (!(used >> i & 1)) continue;
            const real stored = (real)value[i];
            g.cells[(u64)(f.to + first + i) * 32] = stored;
            top = stored > top ? stored : top;
        }
    }
    publish_case(g.slots + f.table * 32, word_of(top), 0);
    g.slots[f.table * 32].exponent = b.shared_slots[f.table].exponent;
}

// Doubles are scaled after the sum: the largest entry of a table is within 2^+-400 whatever inputs it was computed from.
// Floats are scaled before they are multiplied. DIAGONAL: output i from A's i and B's i.
template <int TM, int TN, bool DIAGONAL = false>
__device__ __forceinline__ void run_tile(const Batch& b, const Tile& t, const Group& g) {
    constexpr int WIDE = TN && !DIAGONAL ? TN : 1;
    const bool shared_a = t.kind & A_SHARED, shared_b = t.kind & B_SHARED;
    const Slot slot_a = shared_a ? b.shared_slots[t.slot_a] : g.slots[t.slot_a * 32];
    const Slot slot_b = shared_b ? b.shared_slots[t.slot_b] : g.slots[t.slot_b * 32];
    Slot* const slot = g.slots + t.slot_out * 32;
    const int before = *(volatile int*)&slot->top;
    const int shift_a = shift_of(slot_a.top), shift_b = shift_of(slot_b.top);
    const real scale_a = power_of_two(-shift_a), scale_b = power_of_two(-shift_b);
    const real *from_a = shared_a ? b.shared : g.cells, *from_b = shared_b ? b.shared : g.cells;
    const u32 log_a = shared_a ? 0 : 5, log_b = shared_b ? 0 : 5, n_steps = t.n_steps;
    const real *a[TM], *c[TN ? TN : 1];
#pragma unroll
    for (int i = 0; i < TM; i++) a[i] = from_a + ((u64)t.at[i] << log_a);
#pragma unroll
    for (int j = 0; j < TN; j++) c[j] = from_b + ((u64)t.at[TM + j] << log_b);
    real sum[TM * WIDE];
#pragma unroll
    for (int e = 0; e < TM * WIDE; e++) sum[e] = 0;
    const uint2* const steps = b.steps + t.steps;
    struct Operands { real x[TM], y[TN ? TN : 1]; };
    auto read = [&](Operands& o, u32 k) {
        const uint2 step = steps[k];
        const u32 in_a = step.x << log_a, in_b = step.y << log_b;
#pragma unroll
        for (int i = 0; i < TM; i++) o.x[i] = a[i][in_a];
#pragma unroll
        for (int j = 0; j < TN; j++) o.y[j] = c[j][in_b];
    };
    auto add = [&](const Operands& o) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                const real x = SINGLE ? o.x[i] * scale_a : o.x[i], y = TN ? o.y[DIAGONAL ? i : j] : real(1);
                sum[i * WIDE + j] += SINGLE ? x * (y * scale_b) : TN ? x * y : x;
            }
    };
    u32 k = 0;
    Operands p, q, r;
    for (; k + 3 <= n_steps; k += 3) {  // three steps at once, and the last two: one wait each
        read(p, k), read(q, k + 1), read(r, k + 2);
        add(p), add(q), add(r);
    }
    if (k < n_steps) {
        read(p, k), read(q, n_steps - 1);
        add(p);
        if (k + 1 < n_steps) add(q);
    }
    const u32* const out = t.at + TM + TN;
    const int top = store_sums<TM, WIDE>(g.cells, t.mask, out, out + TM, sum, shift_a, shift_b);
    publish_case(slot, top, before);
    if (t.kind & FIRST) slot->exponent = slot_a.exponent + shift_a + slot_b.exponent + shift_b;
}

// The tiles of a level. SLIM: without those of many outputs, so that more warps fit.
template <bool SLIM>
__device__ __forceinline__ void run_level(const Batch& b, u32 first, u32 n_tiles) {
    const u32 warps = blockDim.x >> 5, group = blockIdx.x / n_tiles * warps + (threadIdx.x >> 5);
    if (group >= b.n_cases / 32) return;
    const Tile& t = b.tiles[first + blockIdx.x % n_tiles];
    const Group g = group_of(b, group, threadIdx.x & 31);
    const u32 shape = t.kind & 15;
    if (!SLIM && shape == 0) run_tile<4, 4>(b, t, g);
    else if (!SLIM && shape == 1) run_tile<6, 3>(b, t, g);
    else if (!SLIM && shape == 2) run_tile<3, 3>(b, t, g);
    else if (!SLIM && shape == 9) run_tile<4, 4, true>(b, t, g);
    else if (shape == 3) run_tile<4, 2>(b, t, g);
    else if (shape == 4) run_tile<2, 2>(b, t, g);
    else if (shape == 5) run_tile<4, 1>(b, t, g);
    else if (shape == 6) run_tile<1, 1>(b, t, g);
    else if (shape == 7) run_tile<4, 0>(b, t, g);
    else if (shape == 8) run_tile<1, 0>(b, t, g);
    else __trap();
}

extern "C" __global__ void __launch_bounds__(128, 5) batch_level(Batch b, u32 first, u32 n_tiles) {
    run_level<false>(b, first, n_tiles);
}

extern "C" __global__ void __launch_bounds__(128, 8) batch_slim(Batch b, u32 first, u32 n_tiles) {
    run_level<true>(b, first, n_tiles);
}

extern "C" __global__ void __launch_bounds__(256) batch_finish(Batch b) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    const u32 at = warp % groups * 32 + lane, what = warp / groups;
    const Group g = group_of(b, warp % groups, lane);
    if (what < b.n_answers) {
        const Answer a = b.answers[what];
        double total = 0.0;
        for (u32 i = 0; i < a.card; i++) total += g.cells[(u64)(a.cell + i) * 32];
        for (u32 i = 0; i < a.card; i++)
            b.posterior[(u64)(a.at + i) * b.stride + at] = total > 0.0 ? g.cells[(u64)(a.cell + i) * 32] / total : 0.0;
    } else if (what == b.n_answers) {
        double log_evidence = 0.0;
        for (u32 i = 0; i < b.n_roots; i++) {
            const u32 cell = b.roots[3 * i], table = b.roots[3 * i + 1];
            const bool shared = b.roots[3 * i + 2] != 0;
            const double value = shared ? b.shared[cell] : g.cells[(u64)cell * 32];
            const int exponent = shared ? b.shared_slots[table].exponent : g.slots[(u64)table * 32].exponent;
            log_evidence += value > 0.0 ? log(value) + exponent * 0.693147180559945309417 : -INFINITY;
        }
        b.log_evidence[at] = log_evidence;
        for (u32 t = 0; t < b.n_tables; t++) g.slots[(u64)t * 32].top = 0;
    }
}

struct Check { u32 cell, card, table, root; };   // a posterior, and the root of its component

extern "C" __global__ void __launch_bounds__(256) batch_check(Batch b, const Check* checks, u32 n_checks) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    if (!SINGLE || warp >= n_checks * groups) return;
    const Check c = checks[warp / groups];
    const Group g = group_of(b, warp % groups, lane);
    const u32 cell = b.roots[3 * c.root], table = b.roots[3 * c.root + 1];
    const bool shared = b.roots[3 * c.root + 2] != 0;
    const double root = shared ? b.shared[cell] : g.cells[(u64)cell * 32];
    const int exponent = shared ? b.shared_slots[table].exponent : g.slots[(u64)table * 32].exponent;
    double total = 0.0;
    for (u32 i = 0; i < c.card; i++) total += g.cells[(u64)(c.cell + i) * 32];
    const double other = ldexp(total, g.slots[(u64)c.table * 32].exponent - exponent);
    if (!(fabs(other - root) <= DIFFERENCE * root)) b.log_evidence[warp % groups * 32 + lane] = NAN;
}

extern "C" __global__ void __launch_bounds__(256) batch_rows(Answers a) {
    const u32 high = (a.n_out + 31) / 32;
    transpose_tile(a.columns, a.rows, a.n_out, a.n_cases, blockIdx.x % high * 32, blockIdx.x / high * 32);
}
