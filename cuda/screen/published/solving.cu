// CUDA_ODPSolvingSet (A4) of Zanirati's thesis (Bologna, 2012): an iteration of the solving set on the device.
//
// The host has the candidates C, chooses the next ones, and keeps the n rows of largest weight. An iteration:
//
//   solving_init       the candidates' lists, of the distances so far; candidates leave the other rows
//   solving_compare    candidates among themselves, a thread a candidate
//   solving_rows       the lists of the other rows, a thread a row; with a matrix also its distances, infinite where
//                      neither the row nor the candidate can be an outlier
//   solving_kato,      the k smallest of the candidates' rows of the matrix, a block a candidate; it ends when the
//   solving_red,       candidate is no outlier. kato: one heap and buffers. red: a heap for each thread, fused at the end.
//   solving_redms      redMS: fused after every STEP columns, and tested again
//   solving_ndm        without a matrix: several blocks a candidate, heaps in shared memory, fused
//   solving_hgm        the same with heaps in global memory, which are not fused
//   solving_a2         fuses the heaps of solving_hgm by block (A2; hgmA1A2)
//   solving_merge      the lists of all blocks into the candidate's
//
// Fixed: an empty list bounds nothing (infinite entries); rows do not move, so their lists stay with them; redMS read all
// but the last STEP columns; A2 read half of the heaps twice and the others never.
#include "screen/published/lists.cuh"

#define ROWS 128           // of a block whose threads take a row each
#define STEP 1024          // columns

struct Solving {
    const float* x;        // (d, a)
    float* lists;          // (k, d) heaps of the rows
    u32* state;            // (d,) 1: in the solving set
    const u32* candidates; // (m,)
    float* own;            // (m, k) heaps of the candidates
    float* bounds;         // (d,) sums of the rows' lists
    float* matrix;         // (m, width)
    float* parts;          // (m, blocks, k), of ndm and a2; hgm: (m, blocks, k, THREADS)
    float* merged;         // (m, blocks, k), of a2
    u32 d, a, k, m;
    u32 first, width;      // columns of the matrix: rows first .. first+width-1
    u32 blocks;            // of each candidate, without a matrix
    float cut;             // the n-th largest weight so far; -inf: none
};

__device__ __forceinline__ float distance(const Solving& s, u32 p, u32 q) {
    float total = 0.0f;
    for (u32 j = 0; j < s.a; j++) {
        const float d = s.x[(size_t)p * s.a + j] - s.x[(size_t)q * s.a + j];
        total += d * d;
    }
    return sqrtf(total);
}

__device__ __forceinline__ float sum(const Heap& list) {
    float total = 0.0f;
    for (u32 i = 0; i < list.k; i++) total += list.at[i * list.stride];
    return total;
}

__device__ __forceinline__ Heap own_of(const Solving& s, u32 j) {
    Heap own = {s.own + (size_t)j * s.k, 1, s.k};
    return own;
}

extern "C" __global__ void __launch_bounds__(ROWS) solving_init(const Solving* job, const void*) {
    const Solving s = *job;
    const u32 j = blockIdx.x * ROWS + threadIdx.x;
    if (j >= s.m) return;
    const u32 q = s.candidates[j];
    for (u32 i = 0; i < s.k; i++) s.own[(size_t)j * s.k + i] = s.lists[(size_t)i * s.d + q];
    s.state[q] = 1;
}

extern "C" __global__ void __launch_bounds__(ROWS) solving_compare(const Solving* job, const void*) {
    const Solving s = *job;
    const u32 j = blockIdx.x * ROWS + threadIdx.x;
    if (j >= s.m) return;
    Heap own = own_of(s, j);
    for (u32 i = 0; i < s.m; i++) own.add(i == j ? 0.0f : distance(s, s.candidates[i], s.candidates[j]));
}

extern "C" __global__ void __launch_bounds__(ROWS) solving_rows(const Solving* job, const void*) {
    const Solving s = *job;
    const u32 column = blockIdx.x * ROWS + threadIdx.x, p = s.first + column;
    if (column >= s.width) return;
    Heap near = {s.lists + p, s.d, s.k};
    const bool is_other = !s.state[p];
    float bound = is_other ? sum(near) : 0.0f;
    for (u32 j = 0; j < s.m; j++) {
        float d = INFINITE;
        if (is_other && (bound >= s.cut || sum(own_of(s, j)) >= s.cut)) {
            d = distance(s, p, s.candidates[j]);
            if (d < near.root()) {
                near.add(d);
                bound = sum(near);
            }
        }
        if (s.matrix) s.matrix[(size_t)j * s.width + column] = d;
    }
    if (is_other) s.bounds[p] = bound;
}

