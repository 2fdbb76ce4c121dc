// Evidence: table[k] *= weight[(k / ways) % n], where n is the variable's number of states and `ways` the number of
// cells from one of its states to the next. One thread per cell.
//     to = the table, other = the weights, total = the table's cells.
#include "published/job.cuh"

extern "C" __global__ void __launch_bounds__(1024) evidence(const Job* jobs, const unsigned* map) {
    const Job job = job_of_block(jobs, map);
    const u64 k = block_of_job(job) * blockDim.x + threadIdx.x;
    if (k >= job.total) return;
    job.to[k] *= job.other[(k / job.ways) % job.n];
}
