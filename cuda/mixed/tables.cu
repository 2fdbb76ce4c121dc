// Tables of cases of a network with numbers: densities into the discrete kernels, mixtures of normal distributions back.
//
//   mixed_weights    P(observed numbers | configuration) of every set of discrete parents, relative to the largest one
//   mixed_moments    mean and sd of the unobserved numbers from the posteriors of the configurations
//
// Cases that observe the same numbers are a pattern; its Cholesky factors and regressions come as affine maps of the
// observed numbers, of which only the coefficients other than zero are stored. A block takes cases of one pattern, a
// thread a case, so all coefficients are read once a warp; the case's numbers are in shared memory. Bound by these
// loads. jtgpu/mixed/gpu_maps.py repeats the layouts.
typedef unsigned int u32;
typedef unsigned long long u64;
#define NONE 0xffffffffu
#define THREADS 128
#define LN_2 0.6931471805599453

#ifdef __CUDACC__
extern __shared__ double observed[];  // (numbers that the pattern observes, THREADS) less their centres
#else
static double observed[64 * THREADS];
#endif

struct Maps {                // n affine maps for each of K configurations: base[d][i] + sum of coefficient[d][e] y[column[e]]
    u32 n_configs, n;
    u32 ends, columns;       // first of (n,) and (entries,) in Table.integers
    u32 base, coefficients;  // first of (n_configs, n) and (n_configs, entries) in Table.doubles
    u32 extra;               // (n_configs,) ln of the density's constant; (n_configs, n) variances
    u32 cells;               // first column of the set in the weights, or in the posteriors; NONE: no discrete parents
    u32 targets;             // moments: columns of (n,) results
    u32 masks, n_variables;  // weights: (n_variables, 3) variable, states, first of its masks in Table.allowed
    u32 n_entries;
};

struct Pattern {
    u32 n_observed, observed;          // numbers, in Table.integers; behind them, for each, its column of the results or NONE
    u32 densities, n_densities, moments, n_moments;  // in Table.maps
};

struct Block { u32 pattern, first, n, pad; };

struct Table {
    const Block* blocks;
    const Pattern* patterns;
    const Maps* maps;
    const u32* integers;
    const double* doubles;
    const u64* allowed;       // configurations of a set that a state of a variable leaves
    const u32* rows;          // cases, pattern after pattern
    const double* values;     // (n, n_numbers)
    const double* units;      // (n_numbers, 3) centre, scale, 1 / scale
    const signed char* states;  // (n, n_states), -1: not observed
    double* weights;          // (n, n_weights)
    double* log_scale;        // (n,)
    const double* posterior;  // (n, n_out)
    const double* log_evidence;  // (n,)
    double* mean;             // (n, n_targets)
    double* sd;
    u32* lost;                // (n,) whether weights that were too small may have mattered
    double least;             // ln of a likelihood above which they did not
    u32 n_numbers, n_states, n_weights, n_out, n_targets, pad;
};

__device__ __forceinline__ double map_of(const Table& t, const Maps& m, u32 config, u32 i) {
    const u32 end = t.integers[m.ends + i];
    u32 e = i ? t.integers[m.ends + i - 1] : 0;
    double x = t.doubles[m.base + config * m.n + i];
    for (; e < end; e++)
        x += t.doubles[m.coefficients + (u64)config * m.n_entries + e] * observed[t.integers[m.columns + e] * THREADS + threadIdx.x];
    return x;
}

// The case of this thread, or NONE; its observed numbers are in shared memory then.
__device__ __forceinline__ u32 read_case(const Table& t, const Block& b, const Pattern& p) {
    if (threadIdx.x >= b.n) return NONE;
    const u32 row = t.rows[b.first + threadIdx.x];
    for (u32 i = 0; i < p.n_observed; i++) {
        const u32 g = t.integers[p.observed + i];
        observed[i * THREADS + threadIdx.x] = t.values[(u64)row * t.n_numbers + g] * t.units[3 * g + 2] - t.units[3 * g];
    }
    return row;
}

