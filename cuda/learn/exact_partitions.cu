// The exact posterior under a modular prior: sums over the ordered partitions of all graphs, nothing is subtracted.
//
// F(U, T) is the total weight of the graphs over U and T whose last part is T, B(U, T) that of all continuations; both are
// tables of logarithms of 3^n cells, U and T are digits 1 and 2 of a number to the base 3. With
// tau_v(U, L) the weight of the parent sets of v within U that have a member in L:
//     F(U, T) = sum over L within U of F(U - L, L) prod_{v in T} tau_v(U, L),
//     B(U - L, L) = sum over X outside U of B(U, X) prod_{v in X} tau_v(U, L).
// A launch takes the sets U of one size. A block takes one U and subsets L, 64 at a time; it computes tau of all other
// variables and its products by groups of three variables, so a term takes a few multiplications.
// `backward_level` also leaves the derivatives of ln Z by tau, divided by tau; `fold_shares` and `gather_shares` turn them
// into those by the sums over the parent sets that have a certain member. Every cell has one writer.
// jtgpu/learn/dags/gpu_exact.py fills the structs.
#include "learn/wide.cuh"

#define THREADS 128
#define CHUNK 64  // subsets L
#define ROW 512   // sets X that are in shared memory at a time
#define MOST 20   // variables

struct Partitions {
    const double* hits;      // (n, n, 2**n) [v, u, U]: of the parent sets of v within U that contain u
    double *forward, *backward;  // (3**n,)
    const u32* powers;       // (2**n,) sum of 3**i over the members
    const u32* sets;         // (2**n,) by size
    const u32* rank;         // (2**n,) number among the sets of the size
    double* partial;         // (n_sets, n_splits, 2**(n - level))
    double* shares;          // of some levels, from starts[level] on: (n_sets, n - level, 2**level)
    double* of_hits;         // (n, n, 2**n) derivatives, updated
    const double* log_weights;  // (n, n_parent_sets)
    const long long* masks;  // (n_parent_sets,)
    double* families;        // (n, n_parent_sets)
    double* ends;            // (2**n,)
    const u32* last;         // (n_draws,) last parts
    const double* u;         // (n, n_draws)
    long long *before, *met; // (n, n_draws)
    double* totals;          // (n, n_draws)
    double log_z;
    u64 first;               // of `sets`, of this level
    u64 starts[MOST + 1];
    u32 n, level, n_sets, n_tiles, n_splits, n_parent_sets, n_draws, last_level;  // gather_shares: level to last_level
};

struct Own {  // a set U and its members, in shared memory
    u32 set, n_members, n_others;
    u32 members[MOST], others[MOST];
    u32 low[CHUNK];  // subsets of the lowest members
};

struct Cells {  // in shared memory
    double* m;
    int* e;

    __device__ __forceinline__ Wide get(u32 i) const { return {m[i], e[i]}; }
    __device__ __forceinline__ void put(u32 i, Wide x) const {
        m[i] = x.m;
        e[i] = x.e;
    }
    __device__ __forceinline__ Cells from(u32 i) const { return {m + i, e + i}; }
};

__device__ __forceinline__ u32 lowest(u32 set) { return (u32)__popc((set & (0u - set)) - 1); }
__device__ __forceinline__ u32 smaller(u32 x, u32 y) { return x < y ? x : y; }

__device__ __forceinline__ u64 cell_of(const Partitions& p, u32 before, u32 last) {
    return (u64)p.powers[before] + 2 * (u64)p.powers[last];
}

__device__ __forceinline__ Wide hit(const Partitions& p, u32 v, u32 u, u32 set) {
    return split(p.hits[((u64)(v * p.n + u) << p.n) + set]);
}

// tau of v; the first member of a parent set in `last` is its lowest variable, or the second lowest and not the lowest, ...
__device__ __forceinline__ Wide meeting(const Partitions& p, u32 v, u32 before, u32 last) {
    Wide sum = zero();
    for (; last; last &= last - 1) {
        const u32 u = lowest(last);
        add(sum, hit(p, v, u, before));
        before &= ~(1u << u);
    }
    return sum;
}

__device__ __forceinline__ u32 subset(const u32* members, u32 mask) {
    u32 found = 0;
    for (; mask; mask &= mask - 1) found |= 1u << members[lowest(mask)];
    return found;
}

