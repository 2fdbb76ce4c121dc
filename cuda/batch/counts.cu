// Expected counts of a table of cases: the distributions of all families, weighted and summed over the cases.
//
//   count_codes      states of 1, 2, 4 or 8 bytes, as rows, into case-minor order; weights of states likewise
//   count_families   by records (batch.cu): a warp sums up to eight cells of a family over a block of cases, lanes the
//                    cases: factor times derivative times weight / P(e)
//   count_columns    generated kernels (lane.cuh) have written these products: a warp sums one cell over a block
//   count_score      ln P(e), summed with the weights, and the numbers of impossible and of lost cases
//   count_fold       sums of blocks, added in their order
//   count_finish     answers that stay on the device (jtgpu/backends/gpu/batch/on_device.py)
//
// A block of cases is the same rows of the table whatever the memory and the number of GPUs, and all sums have a fixed
// order, without atomics: the counts are bit-identical from run to run. Bound by memory: `count_families` reads two
// numbers a cell and case, `count_columns` one, which is little compared to the contractions themselves.
#include "batch/batch.cuh"

struct Codes {
    const void* codes;        // (n, V) signed integers of `width` bytes, -1: not observed
    const double* weights;    // (n, n_weights)
    int* state;               // (V, n_cases)
    double* weight;           // (n_weights, n_cases)
    const u32* card;          // (V,) numbers of states, or null: nothing is checked
    u32* bad;                 // set to 1 if a state is neither -1 nor below its variable's number of states
    u32 n, n_cases, n_variables, n_weights, width, pad;
};

#define T_SHARED 1u
#define D_SHARED 2u
#define NO_D 4u

struct Cells {                // up to eight cells of a family, 128 bytes
    u32 table_t, table_d, kind, root, n, pad;
    u32 t[8], d[8], out[8];
    u32 more[2];
};

struct Counting {
    const Cells* cells;
    const double* columns;    // (n_out, n_cases) products of generated kernels, weighted
    const double* of_case;    // (n,) weights of the cases
    const double* log_scale;  // (n,) what is added to ln P(e), or null
    double* log_evidence;     // (n_cases,) -inf: impossible, NaN: lost, or out of a double's range
    double* partial;          // (blocks, n_out + 3)
    double least;             // ln P(e) below which a case is lost: its counts may be wrong
    u32 n, n_cases, n_out, n_cells, block, pad;
};

template <class T>
__device__ __forceinline__ void transpose_codes(const Codes& c, u32 row, u32 column) {
    __shared__ int tile[32][33];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const T* const codes = (const T*)c.codes;
    for (u32 i = warp; i < 32; i += 8)
        if (column + lane < c.n_variables) {
            T code = row + i < c.n ? codes[(u64)(row + i) * c.n_variables + column + lane] : T(-1);
            if (c.card && code != T(-1) && (code < T(0) || (u64)code >= c.card[column + lane])) *c.bad = 1, code = T(-1);
            tile[i][lane] = (int)code;
        }
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8)
        if (column + i < c.n_variables) c.state[(u64)(column + i) * c.n_cases + row + lane] = tile[lane][i];
}

__device__ __forceinline__ void transpose_weights(const Codes& c, u32 row, u32 column) {
    __shared__ double tile[32][33];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 i = warp; i < 32; i += 8)
        if (column + lane < c.n_weights)
            tile[i][lane] = row + i < c.n ? c.weights[(u64)(row + i) * c.n_weights + column + lane] : 1.0;
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8)
        if (column + i < c.n_weights) c.weight[(u64)(column + i) * c.n_cases + row + lane] = tile[lane][i];
}

// A block of threads a tile of 32 x 32; n_cases is a multiple of 32.
extern "C" __global__ void __launch_bounds__(256) count_codes(Codes c) {
    const u32 of_states = (c.n_variables + 31) / 32, wide = of_states + (c.n_weights + 31) / 32;
    const u32 what = blockIdx.x % wide, row = blockIdx.x / wide * 32;
    if (what >= of_states) transpose_weights(c, row, 32 * (what - of_states));
    else if (c.width == 1) transpose_codes<signed char>(c, row, 32 * what);
    else if (c.width == 2) transpose_codes<short>(c, row, 32 * what);
    else if (c.width == 4) transpose_codes<int>(c, row, 32 * what);
    else transpose_codes<long long>(c, row, 32 * what);
}

__device__ __forceinline__ int clamped(int e) { return e > 1000 ? 1000 : e < -1000 ? -1000 : e; }

__device__ __forceinline__ double warp_sum(double x) {
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(0xffffffffu, x, bit);
    return x;
}

