// Scattering: from the separator's new and old table to the receiving clique's table.
//
// Source of the method: A. Gottoli, F. Pettenuzzo (2014), section 3.
//
// Phase 1 (scatter_divide): ratio[j] = new[j] / old[j], written over the old table; 0/0 = 0. One thread per cell.
//     from = new, other = old and to = ratio (the same memory), total = n_out cells.
// Phase 2 (scatter_multiply): clique[index[i*n + j]] *= ratio[j]. One thread per cell of the index table, padding
//     skipped; the index table holds every entry of the clique once, so no two threads write one cell.
//     other = ratio, to = clique, total = n*m cells. ways = 1 is the published kernel, one thread per cell; with 2, 4, 8
//     (ours) a thread processes that many cells, so that more dependent reads are in flight.
//
// Always memory bound: 20 bytes per cell (index 4, table 8 read and 8 written) and one multiplication. Accesses to the
// clique coalesce as far as neighbouring separator configurations are neighbours in the clique. The division is a
// kernel of its own so that n quotients are computed, not n*m; for small n the launch costs more than that
// saves: trials/scatter_fused.cu.
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
        ratio[w] = at[w] == SENTINEL ? (real)0 : job.other[k & (job.n - 1)];
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
