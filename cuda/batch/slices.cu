// Slices of dynamic networks: a block passes the messages of L sequences through all slices of a call, one launch.
//
//   slices_forward    messages from slice to slice, ln P, distributions given the evidence so far
//   slices_backward   messages from the last slice to the first, distributions given all evidence
//
// The program of a slice is the same for all slices (jtgpu/backends/gpu/slices/program.py): loads of the factors that
// evidence or a message enters, then contractions in phases with a barrier between them. A thread is a lane, its
// sequence, and a unit, which computes every U-th tile of outputs of a contraction for this sequence; the threads of a
// tile read one record and L neighbouring numbers of a cell. All tables are in shared memory, and the message between
// two slices never leaves it, unless it is kept; tables that are too large for it are in global memory, a part a block.
// The order of every sum depends on the program only, so bits do not depend on other sequences.
#include "common/types.cuh"

struct Contraction { u32 tiles, n_tiles, steps, n_steps, shape, sync; };  // shape: and CONST_A, CONST_B
struct Item {       // a cell of a factor whose numbers differ from sequence to sequence
    u32 value, to;              // its number; in the arena
    u32 axes, n_fixed, n_axes;  // variables that are always observed, then those whose evidence multiplies it
    u32 message, place;         // 0: none, 1: a cell of the message, 2: an entry of the kept one
    u32 cell;
};
struct Observed { u32 column, weight, inner, card, stride; };  // NONE: no column, no weights
struct Target { u32 from, is_const, n, column; };              // cells of an answer; first column
struct Part { u32 items, n_items, ops, n_ops, targets, n_targets; };

#define EARLY 6  // entries
#define CONST_A 16u
#define CONST_B 32u

struct SliceProgram {
    const Contraction* ops;
    const uint4* tiles;          // 5 a tile: mask, cells of A, of B, of the output by A, and what B adds
    const uint2* steps;          // what is added to cells of A and B
    const Item* items;
    const Observed* observed;
    const Target* targets;
    const u32* pool;
    const double* consts;        // (n_consts,) copied to the beginning of the arena
    const double* values;        // of factors that are loaded
    double least;                // P of a slice that is computed with all digits
    Part main, second;           // the next message; other answers
    Target answer;               // cells of the next message
    u32 source, target;          // in the pool: (K,) cell of each entry in the message, in the answer
    u32 message, work;           // in the arena: the message, by cells; memory between slices
    u32 n_consts, n_cells;       // of the arena
    u32 n_entries, lanes;        // K, L
    u32 n_others, others;        // roots of other components: targets
    u32 n_pairs, pairs, n_parts, pad;  // states of variables between slices: their entries in the pool, n and column first
};

struct Sequences {
    const void* codes;           // (rows, n_columns)
    const double* weights;       // (rows, n_weights)
    const u32* first;            // (n,) first row of each sequence
    const int* lengths;          // (n,)
    double* message;             // (K, n)
    double* kept;                // (slices, K, n)
    double* later;               // (slices, K, n)
    double* total;               // (n,) P so far, times 2^-exponent
    int* exponent;
    int* failed;                 // first slice whose P is too small, -1: none
    int* lost;                   // whether a product of two messages was too small
    double* cells;               // (n * n_rows, n_out)
    const int* place;            // (T,) row of a slice, -1: none; null: the last slice alone
    double* arenas;              // tables of each block, where they are too large for shared memory
    u32 n, width, n_columns, n_weights, n_rows, n_out;
    u32 begin, end, base, stride, n_kept, n_later, count;  // count: whether ln P is added up
    u32 pad;
};

#ifdef __CUDACC__
extern __shared__ __align__(16) double slice_memory[];
#else
static double slice_memory[1 << 15] __attribute__((aligned(16)));
#endif

// A number that no kernel writes: the compiler may read it ahead of stores.
__device__ __forceinline__ u32 fixed(const u32* x) {
#ifdef __CUDACC__
    return __ldg(x);
#else
    return *x;
#endif
}

__device__ __forceinline__ double read_once(const double* x) {
#ifdef __CUDACC__
    return __ldg(x);
#else
    return *x;
#endif
}

#ifdef FIXED_MAIN
#define LANES FIXED_LANES
#else
#define LANES p.lanes
#endif

struct Here {        // a thread's place
    double* arena;   // constants first
    double* sums;    // 2 x warps x L numbers
    u32 lane, unit, units, lanes, turn;
    u32 seq, row;
};

