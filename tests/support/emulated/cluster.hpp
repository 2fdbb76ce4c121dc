// What lists.cu asks of a cluster of blocks, in place of its own lines for the card: blocks are threads of the host, a
// barrier counts the bytes that come. Nothing is loaded asynchronously: the image is there at the first barrier.
namespace emulated {
const unsigned MOST_BLOCKS = 16, MOST_LEVELS = 512;
static double* memories[MOST_BLOCKS];                          // every block's shared memory
static double* barriers[MOST_BLOCKS];                          // in it, a level each
static std::atomic<long> missing[MOST_BLOCKS][MOST_LEVELS];    // bytes that a block waits for in a level
static std::atomic<unsigned> met;                              // threads at the cluster's barrier, in all
static unsigned meetings[MOST_BLOCKS][1024];                   // of each thread so far
}  // namespace emulated
#undef SHARED_MEMORY
#define SHARED_MEMORY double* memory = emulated::memories[blockIdx.x];

__device__ __forceinline__ void done_reading() {
    emulated::meetings[blockIdx.x][threadIdx.x]++;
    emulated::met++;
}

__device__ __forceinline__ void all_done_reading() {
    const unsigned all = emulated::meetings[blockIdx.x][threadIdx.x] * blockDim.x * gridDim.x;
    while (emulated::met < all) host::pause();
}

__device__ __forceinline__ void meet_cluster() {
    done_reading();
    all_done_reading();
}

__device__ __forceinline__ void begin_loading(const Lists& f, const uint4* image, double* memory, u64* loads) {
    uint4 *cells = (uint4*)(memory + f.n_lambda), *records = (uint4*)(memory + f.records);
    for (u32 i = threadIdx.x; i < f.n_cells; i += LIST_THREADS) cells[i] = image[i];
    for (u32 i = f.n_cells + threadIdx.x; i < f.n_image; i += LIST_THREADS) records[i - f.n_cells] = image[i];
}

__device__ __forceinline__ void begin_counting(double* barriers, u32 n, u32 thread) {
    emulated::barriers[blockIdx.x] = barriers;
}

__device__ __forceinline__ void expect(double* barriers, const double* arrivals, u32 n, u32 thread) {
    for (u32 i = thread; i < n; i += LIST_THREADS) emulated::missing[blockIdx.x][i] = *(const u32*)(arrivals + i);
}

__device__ __forceinline__ void wait_for_arrivals(void* barrier) {
    double* const first = emulated::barriers[blockIdx.x];
    if (!first || (double*)barrier < first || (double*)barrier >= first + emulated::MOST_LEVELS) return;  // a load's
    const std::atomic<long>& left = emulated::missing[blockIdx.x][(double*)barrier - first];
    while (left > 0) host::pause();
    if (left < 0) __trap();  // more has come than the host said
}

template <bool CLUSTER>
__device__ __forceinline__ void store(double* memory, u32 cell, double value, u32 blocks, void* barrier) {
    if (!CLUSTER || !blocks) {
        memory[cell] = value;
        return;
    }
    for (; blocks; blocks &= blocks - 1) {
        const u32 block = __ffs(blocks) - 1;
        if (block >= gridDim.x) __trap();
        *(volatile double*)(emulated::memories[block] + cell) = value;
        emulated::missing[block][(double*)barrier - emulated::barriers[blockIdx.x]] -= 8;
    }
}
