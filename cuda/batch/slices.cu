// Slices of dynamic networks: a block passes the messages of L sequences through all slices of a call, one launch.
//
//   slices_forward    messages from slice to slice, ln P, distributions given the evidence so far
//   slices_backward   messages from the last slice to the first, distributions given all evidence, or their sums
//   slices_added      such sums of 32 sequences each, which have weights
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
// Cells of an answer; its first column. Where distributions are added up, a place in the pool: the number of observed
// variables, the first column, for each of them its column of codes and its stride, and the column of each cell.
struct Target { u32 from, is_const, n, column; };
struct Part { u32 items, n_items, ops, n_ops, targets, n_targets; };

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
    u32 n_groups, groups;        // sums of entries, in the pool: where its terms are, their number, place of the sum
    u32 n_sums, sums;            // of entries or groups, for each state of the variables between slices: column
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
    int* lost;                   // whether answers may be wrong, or a product of two messages was too small
    double* loss;                // (n,) bound of what lost numbers changed in the message, whose sum is 1
    double* late;                // (n,) the same of messages from later slices
    double* cells;               // (n * n_rows, n_out)
    const int* place;            // (T,) row of a slice, -1: none; null: the last slice alone
    double* arenas;              // tables of each block, where they are too large for shared memory
    double small;                // least number of a message from which on no product of a slice is too small
    u32 n, width, n_columns, n_weights, n_rows, n_out;
    u32 begin, end, base, stride, n_kept, n_later, count;  // count: whether ln P is added up
    u32 adds;                    // whether other answers are added up over slices, in cells (n_out, n)
};

// A product that is too small for a number changes a message by less than TINY an entry, until the next one divides it
// by P of a slice. Answers are right as long as what all of them changed is below MOST_LOST (compare the CPU's slices).
#define TINY 0x1p-1021
#define MOST_LOST 0x1p-42

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

#define EARLY 6  // entries that are read before they are needed

struct Here {        // a thread's place
    double* arena;   // constants first
    double* sums;    // 2 x warps x L numbers
    u32 lane, unit, units, lanes, turn;
    u32 seq, row;
};

// Sum over all units of a lane, the same for each of them, which have waited for each other.
__device__ __forceinline__ double lane_sum(Here& h, double x) {
    for (u32 bit = h.lanes; bit < 32; bit <<= 1) x += __shfl_xor_sync(0xffffffffu, x, bit);
    const u32 warps = blockDim.x >> 5, warp = threadIdx.x >> 5;
    if (warps == 1) {
        __syncwarp();
        return x;
    }
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
    for (u32 i = 0; i < part.n_ops; i++) run_record(p, p.ops[part.ops + i], h);
    __syncthreads();
}

__device__ __forceinline__ double answered(const SliceProgram& p, const Target& t, const Here& h, u32 cell) {
    return h.arena[t.is_const ? t.from + cell : t.from + cell * p.lanes + h.lane];
}

// Normalised answers of a program; whether one was too small, also compared to `bound`, what may have been lost.
__device__ __forceinline__ bool write_targets(const SliceProgram& p, const Sequences& s, Here& h, double* row,
                                              double bound) {
    bool small = false;
    for (u32 i = h.unit; i < p.second.n_targets; i += h.units) {
        const Target t = p.targets[p.second.targets + i];
        double total = 0.0;
        for (u32 c = 0; c < t.n; c++) total += answered(p, t, h, c);
        const double inverse = total > 0.0 ? 1.0 / total : 0.0;
        small |= row && !(total >= p.least && bound < MOST_LOST * total);
        if (row)
            for (u32 c = 0; c < t.n; c++) row[t.column + c] = answered(p, t, h, c) * inverse;
    }
    __syncthreads();  // the next program uses the same memory
    return small;
}

