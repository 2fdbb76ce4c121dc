// Symmetric Toeplitz systems by Schur's algorithm: predictors of all orders, and the solution for a right-hand side.
//
// Levinson's recursion has an inner product in every step, Schur's has none: step m reflects the pairs (v[j], w[j-1]) by
// one coefficient a, v[j] += a w[j-1] and w'[j] = w[j-1] + a v[j]. One array holds two things: up to position m the
// prediction error filter (v, first entry 1) and its reverse (w, last entry 1, not stored), from there on the
// generators, of which v[m+1] / w[m] is the next reflection coefficient. Both obey the same rule, so every step is the
// same N multiplications by two wherever m stands, and the only special case is v[m+1] = a, where a generator's entry
// becomes the filter's. A right-hand side is a third array: y -= mu w, the residual from m on, minus the solution before.
//
// PANEL steps from one barrier of all blocks to the next: entries depend on the PANEL before them only, and a panel's
// coefficients on the next PANEL generators. The first warp of every block, the leader, computes these coefficients from
// them, 16 steps at a time, while the others apply the 16 before to a tile of entries each, of which the first half is
// another warp's, too. Entries of a lane are consecutive and stay in registers; from lane to lane one number moves a step.
//
// The critical path is the leader's: w[m] -> 1 / w[m] -> coefficient -> w[m+1], about 90 cycles a step, without a wait
// for memory or for other warps. What the other warps do is hidden as long as none has more than one tile.
//
// A system has `blocks` blocks: 1; a cluster, with its barrier; or, one system only, all of a cooperative launch.
#include "common/types.cuh"

#define PANEL 256          // steps between two barriers
#define GROUP 16           // steps between two barriers of a block
#define MAX_WARPS 8        // of a block
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
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
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

// The results of a panel's steps.
struct Steps { double a[PANEL], mu[PANEL], variance[PANEL]; };

// The value that a lane of the warp has.
__device__ __forceinline__ double from_lane(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

// Consecutive entries of the three arrays, E a lane.
template <int E, bool RIGHT>
struct Entries {
    double v[E], w[E], y[RIGHT ? E : 1];
    int first, lane;   // first of this lane

    __device__ __forceinline__ void read(const Schur& s, const double* from, int start) {
        lane = threadIdx.x % 32;
        first = start + lane * E;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const bool there = first + e >= 0 && first + e < (int)s.n;
            v[e] = there ? load(from + first + e) : 0.0;
            w[e] = there ? load(from + s.n + first + e) : 0.0;
            if (RIGHT) y[e] = there ? load(from + 2 * s.n + first + e) : 0.0;
        }
    }

    __device__ __forceinline__ void subtract(double mu) {
        if constexpr (RIGHT) {
#pragma unroll
            for (int e = 0; e < E; e++) y[e] = fma(-mu, w[e], y[e]);
        }
    }

    // `before`: w of the entry before the warp's first.
    __device__ __forceinline__ void reflect(double a, double before) {
        const double other = from_lane(w[E - 1], (lane + 31) % 32);
        double left = lane ? other : before;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const double x = left, z = v[e];
            left = w[e];
            w[e] = fma(a, z, x);
            v[e] = fma(a, x, z);
        }
    }
};

// The generators from entry m + 1 of a panel on, and what is known of the system. All lanes know the same.
template <bool RIGHT>
struct Leader : Entries<PANEL / 32, RIGHT> {
    static constexpr int E = PANEL / 32;
    double variance, inverse, rest;   // w[m + i], its reciprocal, y[m + i]
    double kept, least;               // the last good variance; how small it may be
    int stop, last, n;
    bool is_covariance;

    __device__ __forceinline__ void begin(const Schur& s, const double* from, int m) {
        this->read(s, from, m + 1);
        variance = load(from + s.n + m);
        inverse = reciprocal(variance);
        rest = RIGHT ? load(from + 2 * s.n + m) : 0.0;
    }

    // Step m + i of the panel at m, where i % E is SLOT: the coefficients, and the generators after it.
    template <int SLOT>
    __device__ __forceinline__ void step(int m, int i, Steps& steps) {
        const int order = m + i + 1;
        const double next = from_lane(this->v[SLOT], i / E);
        const double k = next * inverse, left = fma(-k, next, variance);
        const bool wanted = order <= last && stop < 0;
        const bool good = is_covariance ? left > least && left < INFINITY && fabs(k) < 1.0
                                        : fabs(left) > least && fabs(left) < INFINITY;
        const double a = wanted && good ? -k : 0.0, mu = RIGHT && order <= n ? rest * inverse : 0.0;
        if (wanted && !good) stop = order;
        this->subtract(mu);
        if constexpr (RIGHT) rest = from_lane(this->y[SLOT], i / E);
        this->reflect(a, variance);
        // of use as long as orders exist; the last step of a right-hand side needs the one before it
        variance = wanted ? left : variance;
        inverse = reciprocal(variance);
        kept = a != 0.0 ? left : kept;
        if (this->lane == 0) {
            steps.a[i] = a;
            if (RIGHT) steps.mu[i] = mu;
            steps.variance[i] = kept;
        }
    }

    template <int SLOT = 0>
    __device__ __forceinline__ void steps_of_group(int m, int i, Steps& steps) {
        step<SLOT>(m, i + SLOT, steps);
        if constexpr (SLOT + 1 < E) steps_of_group<SLOT + 1>(m, i, steps);
    }

    __device__ __forceinline__ void group(int m, int i, Steps& steps) {
        for (int j = 0; j < GROUP; j += E) steps_of_group(m, i + j, steps);
    }
};

