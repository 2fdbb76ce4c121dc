// PolyBench's durbin as Bianco, Burchiellaro and Uguzzoni published it for CUDA: two kernels a step, one thread a product.
//
// Step k: beta -= alpha^2 beta, sum = r[k] + sum_{i<k} r[k-1-i] y[i], alpha = -sum beta, y'[i] = y[i] + alpha y[k-1-i],
// y'[k] = alpha. The first kernel adds up products, the second updates y; the host exchanges the rows.
//
// Fixed: every thread of every block wrote sum and beta, while others read them; blocks added to the sum in any order,
// by atomicAdd (here each writes its own, and the second kernel adds them up in order); the host took the wrong row for
// odd N. `durbin_first_tree` is published, `durbin_first_warp` and `durbin_second_paired` are the authors' further work:
// sums by warps, and each entry of y read once in place of twice.
#include "common/types.cuh"

#define THREADS 256

struct Durbin {
    const real* r;
    const real *old;
    real* now;
    real* sums;       // of the first kernel's blocks
    real* state;      // alpha and beta after even steps, then after odd ones
    u32 k;
};

__device__ __forceinline__ real product(const Durbin& d) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    return i < d.k ? d.r[d.k - 1 - i] * d.old[i] : (real)0;
}

extern "C" __global__ void __launch_bounds__(THREADS) durbin_first_tree(Durbin d) {
    __shared__ real cell[THREADS];
    const u32 t = threadIdx.x;
    cell[t] = product(d);
    for (u32 half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half) cell[t] += cell[t + half];
    }
    if (t == 0) d.sums[blockIdx.x] = cell[0];
}

extern "C" __global__ void __launch_bounds__(THREADS) durbin_first_warp(Durbin d) {
    __shared__ real cell[THREADS / 32];
    real x = product(d);
    for (u32 by = 16; by; by /= 2) x += __shfl_down_sync(0xffffffffu, x, by);
    if (threadIdx.x % 32 == 0) cell[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        real all = cell[0];
        for (u32 w = 1; w < THREADS / 32; w++) all += cell[w];
        d.sums[blockIdx.x] = all;
    }
}

// Alpha of step k; the first block keeps it, and beta, for the next step.
__device__ __forceinline__ real alpha_of(const Durbin& d) {
    const real* before = d.state + 2 * ((d.k - 1) % 2);
    real beta = before[1], sum = d.r[d.k];
    beta -= before[0] * before[0] * beta;
    for (u32 b = 0; b < (d.k + THREADS - 1) / THREADS; b++) sum += d.sums[b];
    const real alpha = -sum * beta;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        d.state[2 * (d.k % 2)] = alpha;
        d.state[2 * (d.k % 2) + 1] = beta;
        d.now[d.k] = alpha;
    }
    return alpha;
}

extern "C" __global__ void __launch_bounds__(THREADS) durbin_second(Durbin d) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    const real alpha = alpha_of(d);
    if (i < d.k) d.now[i] = d.old[i] + alpha * d.old[d.k - 1 - i];
}

// A thread has both entries of a pair.
extern "C" __global__ void __launch_bounds__(THREADS) durbin_second_paired(Durbin d) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    const real alpha = alpha_of(d);
    if (2 * i >= d.k) return;
    const u32 j = d.k - 1 - i;
    const real x = d.old[i], y = d.old[j];
    d.now[i] = x + alpha * y;
    d.now[j] = y + alpha * x;
}
