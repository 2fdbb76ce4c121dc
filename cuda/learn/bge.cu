// BGe scores of families of numbers, in the published order: child by child, parent sets by size and rank.
//
// The last pivot of L D L' of a family's sums of products, the child last, is the child's residual sum of squares:
// score = constant - of_child ln(last pivot) - ln(product of the other pivots) / 2. A warp takes a child and the parents
// but the smallest, whose pivots are the same in all lanes; its lanes take the smallest parent, so that they eliminate
// two rows of at most 6 numbers in registers, and the scores of a warp are consecutive. Bound by two logarithms a score.
// jtgpu/learn/dags/scores/gpu_numbers.py repeats the layout of Families.
#include "learn/parent_sets.cuh"

#define THREADS 256

struct Families {
    const double* sums;       // (n, n) sums of products with the prior's
    const u64* binomials;     // (n + 1, BINOMIAL_SIZES)
    double* scores;           // (children, n_scores)
    u64 n_scores, first, n_warps;  // first: of a child's scores, that of this number of parents
    double constant, of_child;
    u32 n, first_child;
};

// Entries of a row below n pivots, before these divide them; l: those of the pivots' rows, divided.
__device__ __forceinline__ void eliminate(int n, const double* row, const u32* members, const double (*l)[6], double* c) {
#pragma unroll
    for (int j = 0; j < n; j++) {
        c[j] = row[members[j]];
#pragma unroll
        for (int k = 0; k < j; k++) c[j] -= l[j][k] * c[k];
    }
}

template <int N_PARENTS>
__device__ __forceinline__ void score(const Families& f) {
    const u64 warp = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (warp >= f.n_warps) return;
    const Upper<N_PARENTS> of(f, warp);
    const int N_UPPER = Upper<N_PARENTS>::N;
    const u32 v = of.v;
    u32 upper[N_UPPER + 1];
    double l[6][6], inverse[6], product = 1.0;
#pragma unroll
    for (int i = 0; i < N_UPPER; i++) upper[i] = of.variable(of.squeezed[N_UPPER - i]);
#pragma unroll
    for (int i = 0; i < N_UPPER; i++) {
        const double* row = f.sums + (u64)upper[i] * f.n;
        double c[6], pivot = row[upper[i]];
        eliminate(i, row, upper, l, c);
#pragma unroll
        for (int j = 0; j < i; j++) {
            l[i][j] = c[j] * inverse[j];
            pivot -= l[i][j] * c[j];
        }
        product *= pivot;
        inverse[i] = 1.0 / pivot;
    }
    const double* of_child = f.sums + (u64)v * f.n;
    double c[6], residual = of_child[v];
    eliminate(N_UPPER, of_child, upper, l, c);
#pragma unroll
    for (int j = 0; j < N_UPPER; j++) residual -= c[j] * c[j] * inverse[j];
    for (u32 p = threadIdx.x % 32; p < (N_PARENTS ? of.limit : 1); p += 32) {
        double last = residual, others = product;
        if (N_PARENTS) {
            const u32 parent = of.variable(p);
            const double* row = f.sums + (u64)parent * f.n;
            double d[6], pivot = row[parent], cross = row[v];
            eliminate(N_UPPER, row, upper, l, d);
#pragma unroll
            for (int j = 0; j < N_UPPER; j++) {
                const double q = d[j] * inverse[j];
                pivot -= q * d[j];
                cross -= q * c[j];
            }
            last -= cross * cross / pivot;
            others *= pivot;
        }
        double s = f.constant - f.of_child * log(last);
        if (N_PARENTS) s -= 0.5 * log(others);
        f.scores[of.child * f.n_scores + of.first + p] = s;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) bge_0(GRID_CONSTANT Families f) { score<0>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) bge_1(GRID_CONSTANT Families f) { score<1>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) bge_2(GRID_CONSTANT Families f) { score<2>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) bge_3(GRID_CONSTANT Families f) { score<3>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) bge_4(GRID_CONSTANT Families f) { score<4>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) bge_5(GRID_CONSTANT Families f) { score<5>(f); }
