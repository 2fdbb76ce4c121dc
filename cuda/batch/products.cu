// Contractions of tables of cases (batch.cuh) as blocked products: a block computes many outputs of 32 cases.
//
//   batch_products   S tiles of M x N outputs, S x M x N = 256: M places on axes that only A and the output have, N on
//                    axes that only B and the output have (jtgpu/backends/gpu/batch/tiling.py). For each summed
//                    configuration the block copies S x (M + N) rows of 32 cases to shared memory, asynchronously and
//                    several configurations ahead; each of four warps computes 64 outputs from them
//
// Wins over batch_level where there are M and N places that sum the same configurations: operands come from L2, whose
// rate is the limit, once a block, not once a tile of 4 x 4, and are on their way before they are needed without taking
// registers. Both operands differ between cases.
#include "batch/batch.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define WAITING 8192   // numbers in shared memory: 64 KiB of doubles
#define AT_ONCE 1      // configurations that are copied, and waited for, together
#else
#define WAITING 12288
#define AT_ONCE 4
#endif

struct Product {
    u32 steps, n_steps;  // what is summed
    u32 kind, slot_a, slot_b, slot_out;
    u32 pad[2];
    u32 mask[8];         // outputs that are stored, two words a warp
    u32 at[136];         // cells in A, in B, NONE: not read; in the output by A's cells, and what B's cells add
};

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char product_memory[];
#else
static unsigned char product_memory[8 * WAITING] __attribute__((aligned(16)));
#endif

// Copy two numbers to shared memory, later.
__device__ __forceinline__ void copy_two(real* to, const real* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to);
    if (SINGLE) asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
    to[0] = from[0], to[1] = from[1];
#endif
}

__device__ __forceinline__ void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait until all groups of copies but the last `N` have arrived.
template <int N>
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Groups of cases one after another: copies for the next group begin before the sums of this one are complete.
template <int S, int M, int N>
__device__ __forceinline__ void run_product(const Batch& b, const Product& t, u32 group, u32 n_groups) {
    constexpr int A_ROWS = S * M, ROWS = S * (M + N), U = ROWS > 40 ? 1 : AT_ONCE, STAGES = WAITING / 32 / ROWS / U;
    constexpr int LINES = (ROWS + 7) / 8, OF_TILE = M * N / 64, WIDE = N < 8 ? N : 8, HIGH = 64 / WIDE;  // of a warp
    real* const stage = (real*)product_memory;
    const u32 warp = threadIdx.x >> 5, n_steps = t.n_steps, tile = warp / OF_TILE, inside = warp % OF_TILE;
    const u32 line = threadIdx.x >> 4, two = threadIdx.x % 16 * 2, lane = threadIdx.x & 31;
    const u32 row = tile * M + inside / (N / WIDE) * HIGH, column = A_ROWS + tile * N + inside % (N / WIDE) * WIDE;
    const u32 low = t.mask[2 * warp], high = t.mask[2 * warp + 1];
    const u64 of_group = (u64)b.n_cells * 32;
    const real* cells = b.arena + group * of_group + two;
    Group g = group_of(b, group, lane);
    const uint2* const steps = b.steps + t.steps;
    u32 from[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++) from[i] = line + 8 * i < ROWS ? t.at[line + 8 * i] : NONE;
    real* const to = stage + line * 32 + two;
    uint2 step[U];
#pragma unroll
    for (u32 u = 0; u < U; u++) step[u] = steps[u];
    u32 copied = 0, left = n_groups * ((n_steps + U - 1) / U);

    auto copy = [&](u32 at) {
        if (left) {
            left--;
#pragma unroll
            for (u32 u = 0; u < U; u++) {
                if (U > 1 && copied + u >= n_steps) break;
#pragma unroll
                for (int i = 0; i < LINES; i++) {
                    const u32 more = line + 8 * i < A_ROWS ? step[u].x : step[u].y;
                    real* const here = to + ((at * U + u) * ROWS + 8 * i) * 32;
                    if (from[i] != NONE) copy_two(here, cells + (u64)(from[i] + more) * 32);
                }
            }
            copied += U;
            if (copied >= n_steps) copied = 0, cells += of_group;
#pragma unroll
            for (u32 u = 0; u < U; u++) step[u] = steps[copied + u];
        }
        end_copies();
    };

#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) copy(k);
    u32 at = 0, free = STAGES - 1;
    while (n_groups--) {
        real sum[64];
#pragma unroll
        for (int e = 0; e < 64; e++) sum[e] = 0;
        const Slot slot_a = g.slots[t.slot_a * 32], slot_b = g.slots[t.slot_b * 32];
        const int shift_a = shift_of(slot_a.top), shift_b = shift_of(slot_b.top);
        const real scale_a = power_of_two(-shift_a), scale_b = power_of_two(-shift_b);
        for (u32 k = 0; k < n_steps; k += U) {
            wait_for_copies<STAGES - 2>();
            __syncthreads();
            copy(free);
            free = at;
            const real* x = stage + (at * U * ROWS + row) * 32 + lane;
            const real* y = stage + (at * U * ROWS + column) * 32 + lane;
            if (++at == STAGES) at = 0;
            if (!(low | high)) continue;
#pragma unroll 1
            for (u32 u = 0; u < U && k + u < n_steps; u++, x += ROWS * 32, y += ROWS * 32) {
                real v[WIDE];
#pragma unroll
                for (int j = 0; j < WIDE; j++) v[j] = SINGLE ? y[j * 32] * scale_b : y[j * 32];
#pragma unroll
                for (int i = 0; i < HIGH; i++) {
                    const real w = SINGLE ? x[i * 32] * scale_a : x[i * 32];
#pragma unroll
                    for (int j = 0; j < WIDE; j++) sum[i * WIDE + j] += w * v[j];
                }
            }
        }
        Slot* const slot = g.slots + t.slot_out * 32;
        const int before = *(volatile int*)&slot->top;
        const u32 *out_m = t.at + ROWS + row, *out_n = t.at + ROWS + column;
        auto store = [&](u32 mask, const u32* rows, real* made) {
            return store_sums<HIGH / 2, WIDE>(g.cells, mask, rows, out_n, made, shift_a, shift_b);
        };
        const int top = store(low, out_m, sum), other = store(high, out_m + HIGH / 2, sum + 32);
        publish_case(slot, top > other ? top : other, before);
        if (t.kind & FIRST && warp == 0) slot->exponent = slot_a.exponent + shift_a + slot_b.exponent + shift_b;
        g.cells += of_group;
        g.slots += (u64)b.n_tables * 32;
    }
}

#define PRODUCT(shape, S, M, N) case shape: run_product<S, M, N>(b, t, group, n_groups); break;

extern "C" __global__ void __launch_bounds__(128, 2) batch_products(Batch b, const Product* products, u32 n, u32 high) {
    const Product& t = products[blockIdx.x % n];
    const u32 group = blockIdx.x / n * high, left = b.n_cases / 32 - group, n_groups = left < high ? left : high;
    switch (t.kind & 15) {
        PRODUCT(10, 1, 16, 16)
        PRODUCT(11, 1, 32, 8)
        PRODUCT(12, 1, 64, 4)
        PRODUCT(13, 4, 8, 8)
        default: __trap();
    }
}
