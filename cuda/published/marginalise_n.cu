// Marginalisation parallel over n: to[j] = sum over i of from[index[i*n + j]], for separators of many configurations.
//
// Source of the method: A. Gottoli, F. Pettenuzzo (2014), section 2.2.
//
// Threads to work, ways = 2 (the published kernel): thread k of n*m/2 adds cells k and k + n*m/2 and writes the sum
// to k, so rows i and i + m/2 are merged and m is halved. gather reads through the index table, partial reads the
// sums of the previous launch in order; partial is launched until one row of n is left. No shared memory and no
// barrier: a launch is the global synchronisation. (A single kernel with a global barrier deadlocks if there are more
// blocks than fit on the device.) partial may work in place: thread k alone reads and writes cell k, and no thread
// writes to the second half. ways = 4, 8, 16 (ours): one launch does two to four halvings, in registers and in the
// same order of additions, so the sums are the same bit for bit, with a half to a quarter of the launches and of the
// partial sums' traffic. ways = 1 copies (m = 1: the separator is the clique, in another order).
//
// Wins: n large, m small, every access coalesced. Loses: m large, where the first sums alone are n*m/2 cells of
// traffic and log2(m) launches follow; n < 512 uses marginalise_m instead.
#include "published/halvings.cuh"

template <bool GATHER>
__device__ __forceinline__ void reduce(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 k = block_of_job(job) * blockDim.x + threadIdx.x;
    const u64 stride = job.total / job.ways;  // cells that are left after this launch
    if (k >= stride || (k & (job.n - 1)) >= job.n_out) return;
    job.to[k] = halvings_of_job<GATHER>(job, k, stride);
}

extern "C" __global__ void __launch_bounds__(1024) marginalise_n_gather(const Job* jobs, const unsigned* map) {
    reduce<true>(jobs, map);
}

extern "C" __global__ void __launch_bounds__(1024) marginalise_n_partial(const Job* jobs, const unsigned* map) {
    reduce<false>(jobs, map);
}