// Whether the block's candidate may still be an outlier; one thread sums.
__device__ __forceinline__ bool may_be(const Solving& s, const Heap& own) {
    return !__syncthreads_or(threadIdx.x == 0 && sum(own) < s.cut);
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_kato(const Solving* job, const void*) {
    const Solving s = *job;
    __shared__ float heap_at[K], buffers[BUFFER * THREADS];
    __shared__ u32 counts[THREADS];
    const u32 t = threadIdx.x, j = blockIdx.x;
    Heap heap = {heap_at, 1, s.k};
    for (u32 i = t; i < s.k; i += THREADS) heap_at[i] = s.own[(size_t)j * s.k + i];
    counts[t] = 0;
    __syncthreads();
    for (u32 first = 0; first < s.width; first += THREADS) {
        const float x = first + t < s.width ? s.matrix[(size_t)j * s.width + first + t] : INFINITE;
        u32 count = counts[t];
        if (x < heap.root()) {
            buffers[count * THREADS + t] = x;
            counts[t] = ++count;
        }
        if (__syncthreads_or(count == BUFFER || first + THREADS >= s.width)) {
            if (t == 0)
                for (u32 u = 0; u < THREADS; u++) {
                    for (u32 i = 0; i < counts[u]; i++) heap.add(buffers[i * THREADS + u]);
                    counts[u] = 0;
                }
            __syncthreads();
            if (!may_be(s, heap)) break;
        }
    }
    for (u32 i = t; i < s.k; i += THREADS) s.own[(size_t)j * s.k + i] = heap_at[i];
}

// The lists of the block's threads into that of thread 0.
__device__ __forceinline__ void fuse(float* all, u32 k) {
    const u32 t = threadIdx.x;
    Heap own = {all + t, THREADS, k};
    for (u32 half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half)
            for (u32 i = 0; i < k; i++) own.add(all[i * THREADS + t + half]);
    }
    __syncthreads();
}

// Columns of a candidate's row in steps: heaps of all threads, fused into the candidate's list.
__device__ __forceinline__ void steps(const Solving& s, u32 step) {
    __shared__ float all[K * THREADS];
    const u32 t = threadIdx.x, j = blockIdx.x;
    Heap own = own_of(s, j), mine = {all + t, THREADS, s.k};
    for (u32 first = 0; first < s.width; first += step) {
        if (!may_be(s, own)) return;
        const float root = own.root();
        mine.start();
        const u32 last = first + step < s.width ? first + step : s.width;
        for (u32 i = first + t; i < last; i += THREADS) {
            const float x = s.matrix[(size_t)j * s.width + i];
            if (x < root) mine.add(x);
        }
        fuse(all, s.k);
        if (t == 0)
            for (u32 i = 0; i < s.k; i++) own.add(all[i * THREADS]);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_red(const Solving* job, const void*) { steps(*job, job->width); }

extern "C" __global__ void __launch_bounds__(THREADS) solving_redms(const Solving* job, const void*) { steps(*job, STEP); }

// Distances of a part of the rows to a candidate, into the heap of each thread.
__device__ __forceinline__ void own_part(const Solving& s, Heap mine) {
    const u32 j = blockIdx.x / s.blocks, part = blockIdx.x % s.blocks;
    const Heap own = own_of(s, j);
    mine.start();
    if (sum(own) < s.cut) return;
    const float root = own.root();
    for (u32 p = part * THREADS + threadIdx.x; p < s.d; p += s.blocks * THREADS)
        if (!s.state[p]) {
            const float d = distance(s, p, s.candidates[j]);
            if (d < root) mine.add(d);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_ndm(const Solving* job, const void*) {
    const Solving s = *job;
    __shared__ float all[K * THREADS];
    Heap mine = {all + threadIdx.x, THREADS, s.k};
    own_part(s, mine);
    fuse(all, s.k);
    for (u32 i = threadIdx.x; i < s.k; i += THREADS) s.merged[(size_t)blockIdx.x * s.k + i] = all[i * THREADS];
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_hgm(const Solving* job, const void*) {
    const Solving s = *job;
    Heap mine = {s.parts + (size_t)blockIdx.x * s.k * THREADS + threadIdx.x, THREADS, s.k};
    own_part(s, mine);
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_a2(const Solving* job, const void*) {
    const Solving s = *job;
    __shared__ float all[K * THREADS];
    const float* heaps = s.parts + (size_t)blockIdx.x * s.k * THREADS;
    for (u32 i = 0; i < s.k; i++) all[i * THREADS + threadIdx.x] = heaps[i * THREADS + threadIdx.x];
    fuse(all, s.k);
    for (u32 i = threadIdx.x; i < s.k; i += THREADS) s.merged[(size_t)blockIdx.x * s.k + i] = all[i * THREADS];
}

// Numbers of all parts of a candidate, `each` of every block: thread t takes those at t, t + THREADS ...
__device__ __forceinline__ void merge(const Solving& s, const float* numbers, u32 n) {
    __shared__ float all[K * THREADS];
    Heap mine = {all + threadIdx.x, THREADS, s.k}, own = own_of(s, blockIdx.x);
    mine.start();
    for (u32 i = threadIdx.x; i < n; i += THREADS) mine.add(numbers[(size_t)blockIdx.x * n + i]);
    fuse(all, s.k);
    if (threadIdx.x == 0)
        for (u32 i = 0; i < s.k; i++) own.add(all[i * THREADS]);
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_merge(const Solving* job, const void*) {
    merge(*job, job->merged, job->blocks * job->k);
}

extern "C" __global__ void __launch_bounds__(THREADS) solving_merge_all(const Solving* job, const void*) {
    merge(*job, job->parts, job->blocks * job->k * THREADS);
}
