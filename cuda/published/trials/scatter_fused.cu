// Trial: scatter.cu's two phases in one launch. Kernels of the same names and arguments; here scatter_multiply
// divides, too (from = new, other = old), so scatter_divide is never launched and the old table stays unchanged.
//
// Predicted: one launch less per message (about 2 us where launches bound: small tables), against one division per cell
// and a second read of n cells that the caches hold: on large tables, bound by memory, no change.
#include "published/job.cuh"

extern "C" __global__ void __launch_bounds__(1024) scatter_divide(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 j = block_of_job(job) * blockDim.x + threadIdx.x;
    if (j >= job.total) return;
    const real old = job.other[j];
    job.to[j] = old == (real)0 ? (real)0 : job.from[j] / old;
}

// `ways` cells per thread, blockDim.x apart; all reads are in flight before the first is multiplied.
template <unsigned WAYS>
__device__ __forceinline__ void multiply(const Job& job) {
    const u64 first = block_of_job(job) * WAYS * blockDim.x + threadIdx.x;
    index_t at[WAYS];
    real value[WAYS], ratio[WAYS];
#pragma unroll
    for (unsigned w = 0; w < WAYS; ++w) {
        const u64 k = first + (u64)w * blockDim.x;
        at[w] = k < job.total ? job.index[k] : SENTINEL;
        const real old = at[w] == SENTINEL ? (real)0 : job.other[k & (job.n - 1)];
        ratio[w] = old == (real)0 ? (real)0 : job.from[k & (job.n - 1)] / old;
    }
#pragma unroll
    for (unsigned w = 0; w < WAYS; ++w) value[w] = at[w] == SENTINEL ? (real)0 : job.to[at[w]];
#pragma unroll
    for (unsigned w = 0; w < WAYS; ++w) {
        if (at[w] != SENTINEL) job.to[at[w]] = value[w] * ratio[w];
    }
}

extern "C" __global__ void __launch_bounds__(1024) scatter_multiply(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    switch (job.ways) {
        case 1: multiply<1>(job); break;
#if JT_WAYS >= 2
        case 2: multiply<2>(job); break;
#endif
#if JT_WAYS >= 4
        case 4: multiply<4>(job); break;
#endif
#if JT_WAYS >= 8
        case 8: multiply<8>(job); break;
#endif
        default: __trap();
    }
}