extern "C" __global__ void __launch_bounds__(256) count_families(Batch b, Counting c) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    const u32 block = warp / c.n_cells, groups = c.n_cases / 32, first = block * (c.block / 32);
    if (first >= groups) return;
    const u32 last = first + c.block / 32 < groups ? first + c.block / 32 : groups;
    const Cells& f = c.cells[warp % c.n_cells];
    const u32 kind = f.kind, n = f.n;
    const u32 log_t = kind & T_SHARED ? 0 : 5, log_d = kind & D_SHARED ? 0 : 5;
    const u32 root = b.roots[3 * f.root], root_table = b.roots[3 * f.root + 1];
    const bool root_shared = b.roots[3 * f.root + 2] != 0;
    double sum[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum[i] = 0.0;
    for (u32 k = first; k < last; k++) {
        const Group g = group_of(b, k, lane);
        const u32 at = k * 32 + lane;
        const double p = root_shared ? b.shared[root] : g.cells[(u64)root * 32];
        double scale = 0.0, by_t = 0.0, by_d = 0.0;
        if (at < c.n && p > 0.0 && c.log_evidence[at] > -INFINITY && c.log_evidence[at] >= c.least) {
            const int of_root = root_shared ? b.shared_slots[root_table].exponent : g.slots[(u64)root_table * 32].exponent;
            const int of_t = kind & T_SHARED ? b.shared_slots[f.table_t].exponent : g.slots[(u64)f.table_t * 32].exponent;
            const int of_d = kind & NO_D       ? 0
                             : kind & D_SHARED ? b.shared_slots[f.table_d].exponent
                                               : g.slots[(u64)f.table_d * 32].exponent;
            const int e = of_t + of_d - of_root, half = e / 2;
            scale = c.of_case[at] / p;
            by_t = power_of_two<double>(clamped(half));
            by_d = power_of_two<double>(clamped(e - half));
        }
        const real* const from_t = kind & T_SHARED ? b.shared : g.cells;
        const real* const from_d = kind & D_SHARED ? b.shared : g.cells;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if (i >= n) break;
            const double t = from_t[(u64)f.t[i] << log_t] * by_t;
            const double d = kind & NO_D ? by_d : from_d[(u64)f.d[i] << log_d] * by_d;
            sum[i] += t * d * scale;
        }
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        if (i >= n) break;
        const double all = warp_sum(sum[i]);
        if (lane == 0) c.partial[(u64)block * (c.n_out + 3) + f.out[i]] = all;
    }
}

extern "C" __global__ void __launch_bounds__(256) count_columns(Counting c) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    const u32 blocks = (c.n_cases + c.block - 1) / c.block, block = warp % blocks, cell = warp / blocks;
    if (cell >= c.n_out) return;
    const u32 end = (block + 1) * c.block < c.n_cases ? (block + 1) * c.block : c.n_cases;
    const double* const column = c.columns + (u64)cell * c.n_cases;
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (u32 at = block * c.block + lane; at < end; at += 128)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (at + 32 * i < end) sum[i] += column[at + 32 * i];
    const double all = warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (lane == 0) c.partial[(u64)block * (c.n_out + 3) + cell] = all;
}

// A warp a block of cases.
extern "C" __global__ void __launch_bounds__(256) count_score(Counting c) {
    const u32 block = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (block * c.block >= c.n_cases) return;
    const u32 end = (block + 1) * c.block < c.n ? (block + 1) * c.block : c.n;
    double score = 0.0, impossible = 0.0, lost = 0.0;
    for (u32 at = block * c.block + lane; at < end; at += 32) {
        double x = c.log_evidence[at];
        if (x != x || x < c.least) c.log_evidence[at] = NAN, lost += 1.0;
        else if (!(x > -INFINITY)) impossible += 1.0;
        else {
            if (c.log_scale) c.log_evidence[at] = x = x + c.log_scale[at];
            score += c.of_case[at] * x;
        }
    }
    score = warp_sum(score), impossible = warp_sum(impossible), lost = warp_sum(lost);
    if (lane) return;
    double* const out = c.partial + (u64)block * (c.n_out + 3) + c.n_out;
    out[0] = score, out[1] = impossible, out[2] = lost;
}

struct Finish {
    double* log_evidence;     // (n,)
    const double* log_scale;  // (n,) ln of the powers of two that were taken out of weights, or null
    double* rows;             // (n, n_out) posteriors
    u32* lost;                // set to 1 if ln P(e) of a case is below `least`
    double least;
    u32 n, n_out;
};

// Answers that stay on the device: ln P(e) with the weights' scales, and zeros for impossible cases.
extern "C" __global__ void __launch_bounds__(256) count_finish(Finish f) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= f.n) return;
    const double x = f.log_evidence[at];
    if (!(x >= f.least)) *f.lost = 1;
    if (x > -INFINITY) {
        if (f.log_scale) f.log_evidence[at] = x + f.log_scale[at];
        return;
    }
    for (u32 i = 0; i < f.n_out; i++) f.rows[(u64)at * f.n_out + i] = 0.0;
}

extern "C" __global__ void __launch_bounds__(128) count_fold(const double* partial, double* total, u32 n_blocks, u32 width, u32 is_first) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= width) return;
    double sum = is_first ? 0.0 : total[at];
#pragma unroll 4
    for (u32 i = 0; i < n_blocks; i++) sum += partial[(u64)i * width + at];
    total[at] = sum;
}