__device__ __forceinline__ void enter(const Partitions& p, u32 set, Own& own) {
    if (threadIdx.x == 0) {
        own.set = set;
        own.n_members = own.n_others = 0;
        for (u32 v = 0; v < p.n; v++) {
            if (set >> v & 1) own.members[own.n_members++] = v;
            else own.others[own.n_others++] = v;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < CHUNK && !(i >> own.n_members); i += THREADS) own.low[i] = subset(own.members, i);
    __syncthreads();
}

__device__ __forceinline__ u32 chunk_size(u32 level) { return level < 6 ? 1u << level : CHUNK; }
__device__ __forceinline__ u32 high_part(const Own& own, u32 chunk) { return subset(own.members + 6, chunk); }

// tau of all other variables, (n_others, CHUNK), for the subsets of a chunk: one sum more for every member.
__device__ __forceinline__ void meeting_sums(const Partitions& p, const Own& own, u32 high, const Cells& sums) {
    const u32 size = chunk_size(own.n_members);
    for (u32 j = threadIdx.x; j < own.n_others; j += THREADS)
        sums.put(j * CHUNK, meeting(p, own.others[j], own.set, high));
    for (u32 b = 0; 1u << b < size; b++) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < own.n_others << b; i += THREADS) {
            const u32 j = i >> b, l = i & ((1u << b) - 1);
            Wide x = sums.get(j * CHUNK + l);
            add(x, hit(p, own.others[j], own.members[b], own.set & ~high & ~own.low[l]));
            sums.put(j * CHUNK + l + (1u << b), x);
        }
    }
    __syncthreads();
}

// Products of tau over the subsets x of three variables, for each group of three and each L; times F(U - L, L) in the
// first group if is_forward. Cell [group][L][x], or [group][x][L].
template <bool IS_FORWARD>
__device__ __forceinline__ void group_products(
    const Partitions& p, const Own& own, u32 high, const Cells& sums, const Cells& groups) {
    const u32 size = chunk_size(own.n_members), n_groups = own.n_others ? (own.n_others + 2) / 3 : 1;
    for (u32 i = threadIdx.x; i < n_groups * size; i += THREADS) {
        const u32 g = i / size, l = i % size;
        Wide products[8] = {{1.0, 0}};
        if (IS_FORWARD && g == 0) {
            const u32 last = high | own.low[l];
            products[0] = last ? split(p.forward[cell_of(p, own.set ^ last, last)]) : zero();
        }
#pragma unroll
        for (u32 b = 0; b < 3; b++) {
            const Wide x = 3 * g + b < own.n_others ? normalised(sums.get((3 * g + b) * CHUNK + l)) : zero();
#pragma unroll
            for (u32 y = 0; y < 1u << b; y++) {
                Wide z = normalised(product(products[y], x));
                products[(1u << b) + y] = z;
            }
        }
#pragma unroll
        for (u32 x = 0; x < 8; x++)
            groups.put(IS_FORWARD ? (g * CHUNK + l) * 8 + x : (g * 8 + x) * CHUNK + l, products[x]);
    }
    __syncthreads();
}

// Part of a row of F: a thread has 2**R sets T that differ in their lowest variables, and every so many-th L.
template <int R>
__device__ __forceinline__ void forward_row(const Partitions& p, const Own& own, u32 tile, u32 from_split) {
    const u32 c = own.n_others, h = c - R, n_high = smaller(1u << h, THREADS), slices = THREADS / n_high;
    const u32 at_high = threadIdx.x % n_high, slice = threadIdx.x / n_high, high_set = tile * n_high + at_high;
    const u32 size = chunk_size(own.n_members), n_groups = c ? (c + 2) / 3 : 1;
    const u32 n_chunks = own.n_members > 6 ? 1u << (own.n_members - 6) : 1, n_cells = c * CHUNK + (n_groups < 2 ? 2 : n_groups) * 512;
    const Cells sums = {exact_memory, (int*)(exact_memory + n_cells)}, groups = sums.from(c * CHUNK);
    Wide totals[1 << R];
#pragma unroll
    for (u32 t = 0; t < 1u << R; t++) totals[t] = zero();
    const u32 begin = n_chunks / p.n_splits * from_split, end = begin + n_chunks / p.n_splits;
    for (u32 chunk = begin; chunk < end; chunk++) {
        const u32 high = high_part(own, chunk);
        __syncthreads();
        meeting_sums(p, own, high, sums);
        group_products<true>(p, own, high, sums, groups);
        for (u32 l = slice; l < size; l += slices) {
            Wide base = {1.0, 0};
            for (u32 g = 1; g < n_groups; g++)
                base = product(base, groups.get((g * CHUNK + l) * 8 + (high_set >> 3 * (g - 1) & 7)));
            if (base.m == 0.0) continue;
#pragma unroll
            for (u32 t = 0; t < 1u << R; t++) add(totals[t], product(base, groups.get(l * 8 + t)));
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 t = 0; t < 1u << R; t++) groups.put(t * THREADS + threadIdx.x, totals[t]);
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_high << R; i += THREADS) {
        const u32 t = i & ((1u << R) - 1), at = i >> R, set = (tile * n_high + at) << R | t;
        Wide sum = zero();
        for (u32 s = 0; s < slices; s++) add(sum, groups.get(t * THREADS + s * n_high + at));
        const double x = log_of(sum);
        if (p.n_splits > 1) p.partial[((((u64)blockIdx.x / p.n_tiles) << c)) + set] = x;
        else p.forward[cell_of(p, own.set, subset(own.others, set))] = x;
    }
}