// Normalised answers of a program, added to those of other slices; whether one was too small.
__device__ __forceinline__ bool add_targets(const SliceProgram& p, const Sequences& s, Here& h, double bound) {
    bool small = false;
    for (u32 i = h.unit; i < p.second.n_targets; i += h.units) {
        const Target t = p.targets[p.second.targets + i];
        const u32 n_fixed = fixed(p.pool + t.column);
        const u32* pool = p.pool + t.column + 2;
        double* to = s.cells + (u64)fixed(pool - 1) * s.n + h.seq;
        for (u32 a = 0; a < n_fixed; a++, pool += 2)
            to += (u64)fixed(pool + 1) * (u32)code_of(s, h.row, fixed(pool)) * s.n;
        double total = 0.0;
        for (u32 c = 0; c < t.n; c++) total += answered(p, t, h, c);
        small |= !(total >= p.least && bound < MOST_LOST * total);
        const double inverse = total >= p.least ? 1.0 / total : 0.0;  // of less it may be infinite, and 0 times that NaN
        for (u32 c = 0; c < t.n; c++) atomicAdd(to + (u64)fixed(pool + c) * s.n, answered(p, t, h, c) * inverse);
    }
    return small;
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

__device__ __forceinline__ double added(const SliceProgram& p, const Here& h, const u32* sum) {
    double total = 0.0;
#pragma unroll 4
    for (u32 k = 0; k < sum[1]; k++) total += h.arena[p.work + fixed(p.pool + sum[0] + k) * p.lanes + h.lane];
    return total;
}

// Distributions of variables between slices: the message times another one, `with`, (K, n); null: ones. Its sum.
__device__ __forceinline__ double write_between(const SliceProgram& p, const Sequences& s, Here& h, const double* with,
                                                const double* early, double* row) {
    double total = 0.0;
#pragma unroll
    for (u32 j = 0; j < EARLY; j++) {
        const u32 e = h.unit + j * h.units;
        if (e < p.n_entries) {
            double x = h.arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane];
            if (with) x *= early[j];
            h.arena[p.work + e * p.lanes + h.lane] = x;
            total += x;
        }
    }
    for (u32 e = h.unit + EARLY * h.units; e < p.n_entries; e += h.units) {
        double x = h.arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane];
        if (with) x *= read_once(with + (u64)e * s.n + h.seq);
        h.arena[p.work + e * p.lanes + h.lane] = x;
        total += x;
    }
    total = lane_sum(h, total);
    const double inverse = total > 0.0 ? 1.0 / total : 0.0;
    for (u32 i = h.unit; i < p.n_groups; i += h.units) {
        const u32* const sum = p.pool + p.groups + 3 * i;
        h.arena[p.work + sum[2] * p.lanes + h.lane] = added(p, h, sum);
    }
    if (p.n_groups) __syncthreads();
    for (u32 i = h.unit; i < p.n_sums; i += h.units) {
        const u32* const sum = p.pool + p.sums + 3 * i;
        const double x = added(p, h, sum);
        if (row) row[sum[2]] = x * inverse;
    }
    __syncthreads();
    return total;
}

// Whether a number of a message is so small that the next slice may lose products of it.
__device__ __forceinline__ bool is_small(const Sequences& s, double x) { return x > 0.0 && x < s.small; }

// The answer of the program becomes the message, normalised if it is large enough; the sum. It is kept, too, unless
// `to` is null. small: whether a number of this thread is.
__device__ __forceinline__ double take_answer(const SliceProgram& p, const Sequences& s, Here& h, double* to, bool& good,
                                              bool& small) {
    double sum = 0.0;
    small = false;
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units) sum += answered(p, p.answer, h, fixed(p.pool + p.target + e));
    sum = lane_sum(h, sum);
    good = sum >= p.least;
    const double inverse = good ? 1.0 / sum : 0.0;
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units) {
        const double x = answered(p, p.answer, h, fixed(p.pool + p.target + e)) * inverse;
        h.arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane] = x;
        small |= is_small(s, x);
        if (to) to[(u64)e * s.n + h.seq] = x;
    }
    return sum;
}

