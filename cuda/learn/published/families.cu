// Scores of a child with the parent sets of one size that a list of variables allows, and sums of such scores.
//
// The published system of 2012: states of 16 bits, variable by variable, rows padded; one kernel for each number of
// parents; sets by their index in the combinatorial number system, so that only ranges of indices go to the device. A
// warp takes a set here, where the published kernels took a work item each.
// jtgpu/published/ordering_gpu.py fills the structs.
#include "learn/numbers.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)

struct Families {
    const u16* rows;          // (n, width): state of each variable in each row; width is a multiple of 16
    const u32* cards;         // (n,)
    const u32* allowed;       // (n_allowed,): the variables that ranks address
    const u64* binomials;     // (n + 1, BINOMIAL_SIZES)
    const u64* products;      // (n_functions,) cells of the tables that use a function, or null
    const double* shapes;     // (n_functions,)
    const double* functions;  // (n_functions, n_tabulated)
    float* scores;            // (end - begin,)
    u64 begin, end;           // ranks of parent sets
    double penalty;
    u32 child, n_allowed, n_rows, width, n_functions, n_tabulated, parent_row, cells;  // cells: of a warp's histogram
};

#ifdef __CUDACC__
extern __shared__ u32 histograms[];
#else
static u32 histograms[1 << 16];
#endif

