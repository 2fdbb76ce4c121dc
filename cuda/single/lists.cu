// A whole network as lists of products, in the shared memory of one block or of a cluster of blocks: one kernel a
// propagation, for networks with few entries that are not zero.
//
// The host leaves out every product that is zero whatever the evidence, and every entry that no answer reads; the
// rest is lists. An output's list is cut over 2^log lanes; a warp takes a round of 32 lanes after another, as the
// host has dealt them out. The records of a warp's next level, and its first products' places, are fetched while it
// works on this one. The words of later levels come from device memory while the first ones run.
//
// Every block holds every cell that one of its rounds reads. A writer stores to each block that wants the entry, through
// distributed shared memory, and the store tells a barrier there: a block goes on when it has what it waits for, and
// nobody waits for all (a barrier of the cluster costs 0.6 us a level, as it orders all of memory). Evidence comes as
// the kernel's parameter and is multiplied in by each block for itself. Posteriors are divided by P(e) and go straight
// to the host. Nothing is scaled: the host bounds the error from P(e) and asks the other engine if needed.
//
// Wins below some hundred thousand products. Loses where the tables are dense: a product costs two gathers, and no
// tile shares them.
#include "common/types.cuh"

#define LIST_THREADS 256
#define LIST_WARPS (LIST_THREADS / 32)
#define MOST_GIVEN 1024
#define AHEAD 8

#ifdef __CUDACC__
#define SHARED_MEMORY extern __shared__ double memory[];
#define GRID_CONSTANT const __grid_constant__
#else
static double* host_memory;
#define SHARED_MEMORY double* memory = host_memory;
#define GRID_CONSTANT const
#endif

struct Lists {
    const uint4* image;       // (blocks, n_image) the cells after the weights of evidence, then the records
    const u32* axes;          // (n_lambda,) variable, state << 16
    const double* weights;    // host, (n_lambda,)
    double* posterior;        // host
    double* root;             // host
    u32 n_image, n_cells;     // 16 bytes each: all; those that are cells
    u32 n_first, later;       // of the records, those that are waited for at the start; the level that needs the others
    u32 n_lambda;             // cells; even
    u32 records;              // first cells of: all records,
    u32 entries, passes;      // factors times weights, a round of them after another,
    u32 arrivals;             // in a cluster: how many bytes arrive in each level, a cell each,
    u32 starts;               // each warp's first word of each level,
    u32 answers, roots;       // how many, then cell | cell of P(e) << 16 and place of each; the roots' cells,
    u32 rows;                 // the words
    u32 n_passes, n_levels, n_roots;
    u32 barriers;             // first cell behind all that: in a cluster a barrier a level
    short state[MOST_GIVEN];  // -1 not known, -2 weights, else the state
};

// Rows of words, 32 lanes each: what an output is; in a cluster who wants it, as bits; then one a product, cell |
// cell << 16, in fours (the host adds products that are zero).
//
// A warp has little to do in a level and nobody to hide behind: what counts is how many instructions follow each
// other. So nothing here is predicated that can be padded, words are fetched a level ahead, and gathers come first.
#define HEAD_OUT(h) ((h) & 0xffffu)
#define HEAD_N(h) (((h) >> 16) & 0xffu)
#define HEAD_LOG(h) (((h) >> 24) & 7u)
#define HEAD_LAST 0x08000000u
#define HEAD_FOURS 0x10000000u  // two rows are one product of four
#define NO_CELL 0xffffu

template <bool CLUSTER>
struct Round {
    static constexpr u32 HEADS = CLUSTER ? 64 : 32;  // words before the products
    const u32* at;
    u32 what, where;     // cell | n << 16 | log << 24 | last << 27 | fours << 28
    u32 product[AHEAD];  // those past the round's last are another's, and not used
    __device__ __forceinline__ void fetch(const u32* lanes_row) {
        at = lanes_row;
        what = at[0];
        where = CLUSTER ? at[32] : 0;
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) product[k] = at[HEADS + 32 * k];
    }
    __device__ __forceinline__ const u32* next_row() const { return at + HEADS + 32 * HEAD_N(what); }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS
__device__ __forceinline__ u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 in_block(u32 at, u32 block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}
#endif

// 16 n bytes of device memory to shared memory; the barrier counts them.
__device__ __forceinline__ void copy_counted(uint4* to, const uint4* from, u32 n, u32 barrier) {
#ifdef HAS_CLUSTERS
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(to)), "l"(from), "r"(16 * n), "r"(barrier) : "memory");
#endif
}