__device__ __forceinline__ void copy_message(const SliceProgram& p, const Sequences& s, const Here& h, double* to) {
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units)
        to[(u64)e * s.n + h.seq] = h.arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane];
}

// Whether a number of this thread is small.
__device__ __forceinline__ bool read_message(const SliceProgram& p, const Sequences& s, const Here& h) {
    bool small = false;
#pragma unroll 4
    for (u32 e = h.unit; e < p.n_entries; e += h.units) {
        const double x = s.message[(u64)e * s.n + h.seq];
        h.arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane] = x;
        small |= is_small(s, x);
    }
    return small;
}

// Where a thread's distributions of a slice go; null: they are not wanted of its sequence.
__device__ __forceinline__ double* row_of(const Sequences& s, const Here& h, u32 t, int length, bool possible) {
    if (!possible || (int)t >= length || (!s.place && (int)t + 1 != length)) return nullptr;
    return s.cells + ((u64)h.seq * s.n_rows + (s.place ? s.place[t] : 0)) * s.n_out;
}

__device__ __forceinline__ u32 row_at(u32 first, int length, u32 t) {
    return first + ((int)t < length ? t : length ? (u32)length - 1 : 0);
}

// Where the message into a slice is kept; null: it is not.
__device__ __forceinline__ double* kept_at(const Sequences& s, u32 t, u64 size) {
    const u32 slot = (t - s.base) / s.stride;
    return s.n_kept && t >= s.base && (t - s.base) % s.stride == 0 && slot < s.n_kept ? s.kept + slot * size : nullptr;
}

