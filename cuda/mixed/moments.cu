// Sums of z z' over the rows of a table of numbers, z = (1, the row less a shift): one pass, for regressions.
//
//   moments_rows    a block takes a range of rows, a tile of them at a time in shared memory, a thread some pairs
//   moments_fold    adds the sums of the ranges in their order
//
// The ranges are the same on every GPU, and nothing is added atomically: the sums have the same bits in every run.
// Bound by the reads of shared memory, two for each product; the table is read once for 1,024 pairs, 43 columns.
// jtgpu/mixed/gpu_fit.py repeats the layout.
typedef unsigned int u32;
typedef unsigned long long u64;
#define THREADS 256
#define PAIRS 4  // of a thread

#ifdef __CUDACC__
extern __shared__ double tile[];  // (tile_rows, n_columns + 1)
#else
static double tile[1 << 13];
#endif

struct Rows {
    const u64* columns;    // (n_columns, 2) address of a column of float64 or float32, bytes from row to row
    const double* shift;   // (n_columns,)
    double* partial;       // (n_ranges, n_pairs)
    double* sums;          // (n_pairs,) of columns i <= j, j by j
    u64 n;
    u32 n_columns, n_ranges, n_pairs, n_parts, tile_rows, is_single, is_dense, pad;  // is_dense: columns are contiguous
};

extern "C" __global__ void __launch_bounds__(THREADS) moments_rows(const Rows t) {
    const u32 range = blockIdx.x / t.n_parts, part = blockIdx.x % t.n_parts, width = t.n_columns + 1;
    const u64 first = t.n * range / t.n_ranges, last = t.n * (range + 1) / t.n_ranges;
    u32 one[PAIRS], other[PAIRS], n_own = 0;
    double sum[PAIRS];
#pragma unroll
    for (u32 k = 0; k < PAIRS; k++) {
        const u32 pair = (part * PAIRS + k) * THREADS + threadIdx.x;
        u32 j = 0;
        while ((j + 1) * (j + 2) / 2 <= pair && j + 1 < width) j++;
        const bool has = pair < t.n_pairs;
        one[k] = has ? pair - j * (j + 1) / 2 : 0, other[k] = has ? j : 0, sum[k] = 0.0;
        n_own = (part * PAIRS + k) * THREADS < t.n_pairs ? k + 1 : n_own;  // the same in the whole block
    }
    for (u64 at = first; at < last; at += t.tile_rows) {
        const u32 n = last - at < t.tile_rows ? (u32)(last - at) : t.tile_rows;
        __syncthreads();
        for (u32 i = threadIdx.x; i < n * width; i += THREADS) {
            const u32 row = t.is_dense ? i % n : i / width, column = t.is_dense ? i / n : i % width;
            double x = 1.0;
            if (column) {
                const u64 cell = t.columns[2 * column - 2] + (at + row) * t.columns[2 * column - 1];
                x = (t.is_single ? (double)*(const float*)cell : *(const double*)cell) - t.shift[column - 1];
            }
            tile[row * width + column] = x;
        }
        __syncthreads();
        for (u32 row = 0; row < n; row++) {
#pragma unroll
            for (u32 k = 0; k < PAIRS; k++)
                if (k < n_own) sum[k] += tile[row * width + one[k]] * tile[row * width + other[k]];
        }
    }
#pragma unroll
    for (u32 k = 0; k < PAIRS; k++) {
        const u32 pair = (part * PAIRS + k) * THREADS + threadIdx.x;
        if (pair < t.n_pairs) t.partial[(u64)range * t.n_pairs + pair] = sum[k];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) moments_fold(const Rows t) {
    const u32 pair = blockIdx.x * THREADS + threadIdx.x;
    if (pair >= t.n_pairs) return;
    double sum = 0.0;
    for (u32 range = 0; range < t.n_ranges; range++) sum += t.partial[(u64)range * t.n_pairs + pair];
    t.sums[pair] = sum;
}