// Sum over all units of a lane, the same for each of them.
__device__ __forceinline__ double lane_sum(Here& h, double x) {
    for (u32 bit = h.lanes; bit < 32; bit <<= 1) x += __shfl_xor_sync(0xffffffffu, x, bit);
    const u32 warps = blockDim.x >> 5, warp = threadIdx.x >> 5;
    if (warps == 1) return x;
    double* const sums = h.sums + h.turn * warps * h.lanes;
    h.turn ^= 1;
    if ((threadIdx.x & 31) < h.lanes) sums[warp * h.lanes + h.lane] = x;
    __syncthreads();
    x = 0.0;
    for (u32 w = 0; w < warps; w++) x += sums[w * h.lanes + h.lane];
    return x;
}

__device__ __forceinline__ double2 twice(double x) { return make_double2(x, x); }

// A thread computes two sequences. It reads its first record before it waits for the inputs.
template <int TM, int TN>
__device__ __forceinline__ void run_tiles(const SliceProgram& p, const Contraction& c, const Here& h) {
    constexpr int WIDE = TN ? TN : 1, WORDS = (2 * TM + TN + WIDE + 4) / 4;
    const u32 pairs = h.lanes / 2, lane = threadIdx.x % pairs * 2, units = blockDim.x / pairs;
    const bool const_a = c.shape & CONST_A, const_b = c.shape & CONST_B;
    const u32 lane_a = const_a ? 0 : lane, lane_b = const_b ? 0 : lane;
    const uint2* const steps = p.steps + c.steps;
    bool waits = c.sync;
    for (u32 i = threadIdx.x / pairs; i < c.n_tiles || waits; i += units) {
        u32 at[4 * WORDS];
        const uint4* const record = p.tiles + 5 * (c.tiles + (i < c.n_tiles ? i : 0));
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const uint4 word = record[w];
            at[4 * w] = word.x;
            at[4 * w + 1] = word.y;
            at[4 * w + 2] = word.z;
            at[4 * w + 3] = word.w;
        }
        if (waits) __syncthreads();
        waits = false;
        if (i >= c.n_tiles) break;
        double2 sum[TM * WIDE];
#pragma unroll
        for (int e = 0; e < TM * WIDE; e++) sum[e] = twice(0.0);
        for (u32 k = 0; k < c.n_steps; k++) {
            const uint2 step = steps[k];
            double2 x[TM], y[WIDE];
#pragma unroll
            for (int m = 0; m < TM; m++) {
                const double* const from = h.arena + (at[1 + m] + step.x + lane_a);
                x[m] = const_a ? twice(*from) : *(const double2*)from;
            }
#pragma unroll
            for (int n = 0; n < TN; n++) {
                const double* const from = h.arena + (at[1 + TM + n] + step.y + lane_b);
                y[n] = const_b ? twice(*from) : *(const double2*)from;
            }
#pragma unroll
            for (int m = 0; m < TM; m++)
#pragma unroll
                for (int n = 0; n < WIDE; n++) {
                    double2& s = sum[m * WIDE + n];
                    s.x = TN ? fma(x[m].x, y[n].x, s.x) : s.x + x[m].x;
                    s.y = TN ? fma(x[m].y, y[n].y, s.y) : s.y + x[m].y;
                }
        }
#pragma unroll
        for (int m = 0; m < TM; m++)
#pragma unroll
            for (int n = 0; n < WIDE; n++)
                if (at[0] >> (m * WIDE + n) & 1)
                    *(double2*)(h.arena + (at[1 + TM + TN + m] + at[1 + TM + TN + TM + n] + lane)) = sum[m * WIDE + n];
    }
}

__device__ __forceinline__ void run_record(const SliceProgram& p, const Contraction& c, const Here& h) {
    switch (c.shape & 15) {
        case 0: run_tiles<4, 4>(p, c, h); break;
        case 1: run_tiles<6, 3>(p, c, h); break;
        case 2: run_tiles<3, 3>(p, c, h); break;
        case 3: run_tiles<4, 2>(p, c, h); break;
        case 4: run_tiles<2, 2>(p, c, h); break;
        case 5: run_tiles<4, 1>(p, c, h); break;
        case 6: run_tiles<1, 1>(p, c, h); break;
        case 7: run_tiles<4, 0>(p, c, h); break;
        case 8: run_tiles<1, 0>(p, c, h); break;
        default: __trap();
    }
}

#ifdef FIXED_MAIN
template <bool CONST>
__device__ __forceinline__ double2 loaded(const double* from) { return CONST ? twice(*from) : *(const double2*)from; }

