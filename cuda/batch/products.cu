// Contractions of tables of cases (batch.cuh) as blocked products: a block computes 256 outputs of 32 cases.
//
//   batch_products   M x N outputs, M x N = 256: M places on axes that only A and the output have, N on axes that only B
//                    and the output have (jtgpu/backends/gpu/batch/tiling.py). For each summed configuration the block
//                    copies M + N rows of 32 cases to shared memory, asynchronously and several configurations ahead; a
//                    warp computes 8 x 4 outputs from it
//
// Wins over batch_level where there are M and N places that sum the same configurations: operands come from L2 once a
// block, not once a tile of 4 x 4, and are on their way before they are needed without taking registers. Both operands
// differ between cases.
#include "batch/batch.cuh"

#define WAITING 6144   // numbers in shared memory: 48 KiB of doubles

struct Product {
    u32 steps, n_steps;  // what is summed
    u32 kind, slot_a, slot_b, slot_out;
    u32 pad[2];
    u32 mask[8];         // outputs that are stored, a word a warp
    u32 at[80];          // M cells in A, N in B; in the output by A's cells, and the offsets that B's cells add
};

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
template <int M, int N>
__device__ __forceinline__ void run_product(const Batch& b, const Product& t, u32 group, u32 n_groups, real* stage) {
    constexpr int ROWS = M + N, STAGES = WAITING / 32 / ROWS, LINES = M / 16;
    const u32 warp = threadIdx.x >> 5, n_steps = t.n_steps;
    const u32 line = threadIdx.x >> 4, two = threadIdx.x % 16 * 2;
    const u32 row = warp / (N / 4) * 8, column = warp % (N / 4) * 4, mask = t.mask[warp];
    const u64 of_group = (u64)b.n_cells * 32;
    const real* cells = b.arena + group * of_group + two;
    Group g = group_of(b, group, threadIdx.x & 31);
    const uint2* const steps = b.steps + t.steps;
    const bool has_b = N == 16 || line < N;
    u32 a[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++) a[i] = t.at[line + 16 * i];
    const u32 c = has_b ? t.at[M + line] : 0;
    real* const to = stage + line * 32 + two;
    uint2 step = steps[0];
    u32 copied = 0, left = n_groups * n_steps;

    auto copy = [&](u32 at) {
        if (left) {
            left--;
#pragma unroll
            for (int i = 0; i < LINES; i++)
                copy_two(to + (at * ROWS + 16 * i) * 32, cells + (u64)(a[i] + step.x) * 32);
            if (has_b) copy_two(to + (at * ROWS + M) * 32, cells + (u64)(c + step.y) * 32);
            if (++copied == n_steps) copied = 0, cells += of_group;
            step = steps[copied];
        }
        end_copies();
    };

#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) copy(k);
    u32 at = 0, free = STAGES - 1;
    while (n_groups--) {
        const Slot slot_a = g.slots[t.slot_a * 32], slot_b = g.slots[t.slot_b * 32];
        Slot* const slot = g.slots + t.slot_out * 32;
        const int before = *(volatile int*)&slot->top, shift_a = shift_of(slot_a.top), shift_b = shift_of(slot_b.top);
        const real scale_a = power_of_two(-shift_a), scale_b = power_of_two(-shift_b);
        real sum[32];
#pragma unroll
        for (int e = 0; e < 32; e++) sum[e] = 0;
        for (u32 k = 0; k < n_steps; k++) {
            wait_for_copies<STAGES - 2>();
            __syncthreads();
            copy(free);
            free = at;
            const real* const x = stage + (at * ROWS + row) * 32 + (threadIdx.x & 31);
            const real* const y = stage + (at * ROWS + M + column) * 32 + (threadIdx.x & 31);
            if (++at == STAGES) at = 0;
            if (!mask) continue;
            real v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = SINGLE ? y[j * 32] * scale_b : y[j * 32];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const real u = SINGLE ? x[i * 32] * scale_a : x[i * 32];
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i * 4 + j] += u * v[j];
            }
        }
        const u32* const out = t.at + ROWS;
        const int top = store_sums<8, 4>(g.cells, mask, out + row, out + M + column, sum, shift_a, shift_b);
        publish_case(slot, top, before);
        if (t.kind & FIRST && warp == 0) slot->exponent = slot_a.exponent + shift_a + slot_b.exponent + shift_b;
        g.cells += of_group;
        g.slots += (u64)b.n_tables * 32;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) batch_products(Batch b, const Product* products, u32 n, u32 high) {
    alignas(16) __shared__ real stage[WAITING];
    const Product& t = products[blockIdx.x % n];
    const u32 group = blockIdx.x / n * high, groups = b.n_cases / 32, n_groups = groups - group < high ? groups - group : high;
    switch (t.kind & 15) {
        case 10: run_product<16, 16>(b, t, group, n_groups, stage); break;
        case 11: run_product<32, 8>(b, t, group, n_groups, stage); break;
        default: __trap();
    }
}
