// Trial: marginalise_m.cu with warp shuffles throughout. Kernels of the same names, arguments and results.
//
// Where n < 32 the 32 values of a warp are halved in registers (__shfl_down_sync) until n are left; the first n lanes
// of every warp put theirs into shared memory, and the first warps halve the T/32 * n values that remain the same
// way. Where n >= 32 no two values of a warp belong to one column, so the work is marginalise_m.cu's. Predicted:
// fewer barriers (two a round, two rounds for n = 1, instead of log2(T/n)), no change for large n, nothing gained
// where the gather's memory traffic bounds the kernel. The report of 2014 considered this and did not build it
// (section 2.1.4).
#include "published/halvings.cuh"

template <unsigned T>
__device__ __forceinline__ void halve(const Job& job, real value) {
    __shared__ real cell[T];
    const unsigned t = threadIdx.x, n = job.n;
    const unsigned warp = T >= 32 ? 0xffffffffu : (1u << (T & 31)) - 1u;
    if (n < 32) {
        unsigned left = T;  // values in the block
        while (true) {      // each round leaves n of 32; the threads of a block agree on `left`
            const unsigned in_warp = left < 32 ? left : 32;
#pragma unroll
            for (unsigned width = 16; width >= 1; width >>= 1) {
                if (width < T && width < in_warp && n <= width) value += __shfl_down_sync(warp, value, width);
            }
            if (left <= 32) break;
            const unsigned lane = t & 31, number = t >> 5;
            if (t < left && lane < n) cell[number * n + lane] = value;
            __syncthreads();
            left = (left >> 5) * n;
            value = t < left ? cell[t] : (real)0;
            __syncthreads();
        }
        if (t < job.n_out) job.to[block_of_job(job) * n + t] = value;
        return;
    }
    cell[t] = value;
    __syncthreads();
#pragma unroll
    for (unsigned width = T / 2; width >= 32; width >>= 1) {
        if (n <= width) {
            if (t < width) cell[t] += cell[t + width];
            __syncthreads();
        }
    }
    if (t < job.n_out) job.to[block_of_job(job) * n + t] = cell[t];
}

template <unsigned T, bool GATHER>
__device__ __forceinline__ void reduce(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 k = block_of_job(job) * T * job.ways + threadIdx.x;
    halve<T>(job, halvings_of_job<GATHER>(job, k, T));
}

#define INSTANCE(T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(T)                                                    \
        marginalise_m_gather_##T(const Job* jobs, const unsigned* map) { reduce<T, true>(jobs, map); } \
    extern "C" __global__ void __launch_bounds__(T)                                                    \
        marginalise_m_partial_##T(const Job* jobs, const unsigned* map) { reduce<T, false>(jobs, map); }

INSTANCE(1)
INSTANCE(2)
INSTANCE(4)
INSTANCE(8)
INSTANCE(16)
INSTANCE(32)
INSTANCE(64)
INSTANCE(128)
INSTANCE(256)
INSTANCE(512)
INSTANCE(1024)