template <bool AHEAD>
__device__ __forceinline__ void pass_slices(const SliceProgram& p, const Sequences& s, double* arena, double* sums) {
    Here h = {arena, sums, threadIdx.x % p.lanes, threadIdx.x / p.lanes, blockDim.x / p.lanes, p.lanes};
    for (u32 i = threadIdx.x; i < p.n_consts; i += blockDim.x) arena[i] = p.consts[i];
    const u64 size = (u64)p.n_entries * s.n;
    for (u32 group = blockIdx.x; group < s.n / p.lanes; group += gridDim.x) {
        h.seq = group * p.lanes + h.lane;
        const int length = s.lengths[h.seq];
        const u32 first = s.first[h.seq];
        double total = s.total[h.seq];
        int exponent = s.exponent[h.seq], failed = s.failed[h.seq], lost = s.lost[h.seq];
        // what this thread's numbers lost: the sum over the units of a lane bounds what all of them did
        double loss = h.unit ? 0.0 : (AHEAD ? s.loss : s.late)[h.seq];
        const double earlier = AHEAD ? 0.0 : s.loss[h.seq];
        __syncthreads();
        bool small = read_message(p, s, h);
        double early[EARLY];
        if (!AHEAD && p.n_sums && s.end > s.begin) read_early(p, s, h, s.kept + (s.end - s.base) * size, early);
        __syncthreads();
        if (AHEAD)
            if (double* const to = kept_at(s, s.begin, size)) copy_message(p, s, h, to);
        for (u32 i = s.begin; i < s.end; i++) {
            const u32 t = AHEAD ? i : s.end - 1 - (i - s.begin);
            h.row = row_at(first, length, t);
            const bool here = s.place ? s.place[t] >= 0 : false;
            if (!AHEAD) {
                if ((int)t + 1 >= length) {
                    for (u32 e = h.unit; e < p.n_entries; e += h.units)
                        arena[p.message + fixed(p.pool + p.source + e) * p.lanes + h.lane] = 1.0;
                    loss = 0.0, small = is_small(s, 1.0);
                }
                __syncthreads();
                if (s.n_later) copy_message(p, s, h, s.later + (t - s.base) * size);
            }
            const bool wanted = s.adds || s.n_out && (s.place ? here : (bool)__syncthreads_or((int)t + 1 == length));
            const double* const before = AHEAD ? nullptr : s.kept + (t - s.base) * size;
            const double lost_here = loss + (small ? TINY * p.n_entries : 0.0);
            const double bound = AHEAD ? 0.0 : earlier + h.units * lost_here;  // of a lane, if its units lost as much
            if (wanted && p.second.n_targets) {
                run_program<true>(p, s, h, before);
                if (s.adds) {
                    if ((int)t < length && failed < 0 && add_targets(p, s, h, bound)) s.lost[h.seq] = 1;
                    __syncthreads();
                } else if (write_targets(p, s, h, row_of(s, h, t, length, failed < 0), bound))
                    lost = 1;
            }
            if (!AHEAD && wanted && p.n_sums) {
                const double product = write_between(p, s, h, before + size, early, row_of(s, h, t, length, failed < 0));
                if ((int)t < length && failed < 0 && !(product >= p.least && bound < MOST_LOST * product)) lost = 1;
            }
            if (!AHEAD && p.n_sums && t > s.begin) read_early(p, s, h, before, early);
            if (AHEAD || t > 0) {
                bool good;
                run_program<false>(p, s, h, nullptr);
                double sum = take_answer(p, s, h, AHEAD ? kept_at(s, t + 1, size) : nullptr, good, small);
                if (lost_here > 0.0 && (int)t < length && failed < 0) loss = good ? lost_here / sum : 1.0;
                if (AHEAD && (int)t < length && failed < 0) {
                    for (u32 r = 0; r < p.n_others; r++) {
                        const double root = answered(p, p.targets[p.others + r], h, 0);
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
            if (AHEAD && wanted && p.n_sums) write_between(p, s, h, nullptr, early, row_of(s, h, t, length, failed < 0));
        }
        copy_message(p, s, h, s.message);
        loss = lane_sum(h, loss);
        if (!AHEAD && lost) s.lost[h.seq] = 1;
        if (h.unit == 0) {
            if (!AHEAD) s.late[h.seq] = loss;
            if (AHEAD && s.count) {
                s.loss[h.seq] = loss;
                if (!(loss < MOST_LOST)) s.lost[h.seq] = 1;
                s.total[h.seq] = total;
                s.exponent[h.seq] = exponent;
                s.failed[h.seq] = failed;
            }
        }
        __syncthreads();
    }
}

#define KERNEL(name, ahead, arena, sums)                                                            \
    extern "C" __global__ void __launch_bounds__(256) slices_##name(SliceProgram p, Sequences s) { \
        pass_slices<ahead>(p, s, arena, sums);                                                      \
    }
// The same message of all sequences, (K, n).
extern "C" __global__ void slices_start(const double* __restrict__ from, double* __restrict__ to, u32 n_entries, u32 n) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (u64)n_entries * n; i += (u64)gridDim.x * blockDim.x)
        to[i] = from[i / n];
}
extern "C" __global__ void slices_added(const double* cells, const double* weights, double* to, u32 n_columns, u32 n) {
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < (u64)n_columns * (n / 32); i += warps) {
        const u32 column = i % n_columns, seq = i / n_columns * 32 + lane;
        double x = cells[(u64)column * n + seq] * weights[seq];
        for (u32 bit = 1; bit < 32; bit <<= 1) x += __shfl_xor_sync(0xffffffffu, x, bit);
        if (lane == 0) to[i] = x;
    }
}
KERNEL(forward_shared, true, slice_memory, slice_memory + p.n_cells)
KERNEL(backward_shared, false, slice_memory, slice_memory + p.n_cells)
KERNEL(forward_global, true, s.arenas + (u64)blockIdx.x * p.n_cells, slice_memory)
KERNEL(backward_global, false, s.arenas + (u64)blockIdx.x * p.n_cells, slice_memory)