// A warp's entries: 2 PANEL, of which the second half is its own.
template <bool RIGHT>
struct Tile : Entries<PANEL / 16, RIGHT> {
    static constexpr int E = PANEL / 16;
    static_assert(E == GROUP, "entry m + i of a panel at m is slot i % E of its lane");

    __device__ __forceinline__ void begin(const Schur& s, const double* from, int tile) {
        this->read(s, from, (tile - 1) * PANEL);
    }

    template <int SLOT = 0>
    __device__ __forceinline__ void steps_of_group(int at, const double* a, const double* mu) {
        if constexpr (RIGHT) {
            this->subtract(mu[SLOT]);
            this->y[SLOT] = this->lane == at ? -mu[SLOT] : this->y[SLOT];
        }
        this->reflect(a[SLOT], 0.0);
        constexpr int next = (SLOT + 1) % E;
        this->v[next] = this->lane == at + (SLOT + 1) / E ? a[SLOT] : this->v[next];
        if constexpr (SLOT + 1 < E) steps_of_group<SLOT + 1>(at, a, mu);
    }

    __device__ __forceinline__ void group(int m, int i, const Steps& steps) {
        const int start = this->first - this->lane * E;
        steps_of_group((m + i - start) / E, steps.a + i, steps.mu + i);   // both are multiples of E
    }

    __device__ __forceinline__ void write(const Schur& s, double* to) const {
        if (this->lane < 16) return;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (this->first + e < (int)s.n) {
                to[this->first + e] = this->v[e];
                to[s.n + this->first + e] = this->w[e];
                if (RIGHT) to[2 * s.n + this->first + e] = this->y[e];
            }
    }
};

template <bool RIGHT>
__device__ __forceinline__ void run(const Schur& s) {
    __shared__ Steps steps;
    const u32 system = blockIdx.x / s.blocks, block = blockIdx.x % s.blocks, warp = threadIdx.x / 32;
    const u32 n = s.n, n_tiles = (n + PANEL - 1) / PANEL, parts = RIGHT ? 3 : 2;
    const u32 all = s.blocks * (blockDim.x / 32 - 1), mine = (warp - 1) * s.blocks + block;  // of the leader: none
    const u32 thread = block * blockDim.x + threadIdx.x, n_threads = s.blocks * blockDim.x;
    double* work = s.work + (u64)system * 2 * parts * n;
    const double* r = s.r + (u64)system * n;
    u32 round = s.round;
    for (u32 j = thread; j < n; j += n_threads) {
        work[j] = j ? r[j] : 1.0;
        work[n + j] = r[j];
        if (RIGHT) work[2 * n + j] = s.b[(u64)system * n + j];
    }
    const double r0 = r[0];
    const bool good = fabs(r0) < INFINITY && (r0 > 0.0 || (r0 != 0.0 && !s.is_covariance));
    Leader<RIGHT> leader;
    leader.stop = good ? -1 : 0;
    leader.last = s.last[system];
    leader.n = (int)n;
    leader.kept = good ? r0 : 0.0;
    leader.least = SMALLEST * fabs(r0);
    leader.is_covariance = s.is_covariance != 0;
    if (thread == 0) {
        s.partial[(u64)system * n] = 1.0;
        s.sigma2[(u64)system * n] = leader.kept;
    }
    wait_for_system(s, round);
    for (u32 q = 0; q < s.n_panels; q++) {
        const double* from = work + q % 2 * parts * n;
        double* to = work + (q + 1) % 2 * parts * n;
        const int m = (int)(q * PANEL), n_groups = ((int)n - m < PANEL ? (int)n - m + GROUP - 1 : PANEL) / GROUP;
        Tile<RIGHT> tile;
        if (warp == 0) leader.begin(s, from, m);
        else if (mine < n_tiles) tile.begin(s, from, (int)mine);
        for (int g = 0; g <= n_groups; g++) {
            if (warp == 0) {
                if (g < n_groups) leader.group(m, g * GROUP, steps);
            } else if (g && mine < n_tiles) {
                tile.group(m, (g - 1) * GROUP, steps);
            }
            __syncthreads();
        }
        if (warp && mine < n_tiles) {
            tile.write(s, to);
            for (u32 other = mine + all; other < n_tiles; other += all) {
                tile.begin(s, from, (int)other);
                for (int g = 0; g < n_groups; g++) tile.group(m, g * GROUP, steps);
                tile.write(s, to);
            }
        } else if (thread < 32) {
            for (u32 i = threadIdx.x; i < (u32)n_groups * GROUP && m + i + 1 < n; i += 32) {
                s.partial[(u64)system * n + m + i + 1] = steps.a[i] == 0.0 ? 0.0 : -steps.a[i];
                s.sigma2[(u64)system * n + m + i + 1] = steps.variance[i];
            }
        }
        wait_for_system(s, round);
    }
    const double* done = work + s.n_panels % 2 * parts * n;
    for (u32 j = thread; j < n; j += n_threads) {
        if (RIGHT)
            s.filter[(u64)system * n + j] = -load(done + 2 * n + j);
        else if (j)
            s.filter[(u64)system * (n - 1) + j - 1] = !good || load(done + j) == 0.0 ? 0.0 : -load(done + j);
    }
    if (thread == 0) s.stops_at[system] = leader.stop;
}

extern "C" __global__ void __launch_bounds__(MAX_WARPS * 32) schur_predict(GRID_CONSTANT Schur s) { run<false>(s); }
extern "C" __global__ void __launch_bounds__(MAX_WARPS * 32) schur_solve(GRID_CONSTANT Schur s) { run<true>(s); }
