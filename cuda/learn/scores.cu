// Scores of families in the published order: child by child, parent sets by size and colexicographic rank.
//
// score(v, P) = value(P + v) - value(P) - penalty * parameters. A warp takes a child and the parents but the smallest,
// its lanes the smallest parent, so the scores of a warp are consecutive.
// jtgpu/learn/dags/scores/gpu_device.py repeats the layout of Families.
#include "learn/parent_sets.cuh"

#define THREADS 256

struct Families {
    const double* families;  // values of the sets of n_parents + 1 variables, by rank of their numbers in `number`
    const double* parents;   // (n_values, n_parent_sets)
    const u32* number;       // (n,) number of each variable by ascending number of states
    const u32* cards;        // (n,) in the order of the table
    const u32* parent_row;   // (n,) which value of the parents is subtracted
    const u64* binomials;    // (n + 1, BINOMIAL_SIZES)
    void* scores;            // (children, n_scores)
    u64 n_scores, first, n_parent_sets, n_warps;  // first: of a child's scores, that of this number of parents
    double penalty;
    u32 n, first_child, is_single, pad;  // is_single: scores are float32
};

template <int SIZE>
__device__ __forceinline__ u64 rank_of(const u64* binomials, const u32* members) {  // ascending
    u64 rank = 0;
#pragma unroll
    for (int j = 0; j < SIZE; j++) rank += binomials[members[j] * BINOMIAL_SIZES + j + 1];
    return rank;
}

template <int SIZE>
__device__ __forceinline__ void sort(u32* x) {
#pragma unroll
    for (int i = 1; i < SIZE; i++)
#pragma unroll
        for (int j = SIZE - 1; j >= i; j--)
            if (x[j] < x[j - 1]) {
                const u32 y = x[j];
                x[j] = x[j - 1];
                x[j - 1] = y;
            }
}

template <int N_PARENTS>
__device__ __forceinline__ void fill(const Families& f) {
    const u64 warp = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (warp >= f.n_warps) return;
    const Upper<N_PARENTS> of(f, warp);
    const u32 v = of.v;
    double n_parameters = f.cards[v] - 1;
#pragma unroll
    for (int j = 1; j <= Upper<N_PARENTS>::N; j++) n_parameters *= f.cards[of.variable(of.squeezed[j])];
    const double* below = f.parents + f.parent_row[v] * f.n_parent_sets;
    for (u32 p = threadIdx.x % 32; p < (N_PARENTS ? of.limit : 1); p += 32) {
        u32 parents[N_PARENTS + 1], family[N_PARENTS + 1];
#pragma unroll
        for (int j = 0; j < N_PARENTS; j++) parents[j] = family[j] = f.number[of.variable(j ? of.squeezed[j] : p)];
        family[N_PARENTS] = f.number[v];
        sort<N_PARENTS>(parents);
        sort<N_PARENTS + 1>(family);
        const double value = f.families[rank_of<N_PARENTS + 1>(f.binomials, family)];
        double score = value;
        if (value != -infinity()) {
            const double q = N_PARENTS ? n_parameters * f.cards[of.variable(p)] : n_parameters;
            score = value - below[rank_of<N_PARENTS>(f.binomials, parents)] - f.penalty * q;
        }
        const u64 at = of.child * f.n_scores + of.first + p;
        if (f.is_single) ((float*)f.scores)[at] = (float)score;
        else ((double*)f.scores)[at] = score;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) fill_0(GRID_CONSTANT Families f) { fill<0>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) fill_1(GRID_CONSTANT Families f) { fill<1>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) fill_2(GRID_CONSTANT Families f) { fill<2>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) fill_3(GRID_CONSTANT Families f) { fill<3>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) fill_4(GRID_CONSTANT Families f) { fill<4>(f); }
extern "C" __global__ void __launch_bounds__(THREADS) fill_5(GRID_CONSTANT Families f) { fill<5>(f); }
