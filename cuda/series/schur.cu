// Symmetric Toeplitz systems by Schur's algorithm: predictors of all orders, and the solution for a right-hand side.
//
// Levinson's recursion has an inner product in every step, Schur's has none: step m reflects the pairs (v[j], w[j-1]) by
// one coefficient a, v[j] += a w[j-1] and w'[j] = w[j-1] + a v[j]. One array holds two things: up to position m the
// prediction error filter (v, first entry 1) and its reverse (w, last entry 1, not stored), from there on the
// generators, of which v[m+1] / w[m] is the next reflection coefficient. Both obey the same rule, so every step is the
// same N multiplications by two wherever m stands, and the only special case is v[m+1] = a, where a generator's entry
// becomes the filter's. A right-hand side is a third array: y -= mu w, the residual from m on, minus the solution before.
//
// B steps at a time, a panel: entries depend on the B before them only, and the panel's coefficients on the next B
// generators (the corner). Every warp computes the corner for itself, in registers, and applies the coefficients to 32 E
// consecutive entries, of which the first B are another warp's, too; one barrier a panel. The corner's divisions follow
// each other: they are the critical path, B times about 100 cycles, behind which the warp's other work runs.
//
// A system has `blocks` blocks: 1; a cluster, with its barrier; or, one system only, all of a cooperative launch.
#include "common/types.cuh"

#define E 8                // consecutive entries of a lane
#define MAX_WARPS 4        // of a block: one for each of a multiprocessor's schedulers
#define SMALLEST 0x1p-50   // a variance below this fraction of r[0] is rounding

struct Schur {
    const double* r;       // (systems, n)
    const double* b;       // (systems, n) right-hand sides
    double* work;          // (systems, 4 or 6, n): v, w (and y) twice
    double* filter;        // (systems, n-1) coefficients; or (systems, n) solutions
    double* partial;       // (systems, n)
    double* sigma2;        // (systems, n)
    int* stops_at;         // (systems,)
    const int* last;       // (systems,) order where a system's results end
    u32* arrived;          // (systems,) blocks at barriers, in all launches so far; where the counter is needed
    u32 n, n_panels, blocks;
    u32 barrier;           // 0: the block's, 1: the cluster's, 2: the grid's
    u32 is_covariance;     // stop at reflection coefficients of 1 and more
    u32 round;             // barriers of earlier launches
};

#ifdef __CUDACC__
#define GRID_CONSTANT const __grid_constant__   // read where it stands, not copied to the stack
#else
#define GRID_CONSTANT const
#endif

// Loads and stores that other multiprocessors see: in the L2 cache.
__device__ __forceinline__ double load(const double* at) {
#ifdef __CUDACC__
    return __ldcg(at);
#else
    return *(const volatile double*)at;
#endif
}

__device__ __forceinline__ void grid_barrier(u32* arrived, u32 target) {
#ifdef __CUDACC__
    __threadfence();
    atomicAdd(arrived, 1u);
    u32 seen;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while ((int)(seen - target) < 0);
#else
    __atomic_fetch_add(arrived, 1u, __ATOMIC_SEQ_CST);
    while ((int)(__atomic_load_n(arrived, __ATOMIC_SEQ_CST) - target) < 0) host::pause();
#endif
}

// Wait until all blocks of the system have written; `round` counts the calls.
__device__ __forceinline__ void wait_for_system(const Schur& s, u32& round) {
    round++;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (s.barrier == 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        return;
    }
#endif
    __syncthreads();
    if (s.barrier == 0) return;
    if (threadIdx.x == 0) grid_barrier(s.arrived + blockIdx.x / s.blocks, round * s.blocks);
    __syncthreads();
}

// 1 / x, off by an ulp at most: without the branches of a division, which the corner would wait for.
__device__ __forceinline__ double reciprocal(double x) {
#ifdef __CUDACC__
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    const double e = fma(-x, r, 1.0);
    const double t = fma(e, e, e);
    return fma(r, t, r);
#else
    return 1.0 / x;
#endif
}

// What a warp knows of the system: which orders exist. The same in all warps.
struct State { int stop, last; double least; };