// A contraction whose cells are constants of the code (jtgpu/backends/gpu/slices/generated.py).
template <class O>
__device__ __forceinline__ void run_fixed(const Here& h) {
    constexpr u32 PAIRS = FIXED_LANES / 2;
    const u32 lane = threadIdx.x % PAIRS * 2;
    if (O::SYNC_) __syncthreads();
    for (u32 i = threadIdx.x / PAIRS; i < O::N_; i += blockDim.x / PAIRS) {
        const double* const a = h.arena + O::a(i) + (O::CONST_A_ ? 0 : lane);
        const double* const b = h.arena + O::b(i) + (O::CONST_B_ ? 0 : lane);
        double* const out = h.arena + O::o(i) + lane;
        double2 sum[O::TM_ * O::TN_];
#pragma unroll
        for (u32 e = 0; e < O::TM_ * O::TN_; e++) sum[e] = twice(0.0);
#pragma unroll
        for (u32 k = 0; k < O::K_; k++) {
            double2 x[O::TM_], y[O::TN_];
#pragma unroll
            for (u32 m = 0; m < O::TM_; m++) x[m] = loaded<O::CONST_A_>(a + m * O::MA_ + O::ka(k));
#pragma unroll
            for (u32 n = 0; n < O::TN_; n++) y[n] = O::ALONE_ ? twice(1.0) : loaded<O::CONST_B_>(b + n * O::NB_ + O::kb(k));
#pragma unroll
            for (u32 m = 0; m < O::TM_; m++)
#pragma unroll
                for (u32 n = 0; n < O::TN_; n++) {
                    double2& s = sum[m * O::TN_ + n];
                    s.x = O::ALONE_ ? s.x + x[m].x : fma(x[m].x, y[n].x, s.x);
                    s.y = O::ALONE_ ? s.y + x[m].y : fma(x[m].y, y[n].y, s.y);
                }
        }
#pragma unroll
        for (u32 m = 0; m < O::TM_; m++)
#pragma unroll
            for (u32 n = 0; n < O::TN_; n++) *(double2*)(out + m * O::MO_ + n * O::NO_) = sum[m * O::TN_ + n];
    }
}
#endif

__device__ __forceinline__ int code_of(const Sequences& s, u32 row, u32 column) {
    const u64 at = (u64)row * s.n_columns + column;
    return s.width == 1 ? ((const signed char*)s.codes)[at] : ((const int*)s.codes)[at];
}

// The tables of a program whose numbers differ between sequences, then its contractions; the answers may be read.
template <bool SECOND>
__device__ __forceinline__ void run_program(const SliceProgram& p, const Sequences& s, Here& h, const double* kept) {
    const Part& part = SECOND ? p.second : p.main;
    for (u32 i = h.unit; i < part.n_items; i += h.units) {
        const Item q = p.items[part.items + i];
        u32 value = q.value;
        for (u32 a = 0; a < q.n_fixed; a++) {
            const Observed o = p.observed[q.axes + a];
            value += o.stride * (u32)code_of(s, h.row, o.column);
        }
        double x = p.values[value];
        for (u32 a = q.n_fixed; a < q.n_axes; a++) {
            const Observed o = p.observed[q.axes + a];
            const u32 digit = q.cell / o.inner % o.card;
            const int state = o.column == NONE ? -1 : code_of(s, h.row, o.column);
            if (state >= 0 && state != (int)digit) x = 0.0;
            if (o.weight != NONE) x *= s.weights[(u64)h.row * s.n_weights + o.weight + digit];
        }
        if (q.message == 1) x *= h.arena[p.message + q.place * h.lanes + h.lane];
        if (q.message == 2) x *= kept[(u64)q.place * s.n + h.seq];
        h.arena[q.to + h.lane] = x;
    }
#ifdef FIXED_MAIN
    if (SECOND) {
        FIXED_SECOND
    } else {
        FIXED_MAIN
    }
#else
    for (u32 i = 0; i < part.n_ops; i++) run_record(p, p.ops[part.ops + i], h);
#endif
    __syncthreads();
}

__device__ __forceinline__ double answered(const Target& t, const Here& h, u32 cell) {
    return h.arena[t.is_const ? t.from + cell : t.from + cell * h.lanes + h.lane];
}

// Normalised answers of a program.
__device__ __forceinline__ void write_targets(const SliceProgram& p, const Sequences& s, Here& h, double* row) {
    for (u32 i = h.unit; i < p.second.n_targets; i += h.units) {
        const Target t = p.targets[p.second.targets + i];
        double total = 0.0;
        for (u32 c = 0; c < t.n; c++) total += answered(t, h, c);
        const double inverse = total > 0.0 ? 1.0 / total : 0.0;
        if (row)
            for (u32 c = 0; c < t.n; c++) row[t.column + c] = answered(t, h, c) * inverse;
    }
    __syncthreads();  // the next program uses the same memory
}

