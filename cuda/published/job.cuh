// The one argument of every kernel of the indexed engine: a list of independent jobs and a map from blocks to jobs.
//
// One launch processes all messages of a level ("resident") or on a single one ("each"): block b belongs to job
// block_job[b], and is that job's block number b - first_block. A null map means that there is one job.
//
// Compiled with JT_REAL double or float (the tables), JT_INDEX unsigned or unsigned long long (the index tables) and
// JT_WAYS, the most cells that one thread takes.
// jtgpu/device/nvcc.py repeats the layout of Job (JOB); a test compares the two.
#ifndef JT_REAL
#define JT_REAL double
#endif
#ifndef JT_INDEX
#define JT_INDEX unsigned int
#endif
#ifndef JT_WAYS  // most cells per thread; kernels of few cells are compiled with fewer registers
#define JT_WAYS 16
#endif

typedef JT_REAL real;
typedef JT_INDEX index_t;
typedef unsigned long long u64;

#define SENTINEL (~(index_t)0)  // all bits one: a padding cell of an index table, to be skipped

struct Job {           // 64 bytes
    const real* from;  // input
    const index_t* index;  // (rows, n) index table; null where `from` is already in order
    const real* other;     // second operand, if any
    real* to;              // output
    u64 total;             // cells of the index table, or of `from`
    unsigned n;            // columns, a power of two: cell k belongs to column k & (n - 1)
    unsigned n_out;        // columns written at the end (the separator's size without padding); normalise: see there
    unsigned first_block;  // first block of this job in the launch
    unsigned ways;         // cells that one thread adds (marginalise_n); a stride (evidence); blocks (normalise)
    double* sum;           // normalise: the total
};

__device__ __forceinline__ const Job& job_of_block(const Job* jobs, const unsigned* block_job) {
    return jobs[block_job ? block_job[blockIdx.x] : 0];
}

// Number of this block within its job.
__device__ __forceinline__ u64 block_of_job(const Job& job) { return (u64)(blockIdx.x - job.first_block); }

// The cell that entry k of the index table points to; 0 for padding and past the end.
__device__ __forceinline__ real gather(const Job& job, u64 k) {
    if (k >= job.total) return (real)0;
    index_t at = job.index[k];
    return at == SENTINEL ? (real)0 : job.from[at];
}

// The same if `from` is in order.
__device__ __forceinline__ real in_order(const Job& job, u64 k) { return k < job.total ? job.from[k] : (real)0; }