// The barrier is done once so many bytes have come.
__device__ __forceinline__ void arrive(u32 barrier, u32 bytes) {
#ifdef HAS_CLUSTERS
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

// The start of a cluster: everything written before is there for every block, and every block runs.
__device__ __forceinline__ void meet_cluster() {
#ifdef HAS_CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void done_reading() {
#ifdef HAS_CLUSTERS
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void all_done_reading() {
#ifdef HAS_CLUSTERS
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Bring the image in: what the start needs, and the words of later levels, which come while earlier ones run.
// loads: a barrier each.
__device__ __forceinline__ void begin_loading(const Lists& f, const uint4* image, double* memory, u64* loads) {
    uint4 *cells = (uint4*)(memory + f.n_lambda), *records = (uint4*)(memory + f.records);
#ifdef HAS_CLUSTERS
    if (threadIdx.x != 0) return;
    const u32 start = shared_at(loads), later = start + 8, n_later = f.n_image - f.n_cells - f.n_first;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nmbarrier.init.shared::cta.b64 [%1], 1;\n"
                 "fence.mbarrier_init.release.cluster;" ::"r"(start), "r"(later) : "memory");
    copy_counted(cells, image, f.n_cells, start);
    copy_counted(records, image + f.n_cells, f.n_first, start);
    arrive(start, 16 * (f.n_cells + f.n_first));
    if (n_later) {
        copy_counted(records + f.n_first, image + f.n_cells + f.n_first, n_later, later);
        arrive(later, 16 * n_later);
    }
#else
    for (u32 i = threadIdx.x; i < f.n_cells; i += LIST_THREADS) cells[i] = image[i];
    for (u32 i = f.n_cells + threadIdx.x; i < f.n_image; i += LIST_THREADS) records[i - f.n_cells] = image[i];
#endif
}

// A barrier a level, before anything is copied.
__device__ __forceinline__ void begin_counting(double* barriers, u32 n, u32 thread) {
#ifdef HAS_CLUSTERS
    for (u32 i = thread; i < n; i += LIST_THREADS)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(barriers + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Each is done when so many bytes have arrived.
__device__ __forceinline__ void expect(double* barriers, const double* arrivals, u32 n, u32 thread) {
#ifdef HAS_CLUSTERS
    for (u32 i = thread; i < n; i += LIST_THREADS) arrive(shared_at(barriers + i), *(const u32*)(arrivals + i));
#endif
}

__device__ __forceinline__ void wait_for_arrivals(void* barrier) {
#ifdef HAS_CLUSTERS
    asm volatile(
        "{\n.reg .pred there;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], 0;\n"
        "@!there bra AGAIN;\n}" ::"r"(shared_at(barrier)) : "memory");
#endif
}

// Store where the value is wanted; the blocks count what arrives.
template <bool CLUSTER>
__device__ __forceinline__ void store(double* memory, u32 cell, double value, u32 blocks, void* barrier) {
#ifdef HAS_CLUSTERS
    if (CLUSTER && blocks) {
        const u32 at = shared_at(memory + cell), counted = shared_at(barrier);
        for (; blocks; blocks &= blocks - 1) {
            const u32 block = __ffs(blocks) - 1;
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                             in_block(at, block)), "l"(__double_as_longlong(value)), "r"(in_block(counted, block))
                         : "memory");
        }
        return;
    }
#endif
    memory[cell] = value;
}

// Read once and kept: the compiler would read it anew in every level.
__device__ __forceinline__ u32 own_lane() {
    u32 lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
    lane = __shfl_sync(0xffffffffu, lane, lane);
#endif
    return lane;
}

struct Four {  // products, or halves of products
    double x[4], y[4];
    __device__ __forceinline__ void gather(const double* memory, const u32* product) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            x[k] = memory[product[k] & 0xffffu];
            y[k] = memory[product[k] >> 16];
        }
    }
    __device__ __forceinline__ double sum(bool fours) const {
        if (fours) return (x[0] * y[0]) * (x[1] * y[1]) + (x[2] * y[2]) * (x[3] * y[3]);
        return (x[0] * y[0] + x[1] * y[1]) + (x[2] * y[2] + x[3] * y[3]);
    }
};

// Over the 2^log lanes that share an output.
__device__ __forceinline__ double over_lanes(double sum, u32 log) {
    if (log == 0) return sum;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (log == 1) return sum;
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (log == 2) return sum;
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    if (log == 3) return sum;
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    return log == 4 ? sum : sum + __shfl_xor_sync(0xffffffffu, sum, 16);
}

// A round's first two fours.
struct Eight {
    Four first, second;
    template <bool CLUSTER>
    __device__ __forceinline__ void gather(const double* memory, const Round<CLUSTER>& now) {
        first.gather(memory, now.product);
        if (HEAD_N(now.what) > 4) second.gather(memory, now.product + 4);
    }
};

