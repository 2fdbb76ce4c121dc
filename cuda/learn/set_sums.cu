// Sums and maxima over the subsets, or supersets, of every set (zeta transforms), of tables of logarithms.
//
// A launch takes some bits of the sets. A block loads the cells that differ in these bits, and in the lowest ones so that
// it reads 128 bytes at a time, and adds them in shared memory as mantissas and exponents, two bits at a time.
// jtgpu/learn/dags/gpu_exact_orders.py fills the structs.
#include "learn/wide.cuh"

#define THREADS 256

struct SetSums {
    double* tables;       // (n_tables, 2**k), updated
    u32 k, first, width;  // bits first to first + width - 1 are summed
    u32 low;              // lowest bits that a block has as well, at most `first`
    u32 is_superset, pad;
};

struct Weights {
    double* tables;             // (n, 2**k), or (n, n, 2**n) if of_members
    const double* log_weights;  // (n, n_sets)
    const long long* masks;     // (n_sets,) parent sets as squeezed bits
    u64 n_cells;                // of the tables
    u32 n, k, n_sets, of_members;
};

struct Cells {  // of a block, in shared memory
    double* m;
    int* e;

    __device__ __forceinline__ Wide get(u32 i) const { return {m[i], e[i]}; }
    __device__ __forceinline__ void put(u32 i, Wide x) const {
        m[i] = x.m;
        e[i] = x.e;
    }
};

__device__ __forceinline__ u64 base_of(const SetSums& s, u32 bits) {
    const u32 rest_bits = s.k - bits, between = s.first - s.low;
    const u64 table = blockIdx.x >> rest_bits, rest = blockIdx.x & ((1u << rest_bits) - 1);
    return (table << s.k) + ((rest >> between) << (s.first + s.width)) + ((rest & ((1u << between) - 1)) << s.low);
}

__device__ __forceinline__ u64 cell_of(const SetSums& s, u32 i) {
    return ((u64)(i >> s.low) << s.first) + (i & ((1u << s.low) - 1));
}

// Number p with a zero inserted at a bit.
__device__ __forceinline__ u32 with_zero(u32 p, u32 bit) { return (p >> bit) << (bit + 1) | (p & ((1u << bit) - 1)); }

extern "C" __global__ void __launch_bounds__(THREADS) sum_sets(GRID_CONSTANT SetSums s) {
    const u32 bits = s.width + s.low, size = 1u << bits, end = s.low + s.width;
    const Cells cells = {exact_memory, (int*)(exact_memory + size)};
    double* table = s.tables + base_of(s, bits);
    for (u32 i = threadIdx.x; i < size; i += THREADS) cells.put(i, split(table[cell_of(s, i)]));
    u32 b = s.low;
    for (; b + 1 < end; b += 2) {  // two bits
        __syncthreads();
        for (u32 p = threadIdx.x; p < size / 4; p += THREADS) {
            const u32 i = with_zero(with_zero(p, b), b + 1), flip = s.is_superset ? 3u << b : 0;
            const u32 at_one = (i | 1u << b) ^ flip, at_two = (i | 2u << b) ^ flip, at_both = (i | 3u << b) ^ flip;
            const Wide none = cells.get(i ^ flip);
            Wide one = cells.get(at_one), two = cells.get(at_two), both = cells.get(at_both);
            add(both, two);
            add(one, none);
            add(two, none);
            add(both, one);
            cells.put(at_one, one);
            cells.put(at_two, two);
            cells.put(at_both, both);
        }
    }
    if (b < end) {
        __syncthreads();
        for (u32 p = threadIdx.x; p < size / 2; p += THREADS) {
            const u32 i = with_zero(p, b), from = s.is_superset ? i | 1u << b : i, to = from ^ 1u << b;
            Wide x = cells.get(to);
            add(x, cells.get(from));
            cells.put(to, x);
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += THREADS) table[cell_of(s, i)] = log_of(cells.get(i));
}

extern "C" __global__ void __launch_bounds__(THREADS) max_sets(GRID_CONSTANT SetSums s) {
    const u32 bits = s.width + s.low, size = 1u << bits;
    double* cells = exact_memory;
    double* table = s.tables + base_of(s, bits);
    for (u32 i = threadIdx.x; i < size; i += THREADS) cells[i] = table[cell_of(s, i)];
    for (u32 b = s.low; b < bits; b++) {
        __syncthreads();
        for (u32 p = threadIdx.x; p < size / 2; p += THREADS) {
            const u32 i = with_zero(p, b), to = i | 1u << b;
            if (cells[i] > cells[to]) cells[to] = cells[i];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += THREADS) table[cell_of(s, i)] = cells[i];
}

// Weights of 0.
extern "C" __global__ void __launch_bounds__(THREADS) clear_sets(GRID_CONSTANT Weights w) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < w.n_cells; i += (u64)gridDim.x * THREADS)
        w.tables[i] = -infinity();
}

// The weight of every parent set in its cell; of_members: in the tables of its members.
extern "C" __global__ void __launch_bounds__(THREADS) place_sets(GRID_CONSTANT Weights w) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (u64)w.n * w.n_sets) return;
    const u32 v = (u32)(at / w.n_sets), mask = (u32)w.masks[at % w.n_sets];
    if (!w.of_members) {
        w.tables[((u64)v << w.k) + mask] = w.log_weights[at];
        return;
    }
    const u32 parents = expanded(mask, v);
    for (u32 u = 0; u < w.n; u++)
        if (parents >> u & 1) w.tables[((u64)(v * w.n + u) << w.k) + parents] = w.log_weights[at];
}
