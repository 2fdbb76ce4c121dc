// The k smallest of each row of an (m, d) matrix: ten kernels of Zanirati's thesis (Bologna, 2012), under their names.
//
//   garcia_insertion, arefin, single_heap   a thread a row: a sorted array, or an array and the place of its largest, in
//                                           global memory; a heap in shared memory. They read the transposed matrix.
//   cuknn_rank, cuknn_merge                 a thread a number, which finds its rank within its block; then a thread a row
//   barrientos                              a block a row: a heap for each thread, in global memory
//   kato                                    a block a row: one heap, a buffer for each thread, which thread 0 drains
//   hcr, insertion_reduction                a block a row: a heap or sorted array for each thread in shared memory, then
//                                           half of the threads take the lists of the others, log2(threads) times
//   kato, hcr over several blocks a row     the multi-block kernels: a row at a time, then once more over their results
//
// Distances are float32, as published. A list that is not full has infinite entries. Fixed: barriers where threads
// diverge, the missing barrier below 32 threads, buffers without a bound. Lists come out in no particular order.
#include "screen/published/lists.cuh"

#define ROWS 32            // of a block whose threads take a row each
#define RANKS 256          // numbers of a block of cuknn

struct Select {
    const float* numbers;  // (m, d); transposed for a thread a row
    float* lists;          // (m, blocks, k); (k, m) for a thread a row
    float* scratch;        // barrientos: (m, k, THREADS); cuknn: (m, ceil(d / RANKS), k)
    u32 m, d, k;
    u32 first, blocks;     // first row; blocks of each row
};

// An array and the place of its largest number.
struct Largest {
    float* at;
    u32 stride, k, place;

    __device__ __forceinline__ void start() {
        for (u32 i = 0; i < k; i++) at[i * stride] = INFINITE;
        place = 0;
    }

    __device__ __forceinline__ void add(float x) {
        if (!(x < at[place * stride])) return;
        at[place * stride] = x;
        float most = at[0];
        place = 0;
        for (u32 i = 1; i < k; i++)
            if (at[i * stride] > most) {
                most = at[i * stride];
                place = i;
            }
    }
};

template <class List>
__device__ __forceinline__ void by_thread(const Select& s) {
    const u32 row = blockIdx.x * ROWS + threadIdx.x;
    if (row >= s.m) return;
    List list = {s.lists + row, s.m, s.k};
    list.start();
    for (u32 i = 0; i < s.d; i++) list.add(s.numbers[(size_t)i * s.m + row]);
}

extern "C" __global__ void __launch_bounds__(ROWS) garcia_insertion(const Select* job, const void*) { by_thread<Sorted>(*job); }

extern "C" __global__ void __launch_bounds__(ROWS) arefin(const Select* job, const void*) { by_thread<Largest>(*job); }