__device__ __forceinline__ u32 function_of(const Families& f, u64 n_cells) {
    u32 low = 0, high = f.n_functions;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (f.products[middle] <= n_cells) low = middle;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ double evaluate(const Families& f, u32 function, u32 count) {
    if (count < f.n_tabulated) return f.functions[(u64)function * f.n_tabulated + count];
    return count_function(f.shapes[function], count);
}

__device__ __forceinline__ double sum_of_warp(double x) {
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(0xffffffffu, x, bit);
    return x;
}

template <int N_PARENTS>
__device__ __forceinline__ void score(const Families& f) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = f.cards[f.child];
    u32* cells = histograms + (u64)warp * f.cells;
    for (u64 set = f.begin + (u64)blockIdx.x * (blockDim.x / 32) + warp; set < f.end;
         set += (u64)gridDim.x * (blockDim.x / 32)) {
        const u16* parent[N_PARENTS + 1];
        u32 card[N_PARENTS + 1], limit = f.n_allowed, q = 1;
        u64 rank = set;
#pragma unroll
        for (int j = N_PARENTS; j > 0; j--) {
            limit = largest_member(f.binomials, limit, j, rank);
            rank -= f.binomials[limit * BINOMIAL_SIZES + j];
            const u32 v = f.allowed[limit];
            parent[j - 1] = f.rows + (u64)v * f.width;
            card[j - 1] = f.cards[v];
            q *= f.cards[v];
        }
        __syncwarp();
        for (u32 i = lane; i < q * r; i += 32) cells[i] = 0;
        __syncwarp();
        const u16* child = f.rows + (u64)f.child * f.width;
        for (u32 first = 4 * lane; first < f.n_rows; first += 128) {  // four rows at a time
            u32 at[4] = {0, 0, 0, 0};
#pragma unroll
            for (int j = 0; j < N_PARENTS; j++) {
                const uint2 four = *(const uint2*)(parent[j] + first);
                at[0] = at[0] * card[j] + (four.x & 0xffffu);
                at[1] = at[1] * card[j] + (four.x >> 16);
                at[2] = at[2] * card[j] + (four.y & 0xffffu);
                at[3] = at[3] * card[j] + (four.y >> 16);
            }
            const uint2 four = *(const uint2*)(child + first);
            const u32 state[4] = {four.x & 0xffffu, four.x >> 16, four.y & 0xffffu, four.y >> 16};
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                if (first + i < f.n_rows) atomicAdd(&cells[at[i] * r + state[i]], 1u);
        }
        __syncwarp();
        const u32 of_cells = f.products ? function_of(f, (u64)q * r) : 0;
        const u32 of_parents = f.products ? function_of(f, q) : f.parent_row;
        double sum = 0.0;
        for (u32 j = lane; j < q; j += 32) {
            u32 total = 0;
            for (u32 k = 0; k < r; k++) {
                const u32 count = cells[j * r + k];
                total += count;
                sum += evaluate(f, of_cells, count);
            }
            sum -= evaluate(f, of_parents, total);
        }
        sum = sum_of_warp(sum);
        if (lane == 0) f.scores[set - f.begin] = (float)(sum - f.penalty * ((double)q * (r - 1)));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) score_0(GRID_CONSTANT Families f) { score<0>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) score_1(GRID_CONSTANT Families f) { score<1>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) score_2(GRID_CONSTANT Families f) { score<2>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) score_3(GRID_CONSTANT Families f) { score<3>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) score_4(GRID_CONSTANT Families f) { score<4>(f); }

#define CACHED (~0ull)

struct Range {          // 40 bytes: parent sets of one size of a child among its first predecessors in an order
    u64 begin, end;      // ranks
    u64 first;           // where `scored` has the scores of these sets, or CACHED
    u32 child, size, n_predecessors, pad;
};

struct Orders {
    const float* cache;      // the scores of all families, by the published index
    const float* scored;     // scores of sets that the cache does not have
    const u32* order;        // (n,)
    const u64* binomials;
    const Range* ranges;
    double* sums;            // (n_ranges, 2): largest score, sum of exp(score - largest)
    u64* edges;              // (n, n): shares of the sets that contain a variable, multiples of 2^-52
    const double* totals;    // (n,) ln of the sum of each child's sets
    u64 n_sets;              // of a child in the cache
    u32 n, pad;
};

// The score of a set, and its members.
__device__ __forceinline__ double score_of(const Orders& o, const Range& r, u64 set, u32* members) {
    u64 rank = set, first = 0;
    u32 limit = r.n_predecessors;
    for (int j = (int)r.size; j > 0; j--) {
        limit = largest_member(o.binomials, limit, j, rank);
        rank -= o.binomials[limit * BINOMIAL_SIZES + j];
        u32 v = o.order[limit];
        int at = (int)r.size - j;  // sort: ascending
        while (at > 0 && members[at - 1] > v) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = v;
    }
    if (r.first != CACHED) return o.scored[r.first + (set - r.begin)];
    for (u32 l = 0; l < r.size; l++) first += o.binomials[(u64)(o.n - 1) * BINOMIAL_SIZES + l];
    for (u32 l = 0; l < r.size; l++)
        first += o.binomials[(u64)(members[l] - (members[l] > r.child)) * BINOMIAL_SIZES + l + 1];
    return o.cache[r.child * o.n_sets + first];
}

// Add a number with its own scale: (largest, sum) stands for sum * exp(largest).
__device__ __forceinline__ void add_scaled(double& largest, double& sum, double other, double other_sum) {
    if (other_sum == 0.0) return;
    if (sum == 0.0) {
        largest = other;
        sum = other_sum;
    } else if (other > largest) {
        sum = sum * exp(largest - other) + other_sum;
        largest = other;
    } else {
        sum += other_sum * exp(other - largest);
    }
}

// Sum the scores of each range, a block a range.
extern "C" __global__ void __launch_bounds__(THREADS) order_sums(GRID_CONSTANT Orders o) {
    __shared__ double largest[THREADS], sums[THREADS];
    const Range r = o.ranges[blockIdx.x];
    u32 members[BINOMIAL_SIZES];
    double most = 0.0, sum = 0.0;
    for (u64 set = r.begin + threadIdx.x; set < r.end; set += THREADS) {
        const double score = score_of(o, r, set, members);
        if (score != -infinity()) add_scaled(most, sum, score, 1.0);
    }
    largest[threadIdx.x] = most;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 step = THREADS / 2; step; step /= 2) {
        if (threadIdx.x < step)
            add_scaled(largest[threadIdx.x], sums[threadIdx.x], largest[threadIdx.x + step], sums[threadIdx.x + step]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        o.sums[2 * blockIdx.x] = largest[0];
        o.sums[2 * blockIdx.x + 1] = sums[0];
    }
}

// Add the share of each set of a range to the arcs from its members: integers, so that their order does not matter.
extern "C" __global__ void __launch_bounds__(THREADS) order_edges(GRID_CONSTANT Orders o) {
    const Range r = o.ranges[blockIdx.x];
    u32 members[BINOMIAL_SIZES];
    for (u64 set = r.begin + threadIdx.x; set < r.end; set += THREADS) {
        const double score = score_of(o, r, set, members);
        const u64 share = (u64)(exp(score - o.totals[r.child]) * 4503599627370496.0 + 0.5);
        if (share)
            for (u32 l = 0; l < r.size; l++) atomicAdd(&o.edges[(u64)members[l] * o.n + r.child], share);
    }
}