extern "C" __global__ void __launch_bounds__(THREADS) mixed_weights(const Table t) {
    const Block b = t.blocks[blockIdx.x];
    const Pattern p = t.patterns[b.pattern];
    const u32 row = read_case(t, b, p);
    if (row == NONE) return;
    double shift = 0.0;
    for (u32 k = 0; k < p.n_densities; k++) {
        const Maps& m = t.maps[p.densities + k];
        double* const weights = t.weights + (u64)row * t.n_weights + m.cells;
        u64 allowed = ~0ull;
        for (u32 i = 0; i < m.n_variables; i++) {
            const u32* const variable = t.integers + m.masks + 3 * i;
            const int state = t.states[(u64)row * t.n_states + variable[0]];
            if (state >= 0) allowed &= t.allowed[variable[2] + state];
        }
        double top = -INFINITY;
        for (u32 d = 0; d < m.n_configs; d++) {
            if (!(allowed >> d & 1)) continue;
            double squares = 0.0;
            for (u32 i = 0; i < m.n; i++) {
                const double z = map_of(t, m, d, i);
                squares += z * z;
            }
            const double x = t.doubles[m.extra + d] - 0.5 * squares;
            if (m.cells != NONE) weights[d] = x;
            top = x > top ? x : top;
            if (x != x) shift = x;  // of numbers beyond a double's range: the host answers
        }
        shift += top;
        if (m.cells == NONE) continue;
        shift += LN_2;  // the largest weight is 1/2: the discrete kernels take at most 1
        for (u32 d = 0; d < m.n_configs; d++) {
            const double x = allowed >> d & 1 ? weights[d] - top : -INFINITY;
            weights[d] = x > t.least ? 0.5 * exp(x) : 0.0;
        }
    }
    t.log_scale[row] = shift;
}

extern "C" __global__ void __launch_bounds__(THREADS) mixed_moments(const Table t) {
    const Block b = t.blocks[blockIdx.x];
    const Pattern p = t.patterns[b.pattern];
    const u32 row = read_case(t, b, p);
    if (row == NONE) return;
    const double relative = t.log_evidence[row] - t.log_scale[row];
    const bool lost = !(relative > 0.5 * t.least);
    t.lost[row] = lost;
    double* const mean = t.mean + (u64)row * t.n_targets;
    double* const sd = t.sd + (u64)row * t.n_targets;
    for (u32 i = 0; i < p.n_observed; i++) {
        const u32 column = t.integers[p.observed + p.n_observed + i], g = t.integers[p.observed + i];
        if (column != NONE) mean[column] = t.values[(u64)row * t.n_numbers + g], sd[column] = 0.0;
    }
    for (u32 k = 0; k < p.n_moments; k++) {
        const Maps& m = t.maps[p.moments + k];
        const double* const cells = t.posterior + (u64)row * t.n_out + m.cells;
        u32 likeliest = 0;
        if (m.cells != NONE)
            for (u32 d = 1; d < m.n_configs; d++) likeliest = cells[d] > cells[likeliest] ? d : likeliest;
        for (u32 i = 0; i < m.n; i++) {
            const u32 column = t.integers[m.targets + i], g = t.integers[m.targets + m.n + i];
            const double middle = map_of(t, m, likeliest, i), scale = t.units[3 * g + 1];
            double total = 0.0, squares = 0.0;
            for (u32 d = 0; d < m.n_configs; d++) {
                const double weight = m.cells == NONE ? 1.0 : cells[d];
                if (weight == 0.0) continue;
                const double gap = d == likeliest ? 0.0 : map_of(t, m, d, i) - middle;
                total += weight * gap;
                squares += weight * (t.doubles[m.extra + d * m.n + i] + gap * gap);
            }
            mean[column] = (middle + total) * scale;
            sd[column] = sqrt(squares - total * total) * scale;
        }
    }
}