extern "C" __global__ void __launch_bounds__(ROWS) single_heap(const Select* job, const void*) {
    const Select s = *job;
    __shared__ float all[K * ROWS];
    const u32 row = blockIdx.x * ROWS + threadIdx.x;
    if (row >= s.m) return;
    Heap heap = {all + threadIdx.x, ROWS, s.k};
    heap.start();
    for (u32 i = 0; i < s.d; i++) heap.add(s.numbers[(size_t)i * s.m + row]);
    for (u32 i = 0; i < s.k; i++) s.lists[(size_t)i * s.m + row] = all[i * ROWS + threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(RANKS) cuknn_rank(const Select* job, const void*) {
    const Select s = *job;
    __shared__ float own[RANKS];
    const u32 n_sets = (s.d + RANKS - 1) / RANKS, row = blockIdx.x / n_sets, set = blockIdx.x % n_sets;
    const u32 at = set * RANKS + threadIdx.x;
    const float x = own[threadIdx.x] = at < s.d ? s.numbers[(size_t)row * s.d + at] : INFINITE;
    __syncthreads();
    u32 rank = 0;
    for (u32 j = 0; j < RANKS; j++) rank += own[j] < x || (own[j] == x && j < threadIdx.x);
    if (rank < s.k) s.scratch[((size_t)row * n_sets + set) * s.k + rank] = x;
}

extern "C" __global__ void __launch_bounds__(ROWS) cuknn_merge(const Select* job, const void*) {
    const Select s = *job;
    const u32 n_sets = (s.d + RANKS - 1) / RANKS, row = blockIdx.x * ROWS + threadIdx.x;
    if (row >= s.m) return;
    Sorted list = {s.lists + row, s.m, s.k};
    list.start();
    const u32 each = s.k < RANKS ? s.k : RANKS;
    for (u32 set = 0; set < n_sets; set++)
        for (u32 i = 0; i < each; i++) {
            const float x = s.scratch[((size_t)row * n_sets + set) * s.k + i];
            if (!(x < list.at[(s.k - 1) * (size_t)s.m])) break;  // sets ascend
            list.add(x);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) barrientos(const Select* job, const void*) {
    const Select s = *job;
    __shared__ float merged[K * 32];
    const u32 t = threadIdx.x, row = blockIdx.x;
    float* heaps = s.scratch + (size_t)row * s.k * THREADS;
    Heap own = {heaps + t, THREADS, s.k};
    own.start();
    for (u32 i = t; i < s.d; i += THREADS) own.add(s.numbers[(size_t)row * s.d + i]);
    __syncthreads();
    Heap group = {merged + t % 32, 32, s.k};
    if (t < 32) {
        group.start();
        for (u32 from = t; from < THREADS; from += 32)
            for (u32 i = 0; i < s.k; i++) group.add(heaps[i * THREADS + from]);
    }
    __syncthreads();
    if (t == 0) {
        for (u32 from = 1; from < 32; from++)
            for (u32 i = 0; i < s.k; i++) group.add(merged[i * 32 + from]);
        for (u32 i = 0; i < s.k; i++) s.lists[(size_t)row * s.k + i] = merged[i * 32];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) kato(const Select* job, const void*) {
    const Select s = *job;
    __shared__ float heap_at[K], buffers[BUFFER * THREADS];
    __shared__ u32 counts[THREADS];
    const u32 t = threadIdx.x, row = s.first + blockIdx.x / s.blocks, part = blockIdx.x % s.blocks;
    Heap heap = {heap_at, 1, s.k};
    if (t == 0) heap.start();
    counts[t] = 0;
    __syncthreads();
    const float* numbers = s.numbers + (size_t)row * s.d;
    for (u32 first = part * THREADS; first < s.d; first += s.blocks * THREADS) {
        const float x = first + t < s.d ? numbers[first + t] : INFINITE;
        u32 count = counts[t];
        if (x < heap.root()) {
            buffers[count * THREADS + t] = x;
            counts[t] = ++count;
        }
        const bool is_last = first + s.blocks * THREADS >= s.d;
        if (__syncthreads_or(count == BUFFER || is_last)) {
            if (t == 0)
                for (u32 u = 0; u < THREADS; u++) {
                    for (u32 i = 0; i < counts[u]; i++) heap.add(buffers[i * THREADS + u]);
                    counts[u] = 0;
                }
            __syncthreads();
        }
    }
    for (u32 i = t; i < s.k; i += THREADS) s.lists[((size_t)row * s.blocks + part) * s.k + i] = heap_at[i];
}

// A list for each thread, and halves that take the lists of the others.
template <class List>
__device__ __forceinline__ void reduction(const Select& s) {
    __shared__ float all[K * THREADS];
    const u32 t = threadIdx.x, row = s.first + blockIdx.x / s.blocks, part = blockIdx.x % s.blocks;
    List own = {all + t, THREADS, s.k};
    own.start();
    const float* numbers = s.numbers + (size_t)row * s.d;
    for (u32 i = part * THREADS + t; i < s.d; i += s.blocks * THREADS) own.add(numbers[i]);
    for (u32 half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half)
            for (u32 i = 0; i < s.k; i++) own.add(all[i * THREADS + t + half]);
    }
    __syncthreads();
    for (u32 i = t; i < s.k; i += THREADS) s.lists[((size_t)row * s.blocks + part) * s.k + i] = all[i * THREADS];
}

extern "C" __global__ void __launch_bounds__(THREADS) hcr(const Select* job, const void*) { reduction<Heap>(*job); }

extern "C" __global__ void __launch_bounds__(THREADS) insertion_reduction(const Select* job, const void*) { reduction<Sorted>(*job); }