// Blocks: (set, split, tile).
extern "C" __global__ void __launch_bounds__(THREADS) forward_level(GRID_CONSTANT Partitions p) {
    __shared__ Own own;
    const u32 tile = blockIdx.x % p.n_tiles, split = blockIdx.x / p.n_tiles % p.n_splits;
    enter(p, p.sets[p.first + blockIdx.x / p.n_tiles / p.n_splits], own);
    switch (own.n_others) {
        case 0: forward_row<0>(p, own, tile, split); break;
        case 1: forward_row<1>(p, own, tile, split); break;
        case 2: forward_row<2>(p, own, tile, split); break;
        default: forward_row<3>(p, own, tile, split);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) join_splits(GRID_CONSTANT Partitions p) {
    const u32 c = p.n - p.level;
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (u64)p.n_sets << c) return;
    const u32 number = (u32)(i >> c), mask = (u32)(i & ((1u << c) - 1)), set = p.sets[p.first + number];
    Wide sum = zero();
    for (u32 s = 0; s < p.n_splits; s++) add(sum, ::split(p.partial[(((u64)number * p.n_splits + s) << c) + mask]));
    u32 last = 0;
    for (u32 v = 0, j = 0; v < p.n; v++)
        if (!(set >> v & 1)) last |= (mask >> j++ & 1) << v;
    p.forward[cell_of(p, set, last)] = log_of(sum);
}

// F without predecessors, and the last continuations: a thread a set.
extern "C" __global__ void __launch_bounds__(THREADS) first_parts(GRID_CONSTANT Partitions p) {
    const u32 set = blockIdx.x * THREADS + threadIdx.x, every = (1u << p.n) - 1;
    if (set > every) return;
    double sum = 0.0;
    for (u32 left = set; left; left &= left - 1) sum += p.log_weights[(u64)lowest(left) * p.n_parent_sets];
    p.forward[2 * (u64)p.powers[set]] = sum;
    if (set) p.backward[cell_of(p, every ^ set, set)] = 0.0;
}

// ln F of all graphs by their last part.
extern "C" __global__ void __launch_bounds__(THREADS) last_parts(GRID_CONSTANT Partitions p) {
    const u32 set = blockIdx.x * THREADS + threadIdx.x, every = (1u << p.n) - 1;
    if (set <= every) p.ends[set] = set ? p.forward[cell_of(p, every ^ set, set)] : -infinity();
}

// ln of the probability of each first part.
extern "C" __global__ void __launch_bounds__(THREADS) root_parts(GRID_CONSTANT Partitions p) {
    const u32 set = blockIdx.x * THREADS + threadIdx.x, every = (1u << p.n) - 1;
    if (set > every) return;
    const u64 at = 2 * (u64)p.powers[set];
    p.ends[set] = set ? p.forward[at] + p.backward[at] - p.log_z : -infinity();
}

