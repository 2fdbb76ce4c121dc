// Normalisation: scale a table so that it sums to 1, and record the sum. Replaces cuBLAS's asum and scal.
//
// Phase 1 (normalise_sum): `ways` blocks per table; block b adds cells b*256 + t, b*256 + t + ways*256, ... in double,
//     reduces its 256 sums in shared memory to one partial sum.
// Phase 2 (normalise_scale): every block adds the table's `ways` partial sums, all in the same order, so all get the
//     same total bit for bit, and divides its cells by it; the table's first block writes the total to *sum.
//     A total of 1, or of 0 (impossible evidence), leaves the table unchanged; the host checks for 0.
// Deterministic: no atomics, and the number of blocks depends on the table's size alone.
//
// Against cuBLAS: two launches and no wait, whereas asum returns its result to the host and so synchronises the stream
// for every message. Memory bound: 24 bytes per cell.
//     from = to = the table, total = its cells, n = blocks of normalise_scale, ways = blocks of normalise_sum,
//     sum = address of the total; the partial sums follow n_out doubles later.
#include "published/job.cuh"

#define THREADS 256

// Sum of one value per thread; every thread of the block gets it.
__device__ __forceinline__ double block_sum(double value) {
    __shared__ double cell[THREADS];
    const unsigned t = threadIdx.x;
    cell[t] = value;
    __syncthreads();
#pragma unroll
    for (unsigned width = THREADS / 2; width >= 1; width >>= 1) {
        if (t < width) cell[t] += cell[t + width];
        __syncthreads();
    }
    return cell[0];
}

extern "C" __global__ void __launch_bounds__(THREADS) normalise_sum(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 block = block_of_job(job);
    double sum = 0;
    for (u64 k = block * THREADS + threadIdx.x; k < job.total; k += (u64)job.ways * THREADS) sum += (double)job.from[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) job.sum[job.n_out + block] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) normalise_scale(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 block = block_of_job(job);
    double partial = 0;
    for (unsigned w = threadIdx.x; w < job.ways; w += THREADS) partial += job.sum[job.n_out + w];
    const double total = block_sum(partial);
    if (block == 0 && threadIdx.x == 0) *job.sum = total;
    if (total == 1.0 || !(total > 0.0)) return;
    for (u64 k = block * THREADS + threadIdx.x; k < job.total; k += (u64)job.n * THREADS)
        job.to[k] = (real)((double)job.to[k] / total);
}
