// Autoregressive models of many short series, a thread each: autocovariances, Levinson's recursion, the choice of the
// order, and its coefficients, in one kernel that reads each value once.
//
// A warp has 32 series. Tiles of 32 times are copied to shared memory while the tile before is summed up: rows are read
// coalesced, and each thread then reads a row of its own. The last P values and the P+1 sums of lagged products stay in
// registers, in double, whatever the type of the values. Values are taken relative to the first one, and the mean is
// corrected for at the end: exact for constant series, and at worst off by T ulps, if only the first value is far off.
//
// Bound by memory: P = 16 needs 17 multiplications and additions for a value of 4 or 8 bytes.
#include "common/types.cuh"

#define TILE 32
#define PITCH 33            // of a row in shared memory: no two rows begin in the same bank
#define SMALLEST 0x1p-50    // a variance below this fraction of r[0] is rounding

struct Fit {
    const real* x;          // (n_series, n_times), or autocovariances (n_series, p+1)
    const int* last;        // of autocovariances: order where results end
    double* coef;           // (n_series, p)
    double* partial;        // (n_series, p+1)
    double* sigma2;         // (n_series, p+1)
    double* mean;           // (n_series,)
    double* power;          // (n_series,) variance before any check: 0, or not finite, in series without models
    long long* bad;         // (n_series,) first time with a value that is not finite, or -1
    long long* order;       // (n_series,) chosen
    long long* stops_at;    // (n_series,)
    long long stride;       // between series, in values
    double penalty;         // of a coefficient, by the criterion; negative: the highest order
    u32 n_series, n_times, p, demean;
};

// Copies to shared memory that arrive later.
__device__ __forceinline__ void begin_copy(real* to, const real* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "n"(sizeof(real)) : "memory");
#else
    *to = *from;
#endif
}

__device__ __forceinline__ void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LATER>  // all but the last LATER groups have arrived
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
    __syncwarp();
}

// Times t0..t0+31 of the warp's series. What does not exist is what a thread subtracts: it adds nothing.
__device__ __forceinline__ void copy_tile(const Fit& f, real* tile, u32 first, u32 t0, double base) {
    const u32 lane = threadIdx.x, rows = f.n_series - first < 32 ? f.n_series - first : 32;
    const real* from = f.x + (u64)first * f.stride + t0 + lane;
    if (t0 + TILE <= f.n_times) {
        for (u32 s = 0; s < rows; s++, from += f.stride) begin_copy(tile + s * PITCH + lane, from);
    } else {
        for (u32 s = 0; s < rows; s++, from += f.stride)
            if (t0 + lane < f.n_times) begin_copy(tile + s * PITCH + lane, from);
        for (u32 t = f.n_times > t0 ? f.n_times - t0 : 0; t < TILE; t++) tile[lane * PITCH + t] = (real)base;
    }
    end_copies();
}

// Sums of lagged products of a thread's series, of values less `base`, and their sum.
template <int P>
__device__ __forceinline__ double add_products(const Fit& f, real* tiles, u32 first, double base, double (&sums)[P + 1]) {
    double window[P], total = 0.0;
#pragma unroll
    for (int i = 0; i < P; i++) window[i] = 0.0;
#pragma unroll
    for (int i = 0; i <= P; i++) sums[i] = 0.0;
    const u32 n_tiles = (f.n_times + TILE - 1) / TILE;
    copy_tile(f, tiles, first, 0, base);
    for (u32 k = 0; k < n_tiles; k++) {
        if (k + 1 < n_tiles) copy_tile(f, tiles + (k + 1) % 2 * TILE * PITCH, first, (k + 1) * TILE, base);
        else end_copies();
        wait_for_copies<1>();
        const real* row = tiles + k % 2 * TILE * PITCH + threadIdx.x * PITCH;
        for (int t = 0; t < TILE; t += P) {
#pragma unroll
            for (int i = 0; i < P; i++) {
                const double y = (double)row[t + i] - base;
                total += y;
                sums[0] = fma(y, y, sums[0]);
#pragma unroll
                for (int lag = 1; lag <= P; lag++) sums[lag] = fma(y, window[(i + P - lag) % P], sums[lag]);
                window[i] = y;
            }
        }
        __syncwarp();
    }
    return total;
}