template <int B, bool RIGHT>
struct Corner {
    double u[B], v[B], d[RIGHT ? B : 1];

    __device__ __forceinline__ void read(const Schur& s, const double* from, u32 m) {
#pragma unroll
        for (int i = 0; i < B; i++) {
            u[i] = m + i < s.n ? load(from + s.n + m + i) : 0.0;
            v[i] = m + 1 + i < s.n ? load(from + m + 1 + i) : 0.0;
            if (RIGHT) d[i] = m + i < s.n ? load(from + 2 * s.n + m + i) : 0.0;
        }
    }

    // Step i of a panel that begins at m: minus the reflection coefficient, 0 if the order does not exist.
    template <int i>
    __device__ __forceinline__ void step(const Schur& s, int order, State& state, double& a, double& mu) {
        const double inverse = reciprocal(u[0]);
        const double k = v[i] * inverse;
        const double left = fma(-k, v[i], u[0]);
        const bool wanted = order <= state.last && state.stop < 0;
        const bool good = s.is_covariance ? left > state.least && left < INFINITY && fabs(k) < 1.0
                                          : fabs(left) > state.least && fabs(left) < INFINITY;
        a = wanted && good ? -k : 0.0;
        if (wanted && !good) state.stop = order;
        mu = RIGHT && order <= (int)s.n ? d[i] * inverse : 0.0;
        if constexpr (RIGHT) {
#pragma unroll
            for (int j = 1; j < B - i; j++) d[i + j] = fma(-mu, u[j], d[i + j]);
        }
        u[0] = a == 0.0 ? u[0] : left;
#pragma unroll
        for (int j = 1; j < B - i; j++) {
            const double x = u[j], y = v[i + j];
            u[j] = fma(a, y, x);
            v[i + j] = fma(a, x, y);
        }
    }
};

// A warp's entries.
template <int B, bool RIGHT>
struct Tile {
    double v[E], w[E], y[RIGHT ? E : 1];
    int first, lane;   // entry of this lane's first; lane

    __device__ __forceinline__ void read(const Schur& s, const double* from, u32 tile) {
        lane = threadIdx.x % 32;
        first = (int)tile * (32 * E - B) - B + lane * E;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const bool there = first + e >= 0 && first + e < (int)s.n;
            v[e] = there ? load(from + first + e) : 0.0;
            w[e] = there ? load(from + s.n + first + e) : 0.0;
            if (RIGHT) y[e] = there ? load(from + 2 * s.n + first + e) : 0.0;
        }
    }

    template <int i>
    __device__ __forceinline__ void step(int m, double a, double mu) {
        const int at = (m - (first - lane * E)) / E;   // lane of entry m, which is its first; exact
        if (RIGHT) {
#pragma unroll
            for (int e = 0; e < E; e++) y[e] = fma(-mu, w[e], y[e]);
            y[i % E] = lane == at + i / E ? -mu : y[i % E];
        }
        const double before = __shfl_sync(0xffffffffu, w[E - 1], (lane + 31) % 32);
        double left = lane ? before : 0.0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const double x = left, z = v[e];
            left = w[e];
            w[e] = fma(a, z, x);
            v[e] = fma(a, x, z);
        }
        v[(i + 1) % E] = lane == at + (i + 1) / E ? a : v[(i + 1) % E];
    }

    __device__ __forceinline__ void write(const Schur& s, double* to) const {
        if (lane < B / E) return;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (first + e < (int)s.n) {
                to[first + e] = v[e];
                to[s.n + first + e] = w[e];
                if (RIGHT) to[2 * s.n + first + e] = y[e];
            }
    }
};

// Steps i..B-1 of a panel: the corner's, and behind each the warp's; recursive, so that every index is a constant.
template <int B, bool RIGHT, int i = 0>
__device__ __forceinline__ void panel(const Schur& s, u32 m, Corner<B, RIGHT>& corner, Tile<B, RIGHT>& tile,
                                      State& state, double* factors, bool answers, double* partial, double* sigma2) {
    double a, mu;
    corner.template step<i>(s, (int)m + i + 1, state, a, mu);
    tile.template step<i>((int)m, a, mu);
    factors[i] = a;
    if (RIGHT) factors[B + i] = mu;
    if (answers && m + i + 1 < s.n) {
        partial[m + i + 1] = a == 0.0 ? 0.0 : -a;
        sigma2[m + i + 1] = corner.u[0];
    }
    if constexpr (i + 1 < B) panel<B, RIGHT, i + 1>(s, m, corner, tile, state, factors, answers, partial, sigma2);
}