// The first entries of a message that a thread needs later: memory answers while it computes.
__device__ __forceinline__ void read_early(const SliceProgram& p, const Sequences& s, const Here& h, const double* from,
                                           double* early) {
#pragma unroll
    for (u32 j = 0; j < EARLY; j++) {
        const u32 e = h.unit + j * h.units;
        early[j] = e < p.n_entries ? from[(u64)e * s.n + h.seq] : 0.0;
    }
}

// Distributions of variables between slices: the message times another one, `with`, (K, n); null: ones. Its sum.
__device__ __forceinline__ double write_between(const SliceProgram& p, const Sequences& s, Here& h, const double* with,
                                                const double* early, double* row) {
    double total = 0.0;
#pragma unroll
    for (u32 j = 0; j < EARLY; j++) {
        const u32 e = h.unit + j * h.units;
        if (e < p.n_entries) {
            double x = h.arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane];
            if (with) x *= early[j];
            h.arena[p.work + e * h.lanes + h.lane] = x;
            total += x;
        }
    }
    for (u32 e = h.unit + EARLY * h.units; e < p.n_entries; e += h.units) {
        double x = h.arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane];
        if (with) x *= read_once(with + (u64)e * s.n + h.seq);
        h.arena[p.work + e * h.lanes + h.lane] = x;
        total += x;
    }
    total = lane_sum(h, total);
    __syncthreads();
    const double inverse = total > 0.0 ? 1.0 / total : 0.0;
    const u32 parts = p.work + p.n_entries * h.lanes + h.lane;
    for (u32 i = h.unit; i < p.n_pairs * p.n_parts; i += h.units) {  // several units share a sum
        const u32* const pair = p.pool + p.pairs + i / p.n_parts * 3;  // first entry in the pool, entries, column
        double sum = 0.0;
#pragma unroll 4
        for (u32 k = i % p.n_parts; k < pair[1]; k += p.n_parts)
            sum += h.arena[p.work + fixed(p.pool + pair[0] + k) * h.lanes + h.lane];
        h.arena[parts + i * h.lanes] = sum;
    }
    __syncthreads();
    for (u32 i = h.unit; i < p.n_pairs; i += h.units) {
        double sum = 0.0;
        for (u32 k = 0; k < p.n_parts; k++) sum += h.arena[parts + (i * p.n_parts + k) * h.lanes];
        if (row) row[p.pool[p.pairs + 3 * i + 2]] = sum * inverse;
    }
    __syncthreads();
    return total;
}

// The answer of the program becomes the message, normalised if it is large enough; the sum.
__device__ __forceinline__ double take_answer(const SliceProgram& p, Here& h, bool& good) {
    double sum = 0.0;
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units) sum += answered(p.answer, h, fixed(p.pool + p.target + e));
    sum = lane_sum(h, sum);
    good = sum >= p.least;
    const double inverse = good ? 1.0 / sum : 0.0;
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units) {
        const double x = answered(p.answer, h, fixed(p.pool + p.target + e)) * inverse;
        h.arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane] = x;
    }
    return sum;
}

__device__ __forceinline__ void copy_message(const SliceProgram& p, const Sequences& s, const Here& h, double* to) {
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units)
        to[(u64)e * s.n + h.seq] = h.arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane];
}

__device__ __forceinline__ void read_message(const SliceProgram& p, const Sequences& s, const Here& h) {
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units)
        h.arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane] = s.message[(u64)e * s.n + h.seq];
}

// Where a thread's distributions of a slice go; null: they are not wanted of its sequence.
__device__ __forceinline__ double* row_of(const Sequences& s, const Here& h, u32 t, int length, bool possible) {
    if (!possible || (int)t >= length || (!s.place && (int)t + 1 != length)) return nullptr;
    return s.cells + ((u64)h.seq * s.n_rows + (s.place ? s.place[t] : 0)) * s.n_out;
}