// All orders up to `last`, and the coefficients of the last good one; rows of `partial` and `sigma2` in shared memory.
template <int P>
__device__ __forceinline__ int recurse(const double (&r)[P + 1], int p, int last, double (&a)[P], double* partial,
                                       double* sigma2) {
    const bool positive = r[0] > 0.0 && r[0] < INFINITY;
    double variance = positive ? r[0] : 1.0;
    const double least = SMALLEST * variance;
    int stop = positive ? -1 : 0;
    partial[0] = 1.0;
    sigma2[0] = positive ? r[0] : 0.0;
#pragma unroll
    for (int i = 0; i < P; i++) a[i] = 0.0;
#pragma unroll
    for (int m = 1; m <= P; m++) {
        double left = r[m];
#pragma unroll
        for (int i = 0; i < m - 1; i++) left = fma(-a[i], r[m - 1 - i], left);
        const double k = left / variance, next = fma(-k * k, variance, variance);
        const bool wanted = m <= last && stop < 0, good = fabs(k) < 1.0 && next > least;
        if (wanted && !good) stop = m;
        const double scale = wanted && good ? k : 0.0;
        variance = wanted && good ? next : variance;
        if (m <= p) {
            partial[m] = scale;
            sigma2[m] = positive ? variance : 0.0;
        }
#pragma unroll
        for (int i = 0; i < m / 2; i++) {
            const double x = a[i], y = a[m - 2 - i];
            a[i] = fma(-scale, y, x);
            if (i != m - 2 - i) a[m - 2 - i] = fma(-scale, x, y);
        }
        a[m - 1] = scale;
    }
    return stop;
}

// The same coefficients again, of an order up to the one that partials stand for.
template <int P>
__device__ __forceinline__ void at_order(int order, const double* partial, double (&a)[P]) {
#pragma unroll
    for (int i = 0; i < P; i++) a[i] = 0.0;
#pragma unroll
    for (int m = 1; m <= P; m++) {
        const double scale = m <= order ? partial[m] : 0.0;
#pragma unroll
        for (int i = 0; i < m / 2; i++) {
            const double x = a[i], y = a[m - 2 - i];
            a[i] = fma(-scale, y, x);
            if (i != m - 2 - i) a[m - 2 - i] = fma(-scale, x, y);
        }
        a[m - 1] = scale;
    }
}

// The order with the smallest value of the criterion; of equals the lowest.
__device__ __forceinline__ int best_order(const double* sigma2, int last, double n_times, double penalty) {
    int best = 0;
    double least = INFINITY;
    for (int m = 0; m <= last; m++) {
        const double value = n_times * log(sigma2[m] > 0.0 ? sigma2[m] : 1.0) + penalty * m;
        if (value < least) {
            least = value;
            best = m;
        }
    }
    return best;
}

// Rows of the warp's series from shared memory.
__device__ __forceinline__ void write_rows(double* to, const double* rows, u32 first, u32 n_rows, u32 width, u32 pitch) {
    for (u32 s = 0; s < n_rows; s++)
        for (u32 i = threadIdx.x; i < width; i += 32) to[(u64)(first + s) * width + i] = rows[s * pitch + i];
}

// Sums about the mean, from sums about the first value; false if the series has values that are not finite.
template <int P>
__device__ __forceinline__ bool centre(const Fit& f, const real* x, double base, double total, double (&sums)[P + 1],
                                       double& mean, long long& bad) {
    const int n = (int)f.n_times;
    bad = -1;
    mean = 0.0;
    if (!(fabs(total) < INFINITY)) {
        for (int t = 0; t < n && bad < 0; t++)
            if (!(fabs((double)x[t]) < INFINITY)) bad = t;
        sums[0] = bad < 0 ? INFINITY : 0.0;
        return false;
    }
    if (!f.demean) return true;
    const double about = total / n;
    mean = base + about;
    double head = 0.0, tail = 0.0;
    sums[0] = fma(-about, total, sums[0]);
#pragma unroll
    for (int lag = 1; lag <= P; lag++)
        if (lag <= (int)f.p) {
            head += (double)x[lag - 1] - base;
            tail += (double)x[n - lag] - base;
            sums[lag] += about * ((n - lag) * about - (2.0 * total - head - tail));
        }
    return true;
}

