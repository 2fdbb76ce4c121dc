// What the kernels of Markov chains share: random numbers by counter, the exponential function, sums over a warp.
#include "learn/numbers.cuh"

#define ALL 0xffffffffu
#define NEGLIGIBLE -700.0  // logarithm of a share that is never drawn

#ifdef __CUDACC__
extern __shared__ double chain_memory[];
#else
static double chain_memory[1 << 15];
#endif

__device__ __forceinline__ void philox(u64 seed, u64 step, u32 chain, u32 draw, u32* w) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    w[0] = (u32)step;
    w[1] = (u32)(step >> 32);
    w[2] = chain;
    w[3] = draw;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = 0xD2511F53ull * w[0], p1 = 0xCD9E8D57ull * w[2];
        w[0] = (u32)(p1 >> 32) ^ w[1] ^ k0;
        w[1] = (u32)p1;
        w[2] = (u32)(p0 >> 32) ^ w[3] ^ k1;
        w[3] = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

__device__ __forceinline__ double uniform(u32 word) { return (word + 0.5) * 2.3283064365386963e-10; }
__device__ __forceinline__ u32 below(u32 word, u32 n) { return (u32)(((u64)word * n) >> 32); }

// exp(x) for -708 <= x <= 0, as jtgpu/learn/dags/loops/philox.py.
__device__ __forceinline__ double exponential(double x) {
    const int k = (int)(x * 1.4426950408889634);
    const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10 + 0.34657359027997264;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * 0.7071067811865476 * __longlong_as_double((long long)(k + 1023) << 52);
}

__device__ __forceinline__ double sum_of_warp(double x) {
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}

// The sum, or the union, over the lanes below this one; `all` is that of all lanes.
__device__ __forceinline__ double sum_below(double x, double& all) {
    const u32 lane = threadIdx.x % 32;
    double sum = x;
#pragma unroll
    for (u32 by = 1; by < 32; by *= 2) {
        const double y = __shfl_up_sync(ALL, sum, by);
        if (lane >= by) sum += y;
    }
    all = __shfl_sync(ALL, sum, 31);
    const double before = __shfl_up_sync(ALL, sum, 1);
    return lane ? before : 0.0;
}

__device__ __forceinline__ u32 union_below(u32 x, u32& all) {
    const u32 lane = threadIdx.x % 32;
    u32 found = x;
#pragma unroll
    for (u32 by = 1; by < 32; by *= 2) {
        const u32 y = __shfl_up_sync(ALL, found, by);
        if (lane >= by) found |= y;
    }
    all = __shfl_sync(ALL, found, 31);
    const u32 before = __shfl_up_sync(ALL, found, 1);
    return lane ? before : 0;
}
