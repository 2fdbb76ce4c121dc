// Adds WAYS cells of a table, `stride` apart, pairwise: first half plus second half, until one is left. All WAYS reads
// are in flight before the first addition. The order of additions is the same as in launches of two cells per thread.
#include "published/job.cuh"

template <unsigned WAYS, bool GATHER>
__device__ __forceinline__ real halvings(const Job& job, u64 k, u64 stride) {
    real value[WAYS];
#pragma unroll
    for (unsigned w = 0; w < WAYS; ++w) value[w] = GATHER ? gather(job, k + w * stride) : in_order(job, k + w * stride);
#pragma unroll
    for (unsigned width = WAYS / 2; width >= 1; width >>= 1) {
#pragma unroll
        for (unsigned w = 0; w < width; ++w) value[w] += value[w + width];
    }
    return value[0];
}

// The same for the job's number of ways.
template <bool GATHER>
__device__ __forceinline__ real halvings_of_job(const Job& job, u64 k, u64 stride) {
    switch (job.ways) {
        case 1: return halvings<1, GATHER>(job, k, stride);
        case 2: return halvings<2, GATHER>(job, k, stride);
#if JT_WAYS >= 4
        case 4: return halvings<4, GATHER>(job, k, stride);
#endif
#if JT_WAYS >= 8
        case 8: return halvings<8, GATHER>(job, k, stride);
#endif
#if JT_WAYS >= 16
        case 16: return halvings<16, GATHER>(job, k, stride);
#endif
        default: __trap(); return (real)0;
    }
}
