// A whole network as lists of products, in the shared memory of one block or of a cluster of blocks: one kernel a
// propagation, for networks with few entries that are not zero.
//
// The host leaves out every product that is zero whatever the evidence, and every entry that no answer reads; the
// rest is lists. An output's list is cut over 2^log lanes; a warp takes a round of 32 lanes after another, as the
// host has dealt them out. The records of a warp's next level, and its first products' places, are fetched while it
// works on this one.
//
// Every block holds every cell that one of its rounds reads. A writer stores to each block that wants the entry, through
// distributed shared memory, and the store tells a barrier there: a block goes on when it has what it waits for, and
// nobody waits for all (a barrier of the cluster costs 0.6 us a level, as it orders all of memory). Evidence comes as
// the kernel's parameter and is multiplied in by each block for itself. Posteriors are divided by P(e) and go straight
// to the host. Nothing is scaled: the host bounds the error from P(e) and asks the other engine if needed.
//
// Wins below some hundred thousand products. Loses where the tables are dense: a product costs two gathers, and no
// tile shares them.
#include "resident/types.cuh"

#define LIST_THREADS 512
#define LIST_WARPS (LIST_THREADS / 32)
#define MOST_GIVEN 1024
#define AHEAD 4

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
    u32 n_image;              // 16 bytes each
    u32 n_lambda;             // cells; even
    u32 entries, passes;      // first cells of: factors times weights, a round of them after another
    u32 arrivals;             // a cell a level: the barrier that counts what arrives; at the start, how many bytes
    u32 starts, rows;         // each warp's first word of each level; the words
    u32 answers, roots;       // how many, then cell | cell of P(e) << 16 and place of each; the roots' cells
    u32 n_passes, n_levels, n_roots;
    short state[MOST_GIVEN];  // -1 not known, -2 weights, else the state
};

// Rows of words, 32 lanes each: two of heads (interleaved), then one a product: cell | cell << 16.
struct Head { u32 what, where; };   // cell | n << 16 | log << 24 | last << 27 | fours << 28; who wants it, as bits
#define HEAD_OUT(h) ((h).what & 0xffffu)
#define HEAD_N(h) (((h).what >> 16) & 0xffu)
#define HEAD_LOG(h) (((h).what >> 24) & 7u)
#define HEAD_LAST 0x08000000u
#define HEAD_FOURS 0x10000000u  // two rows are one product of four
#define NO_CELL 0xffffu

struct Next {
    const u32* at;
    Head head;
    u32 product[AHEAD];  // those past the round's last are another's, and not used
    __device__ __forceinline__ void fetch(const u32* row, u32 lane) {
        at = row;
        const uint2 h = ((const uint2*)row)[lane];
        head.what = h.x;
        head.where = h.y;
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) product[k] = row[64 + 32 * k + lane];
    }
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