// `now`, whose gathers are on their way.
template <bool CLUSTER>
__device__ __forceinline__ void run_round(double* memory, const Round<CLUSTER>& now, Eight& e, void* barrier) {
    const u32 n = HEAD_N(now.what), out = HEAD_OUT(now.what);
    const bool fours = now.what & HEAD_FOURS;
    double sum = e.first.sum(fours);
    if (n > 4) sum += e.second.sum(fours);
#pragma unroll 1
    for (u32 k = AHEAD; k < n; k += 4) {
        const u32* row = now.at + Round<CLUSTER>::HEADS + 32 * k;
        const u32 product[4] = {row[0], row[32], row[64], row[96]};
        e.first.gather(memory, product);
        sum += e.first.sum(fours);
    }
    sum = over_lanes(sum, HEAD_LOG(now.what));
    if (out != NO_CELL) store<CLUSTER>(memory, out, sum, now.where, barrier);
}

template <bool CLUSTER>
__device__ __forceinline__ void run_lists(const Lists& f, double* memory) {
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = own_lane();
    u32 axis = thread < f.n_lambda ? f.axes[thread] : 0;
    __shared__ u64 loads[2];
    double* const barriers = memory + f.barriers;
    if (CLUSTER) begin_counting(barriers, f.n_levels, thread);
    begin_loading(f, f.image + (u64)blockIdx.x * f.n_image, memory, loads);
    for (u32 i = thread; i < f.n_lambda; i += LIST_THREADS) {
        if (i != thread) axis = f.axes[i];
        const int state = f.state[axis & 0xffffu];
        double weight = state == -1 || state == (int)(axis >> 16) ? 1.0 : 0.0;
        if (state == -2) weight = *(const volatile double*)(f.weights + i);  // across the bus: not before it is sure
        memory[i] = weight;
    }
    __syncthreads();
    wait_for_arrivals(loads);
    const uint2* entries = (const uint2*)(memory + f.entries);
    const u32* passes = (const u32*)(memory + f.passes);
    for (u32 p = 0; p < f.n_passes; p++) {
        for (u32 i = passes[p] + thread; i < passes[p + 1]; i += LIST_THREADS) {
            const uint2 e = entries[i];  // from | to << 16, weight | weight << 16
            memory[e.x >> 16] = memory[e.x & 0xffffu] * (memory[e.y & 0xffffu] * memory[e.y >> 16]);
        }
        if (p + 1 < f.n_passes) __syncthreads();
    }
    if (CLUSTER) expect(barriers, memory + f.arrivals, f.n_levels, thread);
    const u32* starts = (const u32*)(memory + f.starts) + warp;
    const u32* rows = (const u32*)(memory + f.rows) + lane;
    Round<CLUSTER> now, next;
    u32 start = starts[0], after = f.n_levels > 1 ? starts[LIST_WARPS] : NONE;  // level 0 is never a later one
    if (start != NONE) next.fetch(rows + start);
    if (CLUSTER) meet_cluster(); else __syncthreads();
    for (u32 l = 0; l < f.n_levels; l++) {
        const bool busy = start != NONE;
        Eight e;
        now = next;
        if (busy) e.gather(memory, now);
        start = after;
        if (l + 1 == f.later) wait_for_arrivals(loads + 1);
        if (start != NONE) next.fetch(rows + start);
        starts += LIST_WARPS;
        after = l + 2 < f.n_levels ? starts[LIST_WARPS] : NONE;
        if (busy) {
            for (;;) {
                run_round(memory, now, e, barriers + l);
                if (now.what & HEAD_LAST) break;
                now.fetch(now.next_row());
                e.gather(memory, now);
            }
        }
        if (CLUSTER) {
            done_reading();
            wait_for_arrivals(barriers + l);
            all_done_reading();  // cells whose last reading this was may be written from now on
        } else if (l + 1 < f.n_levels) {
            __syncthreads();
        }
    }
    __syncthreads();
    const u32* answers = (const u32*)(memory + f.answers);
    for (u32 i = thread; i < answers[0]; i += LIST_THREADS) {
        const uint2 a = ((const uint2*)answers)[i + 1];
        f.posterior[a.y] = memory[a.x & 0xffffu] / memory[a.x >> 16];
    }
    const u32* roots = (const u32*)(memory + f.roots);
    if (blockIdx.x == 0)
        for (u32 i = thread; i < f.n_roots; i += LIST_THREADS) f.root[i] = memory[roots[i]];
}

extern "C" __global__ void __launch_bounds__(LIST_THREADS, 1) lists_one(GRID_CONSTANT Lists f) {
    SHARED_MEMORY
    run_lists<false>(f, memory);
}

extern "C" __global__ void __launch_bounds__(LIST_THREADS, 1) lists_many(GRID_CONSTANT Lists f) {
    SHARED_MEMORY
    run_lists<true>(f, memory);
}