// What every kernel does with a warp's autocovariances.
template <int P>
__device__ __forceinline__ void finish(const Fit& f, u32 first, bool exists, const double (&r)[P + 1], int last,
                                       double* stage) {
    const u32 lane = threadIdx.x, s = first + lane, rows = f.n_series - first < 32 ? f.n_series - first : 32;
    double *partial = stage + lane * (P + 1), *sigma2 = stage + 32 * (P + 1) + lane * (P + 1), a[P];
    __syncwarp();
    const int stop = recurse<P>(r, (int)f.p, last, a, partial, sigma2);
    int order = stop < 0 ? last : stop ? stop - 1 : 0;
    if (f.penalty >= 0.0) {
        order = best_order(sigma2, order, (double)f.n_times, f.penalty);
        at_order<P>(order, partial, a);
    }
    if (exists) {
        f.stops_at[s] = stop;
        f.order[s] = order;
    }
    __syncwarp();
    write_rows(f.partial, stage, first, rows, f.p + 1, P + 1);
    write_rows(f.sigma2, stage + 32 * (P + 1), first, rows, f.p + 1, P + 1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < P; i++) partial[i] = a[i];
    __syncwarp();
    write_rows(f.coef, stage, first, rows, f.p, P + 1);
}

template <int P>
__device__ __forceinline__ void fit(const Fit& f) {
    __shared__ double stage[2 * TILE * PITCH];
    const u32 first = blockIdx.x * 32, s = first + threadIdx.x;
    const bool exists = s < f.n_series;
    const real* x = f.x + (u64)(exists ? s : first) * f.stride;
    const double base = f.demean ? (double)x[0] : 0.0;
    double sums[P + 1], mean;
    long long bad;
    const double total = add_products<P>(f, (real*)stage, first, base, sums);
    const bool finite = centre<P>(f, x, base, total, sums, mean, bad);
    const double power = finite ? sums[0] / f.n_times : sums[0];
#pragma unroll
    for (int lag = 1; lag <= P; lag++) sums[lag] = finite && lag <= (int)f.p ? sums[lag] / f.n_times : 0.0;
    sums[0] = power > 0.0 ? power : 0.0;
    if (exists) {
        f.mean[s] = fabs(mean) < INFINITY ? mean : 0.0;
        f.power[s] = power >= 0.0 ? power : power < 0.0 ? 0.0 : INFINITY;
        f.bad[s] = bad;
    }
    finish<P>(f, first, exists, sums, (int)f.p, stage);
}

template <int P>
__device__ __forceinline__ void predict(const Fit& f) {
    __shared__ double stage[2 * TILE * PITCH];
    const u32 first = blockIdx.x * 32, s = first + threadIdx.x, rows = f.n_series - first < 32 ? f.n_series - first : 32;
    for (u32 k = 0; k < rows; k++)
        for (u32 i = threadIdx.x; i <= f.p; i += 32) stage[k * (P + 1) + i] = (double)f.x[(u64)(first + k) * f.stride + i];
    __syncwarp();
    const bool exists = s < f.n_series;
    double r[P + 1];
#pragma unroll
    for (int i = 0; i <= P; i++) r[i] = exists && i <= (int)f.p ? stage[threadIdx.x * (P + 1) + i] : 0.0;
    finish<P>(f, first, exists, r, exists ? f.last ? f.last[s] : (int)f.p : 0, stage);
}

#define KERNELS(P)                                                                                       \
    extern "C" __global__ void __launch_bounds__(32) series_fit_##P(Fit f) { fit<P>(f); }                \
    extern "C" __global__ void __launch_bounds__(32) series_predict_##P(Fit f) { predict<P>(f); }

KERNELS(8)
KERNELS(16)
KERNELS(32)