// B of the subsets of a chunk, and the derivatives: a thread has one L, and every so many-th group of 2**R sets X.
template <int R>
__device__ __forceinline__ void backward_chunk(const Partitions& p, const Own& own, u32 number, u32 chunk) {
    const u32 c = own.n_others, h = c - R, size = chunk_size(own.n_members), slices = THREADS / size;
    const u32 l = threadIdx.x % size, slice = threadIdx.x / size, n_groups = (c + 2) / 3;
    const u32 high = high_part(own, chunk), n_cells = c * CHUNK + n_groups * 512 + ROW + (c + 1) * THREADS;
    const Cells sums = {exact_memory, (int*)(exact_memory + n_cells)}, groups = sums.from(c * CHUNK);
    const Cells row = groups.from(n_groups * 512), with = row.from(ROW);  // with: sums over the X that contain a variable
    meeting_sums(p, own, high, sums);
    group_products<false>(p, own, high, sums, groups);
    Wide low[1 << R], total = zero(), of_low[R];
#pragma unroll
    for (u32 t = 0; t < 1u << R; t++) low[t] = groups.get(t * CHUNK + l);
#pragma unroll
    for (u32 b = 0; b < R; b++) of_low[b] = zero();
    for (u32 j = 0; j < h; j++) with.put((R + j) * THREADS + threadIdx.x, zero());
    const u32 n_row = smaller(ROW, 1u << c);
    for (u32 first = 0; first < 1u << c; first += n_row) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < n_row; i += THREADS) {
            const u32 x = subset(own.others, first + i);
            row.put(i, x ? split(p.backward[cell_of(p, own.set, x)]) : zero());
        }
        __syncthreads();
        for (u32 i = slice; i < n_row >> R; i += slices) {
            const u32 x = (first >> R) + i;
            Wide base = {1.0, 0};
            for (u32 g = 1; g < n_groups; g++)
                base = product(base, groups.get((g * 8 + (x >> 3 * (g - 1) & 7)) * CHUNK + l));
            if (base.m == 0.0) continue;
            Wide terms[1 << R];
#pragma unroll
            for (u32 t = 0; t < 1u << R; t++) terms[t] = product(low[t], row.get(i << R | t));
#pragma unroll
            for (int b = R - 1; b >= 0; b--) {  // halves: with variable b and without
                Wide upper = terms[1 << b];
#pragma unroll
                for (u32 t = 1; t < 1u << b; t++) add(upper, terms[(1 << b) + t]);
#pragma unroll
                for (u32 t = 0; t < 1u << b; t++) add(terms[t], terms[(1 << b) + t]);
                add(of_low[b], product(base, upper));
            }
            const Wide all = product(base, terms[0]);
            add(total, all);
            for (u32 left = x; left; left &= left - 1) {
                const u32 at = (R + lowest(left)) * THREADS + threadIdx.x;
                Wide sum = with.get(at);
                add(sum, all);
                with.put(at, sum);
            }
        }
    }
#pragma unroll
    for (u32 b = 0; b < R; b++) with.put(b * THREADS + threadIdx.x, of_low[b]);
    with.put(c * THREADS + threadIdx.x, total);
    __syncthreads();
    if (slice) return;
    const u32 last = high | own.low[l], at_low = chunk * CHUNK + l;
    double of_graphs = -infinity();
    if (last) {
        total = zero();
        for (u32 s = 0; s < slices; s++) add(total, with.get(c * THREADS + s * size + l));
        const u64 at = cell_of(p, own.set ^ last, last);
        p.backward[at] = log_of(total);
        of_graphs = p.forward[at] - p.log_z;
    }
    for (u32 j = 0; j < c; j++) {
        Wide sum = zero();
        for (u32 s = 0; s < slices; s++) add(sum, with.get(j * THREADS + s * size + l));
        const Wide factor = sums.get(j * CHUNK + l);
        double x = -infinity();
        if (sum.m > 0.0 && of_graphs > -infinity()) x = of_graphs + log(sum.m / factor.m) + (sum.e - factor.e) * LN2;
        p.shares[p.starts[p.level] + (((u64)number * c + j) << p.level) + at_low] = x;
    }
}

// Blocks: (set, chunk).
extern "C" __global__ void __launch_bounds__(THREADS) backward_level(GRID_CONSTANT Partitions p) {
    __shared__ Own own;
    const u32 n_chunks = p.level > 6 ? 1u << (p.level - 6) : 1, number = blockIdx.x / n_chunks;
    enter(p, p.sets[p.first + number], own);
    switch (own.n_others) {
        case 1: backward_chunk<1>(p, own, number, blockIdx.x % n_chunks); break;
        case 2: backward_chunk<2>(p, own, number, blockIdx.x % n_chunks); break;
        default: backward_chunk<3>(p, own, number, blockIdx.x % n_chunks);
    }
}

// Derivatives by the sum that the highest member of L added: those of all L with the same lower members. A block a row.
extern "C" __global__ void __launch_bounds__(THREADS) fold_shares(GRID_CONSTANT Partitions p) {
    double* row = p.shares + p.starts[p.level] + ((u64)blockIdx.x << p.level);
    for (int b = (int)p.level - 1; b > 0; b--) {
        __syncthreads();
        for (u32 i = 1 + threadIdx.x; i < 1u << b; i += THREADS) row[i] = log_add(row[i], row[(1u << b) + i]);
    }
}

