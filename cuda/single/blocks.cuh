// Blocks of 8 x 8 outputs on the tensor cores, in doubles; before sm_80, and on the host, lanes exchange their entries.
#include "common/types.cuh"

// out += a b, 8 x 8 += 8 x 4 times 4 x 8, by the whole warp: lane l has entry (l / 4, l % 4) of a, (l % 4, l / 4) of b,
// and entries (l / 4, 2 (l % 4)) and the next of out.
__device__ __forceinline__ void multiply_blocks(double (&out)[2], double a, double b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(out[0]), "+d"(out[1])
        : "d"(a), "d"(b));
#else
    const u32 lane = threadIdx.x & 31;
    for (u32 k = 0; k < 4; k++) {
        const double mine = __shfl_sync(0xffffffffu, a, (lane & ~3u) + k);
        for (u32 j = 0; j < 2; j++) out[j] += mine * __shfl_sync(0xffffffffu, b, (2 * (lane & 3) + j) * 4 + k);
    }
#endif
}