// The same for entries of which the panel's coefficients are known.
template <int B, bool RIGHT, int i = 0>
__device__ __forceinline__ void apply(u32 m, Tile<B, RIGHT>& tile, const double* factors) {
    tile.template step<i>((int)m, factors[i], RIGHT ? factors[B + i] : 0.0);
    if constexpr (i + 1 < B) apply<B, RIGHT, i + 1>(m, tile, factors);
}

template <int B, bool RIGHT>
__device__ __forceinline__ void run(const Schur& s) {
    static_assert(B % E == 0, "entry m of a panel is the first of its lane");
    __shared__ double factors[MAX_WARPS][2 * B];
    const u32 system = blockIdx.x / s.blocks, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    const u32 mine = blockIdx.x % s.blocks * n_warps + warp, all = s.blocks * n_warps;
    const u32 n = s.n, n_tiles = (n + 32 * E - B - 1) / (32 * E - B), parts = RIGHT ? 3 : 2;
    double* work = s.work + (u64)system * 2 * parts * n;
    const double* r = s.r + (u64)system * n;
    double *partial = s.partial + (u64)system * n, *sigma2 = s.sigma2 + (u64)system * n;
    const u32 thread = mine * 32 + threadIdx.x % 32;
    u32 round = s.round;
    for (u32 j = thread; j < n; j += all * 32) {
        work[j] = j ? r[j] : 1.0;
        work[n + j] = r[j];
        if (RIGHT) work[2 * n + j] = s.b[(u64)system * n + j];
    }
    const double r0 = r[0];
    const bool good = fabs(r0) < INFINITY && (r0 > 0.0 || (r0 != 0.0 && !s.is_covariance));
    State state = {good ? -1 : 0, s.last[system], SMALLEST * fabs(r0)};
    if (thread == 0) {
        partial[0] = 1.0;
        sigma2[0] = good ? r0 : 0.0;
    }
    wait_for_system(s, round);
    for (u32 q = 0; q < s.n_panels; q++) {
        const double* from = work + q % 2 * parts * n;
        double* to = work + (q + 1) % 2 * parts * n;
        const u32 m = q * B;
        if (mine < n_tiles) {
            Tile<B, RIGHT> tile;
            Corner<B, RIGHT> corner;
            tile.read(s, from, mine);
            corner.read(s, from, m);
            panel(s, m, corner, tile, state, factors[warp], thread == 0, partial, sigma2);
            tile.write(s, to);
            __syncwarp();
            for (u32 other = mine + all; other < n_tiles; other += all) {
                tile.read(s, from, other);
                apply(m, tile, factors[warp]);
                tile.write(s, to);
            }
            __syncwarp();
        }
        wait_for_system(s, round);
    }
    const double* done = work + s.n_panels % 2 * parts * n;
    for (u32 j = thread; j < n; j += all * 32) {
        if (RIGHT)
            s.filter[(u64)system * n + j] = -load(done + 2 * n + j);
        else if (j)
            s.filter[(u64)system * (n - 1) + j - 1] = state.stop == 0 || load(done + j) == 0.0 ? 0.0 : -load(done + j);
    }
    if (thread == 0) s.stops_at[system] = state.stop;
}

// Longer panels are fewer barriers, but more registers: a right-hand side leaves room for 16 steps.
extern "C" __global__ void __launch_bounds__(MAX_WARPS * 32) schur_predict_16(GRID_CONSTANT Schur s) { run<16, false>(s); }
extern "C" __global__ void __launch_bounds__(MAX_WARPS * 32) schur_predict_32(GRID_CONSTANT Schur s) { run<32, false>(s); }
extern "C" __global__ void __launch_bounds__(MAX_WARPS * 32) schur_solve_16(GRID_CONSTANT Schur s) { run<16, true>(s); }
