// Trial: marginalisation and scattering with the index table in constant memory, for tables of up to 64 KB.
//
// The host copies the index table to `constant_index` before the launch; the kernels have the names and arguments of
// marginalise_m.cu (T = 512), marginalise_n.cu (ways = 2) and scatter.cu and read constant_index where those read
// job.index. One table at a time, so one job per launch.
//
// Predicted: slower. The constant cache serves one address per cycle of a warp; neighbouring threads read
// neighbouring cells here, so a warp's read is split into up to 32, where the same read from global memory is one or
// two sectors. The report of 2014 considered this (section 2.2.3) and did not build it: it only fits small tables,
// where the GPU gains little.
#include "published/job.cuh"

__constant__ index_t constant_index[65536 / sizeof(index_t)];

__device__ __forceinline__ real gather_constant(const Job& job, u64 k) {
    if (k >= job.total) return (real)0;
    const index_t at = constant_index[k];
    return at == SENTINEL ? (real)0 : job.from[at];
}

extern "C" __global__ void __launch_bounds__(512) marginalise_m_gather_512(const Job* jobs, const unsigned* map) {
    __shared__ real cell[512];
    const Job job = job_of_block(jobs, map);
    const unsigned t = threadIdx.x, n = job.n;
    const u64 k = block_of_job(job) * 1024 + t;
    cell[t] = gather_constant(job, k) + gather_constant(job, k + 512);
    __syncthreads();
#pragma unroll
    for (unsigned width = 256; width >= 1; width >>= 1) {
        if (n <= width) {
            if (t < width) cell[t] += cell[t + width];
            __syncthreads();
        }
    }
    if (t < job.n_out) job.to[block_of_job(job) * n + t] = cell[t];
}

extern "C" __global__ void __launch_bounds__(1024) marginalise_n_gather(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 k = block_of_job(job) * blockDim.x + threadIdx.x;
    const u64 stride = job.total / job.ways;
    if (k >= stride || (k & (job.n - 1)) >= job.n_out) return;
    real sum = gather_constant(job, k);
    if (job.ways == 2) sum += gather_constant(job, k + stride);
    job.to[k] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) scatter_multiply(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 k = block_of_job(job) * blockDim.x + threadIdx.x;
    if (k >= job.total) return;
    const index_t at = constant_index[k];
    if (at != SENTINEL) job.to[at] *= job.other[k & (job.n - 1)];
}
