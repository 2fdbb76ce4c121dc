// Marginalisation parallel over m: to[j] = sum over i of from[index[i*n + j]], for separators of few configurations.
//
// Source of the method: A. Gottoli, F. Pettenuzzo (2014), section 2.1, after Zheng, Mengshoel, Chong (UAI 2011).
//
// Threads to work. A block of T threads takes 2T neighbouring cells of the (m, n) index table: thread t reads cells
// t and t + T of the tile. n and T are powers of two with n <= T, so both cells belong to column t & (n-1), and so
// do any two that are a multiple of n apart.
// Phase 1 (gather): the two cells are read through the index table, added, and put into shared memory; then the
// active threads are halved (cell t += cell t + width) until n sums are left, which go out at block * n.
// Phase 2 (partial): the same over phase 1's sums, which are in order, without an index table; launched until
// one block is left, whose n sums are the separator's table (padding columns are dropped).
// Between warps the halving is ordered by __syncthreads(); in the last warp by __syncwarp(). The published kernel
// relied on lock-step warps and on `volatile`, which is a data race since Volta.
// T is a template parameter, so that the halving is unrolled; n is the same for a whole block, so its tests do not
// diverge. Host code picks the instance: block size T where the table has 2T cells or more, else the power of two
// that leaves one block, and never less than n.
//
// ways = 4, 8, 16 (ours): a block takes ways * T cells, a thread `ways` of them, T apart, all read before the
// first addition: more reads in flight, since a gather is bound by latency (each of job, index, table depends on the
// read before).
//
// Wins: n small, m large, which is a classical reduction when n = 1. Loses: n near T, where a block reduces its data
// only from 2T cells to n and phase 2 has much work left; n >= 512 uses marginalise_n instead.
// Variant: trials/marginalise_m_shuffle.cu (no shared memory inside a warp). Times: README.rst.
#include "published/halvings.cuh"

template <unsigned T>
__device__ __forceinline__ void halve(const Job& job, real value) {
    __shared__ real cell[T];
    const unsigned t = threadIdx.x, n = job.n;
    cell[t] = value;
    __syncthreads();
#pragma unroll
    for (unsigned width = T / 2; width >= 32; width >>= 1) {
        if (n <= width) {  // the same for the whole block
            if (t < width) cell[t] += cell[t + width];
            __syncthreads();
        }
    }
    if (t < 32) {
        const unsigned warp = T >= 32 ? 0xffffffffu : (1u << (T & 31)) - 1u;
#pragma unroll
        for (unsigned width = T / 2 < 16 ? T / 2 : 16; width >= 1; width >>= 1) {
            if (n <= width) {
                const real more = t < width ? cell[t + width] : (real)0;
                __syncwarp(warp);
                if (t < width) cell[t] += more;
                __syncwarp(warp);
            }
        }
    }
    // When n >= 32 the last __syncthreads() orders these reads, else thread t < n <= 16 reads what it wrote itself.
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