// A barrier a level: done when so many bytes have arrived. The cells hold how many.
__device__ __forceinline__ void expect(double* barriers, u32 n, u32 thread) {
#ifdef HAS_CLUSTERS
    const u32 bytes = thread < n ? *(const u32*)(barriers + thread) : 0, at = shared_at(barriers + thread);
    __syncthreads();
    if (thread < n) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (thread < n)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
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

__device__ __forceinline__ double add_up(const double (&x)[AHEAD], const double (&y)[AHEAD], bool fours) {
    if (fours) return (x[0] * y[0]) * (x[1] * y[1]) + (x[2] * y[2]) * (x[3] * y[3]);
    return (x[0] * y[0] + x[1] * y[1]) + (x[2] * y[2] + x[3] * y[3]);
}

template <bool CLUSTER>
__device__ __forceinline__ void run_round(double* memory, const Next& r, u32 lane, void* barrier) {
    const u32 n = HEAD_N(r.head), log = HEAD_LOG(r.head), out = HEAD_OUT(r.head);
    const bool fours = r.head.what & HEAD_FOURS;
    double x[AHEAD], y[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) {
        x[k] = k < n ? memory[r.product[k] & 0xffffu] : 0.0;
        y[k] = k < n ? memory[r.product[k] >> 16] : 0.0;
    }
    double sum = add_up(x, y, fours);
    const u32* row = r.at + 64 + lane;
    for (u32 k = AHEAD; k < n; k += AHEAD) {
#pragma unroll
        for (u32 u = 0; u < AHEAD; u++) {
            const u32 product = k + u < n ? row[32 * (k + u)] : 0;
            x[u] = k + u < n ? memory[product & 0xffffu] : 0.0;
            y[u] = k + u < n ? memory[product >> 16] : 0.0;
        }
        sum += add_up(x, y, fours);
    }
    for (u32 bit = (1u << log) >> 1; bit; bit >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    if (out != NO_CELL) store<CLUSTER>(memory, out, sum, r.head.where, barrier);
}

template <bool CLUSTER>
__device__ __forceinline__ void run_lists(const Lists& f, double* memory) {
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    u32 axis = thread < f.n_lambda ? f.axes[thread] : 0;
    const uint4* image = f.image + (u64)blockIdx.x * f.n_image;
    uint4* cells = (uint4*)(memory + f.n_lambda);
#pragma unroll 8
    for (u32 i = thread; i < f.n_image; i += LIST_THREADS) cells[i] = image[i];
    for (u32 i = thread; i < f.n_lambda; i += LIST_THREADS) {
        if (i != thread) axis = f.axes[i];
        const int state = f.state[axis & 0xffffu];
        double weight = state == -1 || state == (int)(axis >> 16) ? 1.0 : 0.0;
        if (state == -2) weight = *(const volatile double*)(f.weights + i);  // across the bus: not before it is sure
        memory[i] = weight;
    }
    __syncthreads();
    const uint2* entries = (const uint2*)(memory + f.entries);
    const u32* passes = (const u32*)(memory + f.passes);
    for (u32 p = 0; p < f.n_passes; p++) {
        for (u32 i = passes[p] + thread; i < passes[p + 1]; i += LIST_THREADS) {
            const uint2 e = entries[i];  // from | to << 16, weight | weight << 16
            memory[e.x >> 16] = memory[e.x & 0xffffu] * (memory[e.y & 0xffffu] * memory[e.y >> 16]);
        }
        if (p + 1 < f.n_passes) __syncthreads();
    }
    double* arrivals = memory + f.arrivals;
    if (CLUSTER) expect(arrivals, f.n_levels, thread);  // the host sees to it that there are threads enough
    const u32* starts = (const u32*)(memory + f.starts) + warp;
    const u32* rows = (const u32*)(memory + f.rows);
    Next now, next;
    u32 start = starts[0], after = f.n_levels > 1 ? starts[LIST_WARPS] : NONE;
    if (start != NONE) next.fetch(rows + start, lane);
    if (CLUSTER) meet_cluster(); else __syncthreads();
    for (u32 l = 0; l < f.n_levels; l++) {
        const bool busy = start != NONE;
        now = next;
        start = after;
        if (start != NONE) next.fetch(rows + start, lane);
        after = l + 2 < f.n_levels ? starts[(l + 2) * LIST_WARPS] : NONE;
        if (busy) {
            run_round<CLUSTER>(memory, now, lane, arrivals + l);
            while (!(now.head.what & HEAD_LAST)) {
                now.fetch(now.at + 64 + 32 * HEAD_N(now.head), lane);
                run_round<CLUSTER>(memory, now, lane, arrivals + l);
            }
        }
        if (CLUSTER) {
            done_reading();
            wait_for_arrivals(arrivals + l);
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

extern "C" __global__ void __launch_bounds__(LIST_THREADS) lists_one(GRID_CONSTANT Lists f) {
    SHARED_MEMORY
    run_lists<false>(f, memory);
}

extern "C" __global__ void __launch_bounds__(LIST_THREADS) lists_many(GRID_CONSTANT Lists f) {
    SHARED_MEMORY
    run_lists<true>(f, memory);
}