template <bool AHEAD>
__device__ __forceinline__ void pass_slices(const SliceProgram& p, const Sequences& s, double* arena, double* sums) {
    Here h = {arena, sums, threadIdx.x % LANES, threadIdx.x / LANES, blockDim.x / LANES, LANES, 0, 0, 0};
    for (u32 i = threadIdx.x; i < p.n_consts; i += blockDim.x) arena[i] = p.consts[i];
    const u64 size = (u64)p.n_entries * s.n;
    for (u32 group = blockIdx.x; group < s.n / LANES; group += gridDim.x) {
        h.seq = group * LANES + h.lane;
        const int length = s.lengths[h.seq];
        double total = s.total[h.seq];
        int exponent = s.exponent[h.seq], failed = s.failed[h.seq], lost = s.lost[h.seq];
        __syncthreads();
        read_message(p, s, h);
        double early[EARLY];
        if (!AHEAD && p.n_pairs && s.end > s.begin) read_early(p, s, h, s.kept + (s.end - s.base) * size, early);
        __syncthreads();
        for (u32 i = s.begin; i < s.end; i++) {
            const u32 t = AHEAD ? i : s.end - 1 - (i - s.begin);
            h.row = s.first[h.seq] + ((int)t < length ? t : length ? (u32)length - 1 : 0);
            const bool here = s.place ? s.place[t] >= 0 : false;
            if (AHEAD) {
                const u32 slot = (t - s.base) / s.stride;
                if (s.n_kept && t >= s.base && (t - s.base) % s.stride == 0 && slot < s.n_kept)
                    copy_message(p, s, h, s.kept + slot * size);
            } else {
                if ((int)t + 1 >= length)
                    for (u32 e = h.unit; e < p.n_entries; e += h.units)
                        arena[p.message + fixed(p.pool + p.source + e) * h.lanes + h.lane] = 1.0;
                __syncthreads();
                if (s.n_later) copy_message(p, s, h, s.later + (t - s.base) * size);
            }
            const bool wanted = s.n_out && (s.place ? here : (bool)__syncthreads_or((int)t + 1 == length));
            const double* const before = AHEAD ? nullptr : s.kept + (t - s.base) * size;
            if (wanted && p.second.n_targets) {
                run_program<true>(p, s, h, before);
                write_targets(p, s, h, row_of(s, h, t, length, failed < 0));
            }
            if (!AHEAD && wanted && p.n_pairs) {
                const double product = write_between(p, s, h, before + size, early, row_of(s, h, t, length, failed < 0));
                if ((int)t < length && failed < 0 && !(product >= p.least)) lost = 1;
            }
            if (!AHEAD && p.n_pairs && t > s.begin) read_early(p, s, h, before, early);
            if (AHEAD || t > 0) {
                bool good;
                run_program<false>(p, s, h, nullptr);
                double sum = take_answer(p, h, good);
                if (AHEAD && (int)t < length && failed < 0) {
                    for (u32 r = 0; r < p.n_others; r++) {
                        const double root = answered(p.targets[p.others + r], h, 0);
                        good = good && root >= p.least;
                        sum *= root;
                    }
                    int by = 0;
                    total = frexp(total * sum, &by);
                    exponent += by;
                    if (!good || !(total > 0.0)) failed = (int)t;
                }
                if (!AHEAD && (int)t < length && failed < 0 && !good) lost = 1;
                __syncthreads();
            }
            if (AHEAD && wanted && p.n_pairs) write_between(p, s, h, nullptr, early, row_of(s, h, t, length, failed < 0));
        }
        copy_message(p, s, h, s.message);
        const u32 slot = (s.end - s.base) / s.stride;
        if (AHEAD && s.n_kept && s.end >= s.base && (s.end - s.base) % s.stride == 0 && slot < s.n_kept)
            copy_message(p, s, h, s.kept + slot * size);
        if (h.unit == 0) {
            if (AHEAD && s.count) {
                s.total[h.seq] = total;
                s.exponent[h.seq] = exponent;
                s.failed[h.seq] = failed;
            }
            if (!AHEAD) s.lost[h.seq] = lost;
        }
        __syncthreads();
    }
}

#ifndef BOUNDS
#define BOUNDS 256
#endif
#define KERNEL(name, ahead, arena, sums)                                                                          \
    extern "C" __global__ void __launch_bounds__(BOUNDS) slices_##name(SliceProgram p, Sequences s) {             \
        pass_slices<ahead>(p, s, arena, sums);                                                                    \
    }
#ifdef FIXED_MAIN
KERNEL(fixed, FIXED_AHEAD, slice_memory, slice_memory + p.n_cells)
#else
KERNEL(forward_shared, true, slice_memory, slice_memory + p.n_cells)
KERNEL(backward_shared, false, slice_memory, slice_memory + p.n_cells)
KERNEL(forward_global, true, s.arenas + (u64)blockIdx.x * p.n_cells, slice_memory)
KERNEL(backward_global, false, s.arenas + (u64)blockIdx.x * p.n_cells, slice_memory)
#endif