// Add the derivatives of some levels by hits[v, u, B]: U is B and members D of L that are lower than u. A thread a cell.
extern "C" __global__ void __launch_bounds__(THREADS) gather_shares(GRID_CONSTANT Partitions p) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    const u32 within = (u32)(i & ((1u << p.n) - 1)), pair = (u32)(i >> p.n), v = pair / p.n, u = pair % p.n;
    if (v >= p.n || v == u || within >> v & 1 || !(within >> u & 1)) return;
    const u32 free = ~within & ((1u << u) - 1) & ~(1u << v), size = (u32)__popc(within);
    if (size > p.last_level || size + (u32)__popc(free) < p.level) return;
    Wide sum = zero();
    u32 d = 0;
    do {
        const u32 level = size + (u32)__popc(d);
        if (p.level <= level && level <= p.last_level) {
            const u32 set = within | d;
            const u64 row = (u64)p.rank[set] * (p.n - level) + __popc(~set & ((1u << v) - 1));
            u32 at = 1u << __popc(set & ((1u << u) - 1));
            for (u32 left = d; left; left &= left - 1) at |= 1u << __popc(set & ((left & (0u - left)) - 1));
            add(sum, split(p.shares[p.starts[level] + (row << level) + at]));
        }
        d = (d - free) & free;
    } while (d);
    p.of_hits[i] = log_add(p.of_hits[i], log_of(sum));
}

// Probabilities of parent sets but the empty one, from derivatives summed over supersets.
extern "C" __global__ void __launch_bounds__(THREADS) partition_families(GRID_CONSTANT Partitions p) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (u64)p.n * p.n_parent_sets) return;
    const u32 v = (u32)(i / p.n_parent_sets), parents = expanded((u32)p.masks[i % p.n_parent_sets], v);
    Wide sum = zero();
    for (u32 left = parents; left; left &= left - 1)
        add(sum, split(p.of_hits[((u64)(v * p.n + lowest(left)) << p.n) + parents]));
    p.families[i] = exp(p.log_weights[i] + log_of(sum));
}

// Draw the parts of partitions from the last one on, a block a partition: the part before T is L with a probability
// proportional to its term of F(U, T).
extern "C" __global__ void __launch_bounds__(THREADS) draw_parts(GRID_CONSTANT Partitions p) {
    __shared__ Own own;
    __shared__ double terms[THREADS];
    __shared__ u32 chosen;
    const u32 draw = blockIdx.x;
    u32 last = p.last[draw], before = ((1u << p.n) - 1) & ~last;
    for (u32 depth = 0; before; depth++) {
        __syncthreads();
        enter(p, before, own);
        const double total = p.forward[cell_of(p, before, last)], u = p.u[(u64)depth * p.n_draws + draw];
        const u32 n_subsets = (1u << own.n_members) - 1;
        double passed = 0.0;  // of thread 0
        bool found = false;
        if (threadIdx.x == 0) chosen = 0;
        for (u32 first = 0; first < n_subsets; first += THREADS) {  // the whole set first
            const u32 i = first + threadIdx.x;
            double term = 0.0;
            if (i < n_subsets) {
                const u32 part = subset(own.members, n_subsets - i);
                const double x = p.forward[cell_of(p, before ^ part, part)];
                Wide weight = {1.0, 0};
                for (u32 left = last; left && x > -infinity(); left &= left - 1)
                    weight = normalised(product(weight, meeting(p, lowest(left), before, part)));
                if (x > -infinity() && weight.m > 0.0) term = exp(x + log_of(weight) - total);
            }
            terms[threadIdx.x] = term;
            __syncthreads();
            if (threadIdx.x == 0)
                for (u32 j = 0; j < THREADS && !found; j++)
                    if (terms[j] > 0.0) {
                        chosen = n_subsets - (first + j);
                        passed += terms[j];
                        found = u < passed;
                    }
            if (__syncthreads_or(found)) break;
        }
        __syncthreads();
        const u32 part = subset(own.members, chosen);
        for (u32 left = last, j = 0; left; left &= left - 1, j++) {
            if (j % THREADS != threadIdx.x) continue;
            const u32 v = lowest(left);
            const u64 at = (u64)v * p.n_draws + draw;
            p.before[at] = squeezed(before, v);
            p.met[at] = squeezed(part, v);
            p.totals[at] = log_of(meeting(p, v, before, part));
        }
        last = part;
        before &= ~part;
    }
}
