// Markov chains over ordered partitions of the variables and graphs, a warp a chain: the steps of
// jtgpu/learn/dags/loops/partitions.py, of which the functions here have the names.
//
// Lanes are variables, or the candidate parents of one, or sets of a list. Random numbers are functions of the seed, the
// step and the chain's number; probabilities of arcs are added as integers.
#include "learn/partition_moves.cuh"

#define OF_ALL 0.25

// Those of the first k possible parents of v whose marks have none of the excluded bits.
__device__ __forceinline__ u64 free_of(const Partitions& o, const Chain& c, u32 v, u32 excluded, u32 k) {
    u64 found = 0;
    for (u32 first = 0; first < k; first += 32) {
        const u32 j = first + lane_number();
        const int u = j < k ? o.candidates[v * o.m + j] : -1;
        found |= (u64)__ballot_sync(ALL, u >= 0 && !(c.marks[u >= 0 ? u : 0] & excluded)) << first;
    }
    return found;
}

// Bit 0 of the descendants of i, and bit 1 of those of j, if both lose their parents. Both are in part `low` or later.
__device__ __forceinline__ void mark_descendants(const Partitions& o, const Chain& c, u32 i, u32 j, u32 low) {
    for (u32 v = lane_number(); v < o.n; v += 32) c.marks[v] = 0;
    __syncwarp();
    for (u32 level = low; level < c.m; level++) {
        for (u32 at = c.start[level] + lane_number(); at < c.start[level + 1]; at += 32) {
            const u32 v = c.order[at];
            u32 mark = (u32)(v == i) | (u32)(v == j) << 1;
            if (v != i && v != j)
                for (u64 left = c.parents[v]; left; left &= left - 1)
                    mark |= c.marks[o.candidates[v * o.m + lowest(left)]];
            c.marks[v] = mark;
        }
        __syncwarp();
    }
}

// Parts of the marked variables: those below j alone, then those below i. The others keep theirs.
__device__ __forceinline__ void number_parts(const Partitions& o, const Chain& c, u32 low) {
    for (u32 group = 1; group < 3; group++)
        for (u32 level = low; level < c.m; level++) {
            for (u32 at = c.start[level] + lane_number(); at < c.start[level + 1]; at += 32) {
                const u32 v = c.order[at], own = c.marks[v] & 1 ? 2 : c.marks[v] ? 1 : 0;
                if (own != group) continue;
                u32 part = 0;
                for (u64 left = c.parents[v]; left; left &= left - 1) {
                    const u32 above = c.part[o.candidates[v * o.m + lowest(left)]] + 1;
                    part = above > part ? above : part;
                }
                c.part[v] = (u16)part;
            }
            __syncwarp();
        }
}

// Predecessors and values of all variables whose predecessors have changed.
__device__ __forceinline__ void evaluate(const Partitions& o, const Chain& c) {
    for (u32 v = lane_number(); v < o.n; v += 32) {
        u64 before, last;
        predecessors(o, c.part, v, before, last);
        if (before == c.before[v] && last == c.last[v]) continue;
        c.before[v] = before;
        c.last[v] = last;
        c.rough[v] = rough_of(o, v, before, last);
        c.values[v] = o.n_segments ? infinity() : c.rough[v];
    }
    __syncwarp();
}

__device__ __forceinline__ bool reverse(const Partitions& o, Chain& c, const Random& r) {
    const u32 lane = lane_number(), n = o.n;
    u32 arcs = 0;
    const u32 k = o.n_segments && uniform(r.words[SETS]) < OF_ALL ? o.m : o.k;
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane;
        u32 missing = __ballot_sync(ALL, v < n && c.parents[v] == ANY);
        while (missing) {
            const u32 w = first + lowest(missing);
            missing &= missing - 1;
            const u32 set = draw_parents(o, c, w, uniform(r.word(DRAWS + w)));
            if (lane == 0) c.parents[w] = o.masks[(u64)w * o.n_sets + set];
        }
        __syncwarp();
        u32 count = v < n ? __popcll(c.parents[v]) : 0;
        for (u32 bit = 16; bit; bit >>= 1) count += __shfl_xor_sync(ALL, count, bit);
        arcs += count;
    }
    if (!arcs) return true;
    u32 number = below(r.words[FIRST], arcs), j = 0;
    for (u32 first = 0; first < n; first += 32) {  // the child of this arc
        const u32 v = first + lane, own = v < n ? __popcll(c.parents[v]) : 0;
        u32 sum = own;
        for (u32 by = 1; by < 32; by *= 2) {
            const u32 x = __shfl_up_sync(ALL, sum, by);
            if (lane >= by) sum += x;
        }
        const u32 has = __ballot_sync(ALL, sum > number), all = __shfl_sync(ALL, sum, 31);
        if (has) {
            const u32 at = lowest(has);
            j = first + at;
            number -= __shfl_sync(ALL, sum - own, at);
            break;
        }
        number -= all;
    }
    u64 left = c.parents[j];
    for (u32 x = 0; x < number; x++) left &= left - 1;
    const u32 i_in_j = lowest(left), i = (u32)o.candidates[j * o.m + i_in_j];
    u64 found = 0;
    for (u32 first = 0; first < k; first += 32) {
        const u32 at = first + lane;
        found |= (u64)__ballot_sync(ALL, at < k && o.candidates[i * o.m + (at < k ? at : 0)] == (int)j) << first;
    }
    if (!found || (c.parents[i] | c.parents[j]) >> k) return false;  // the way back is impossible
    const u32 j_in_i = lowest(found);
    __syncwarp();
    const u32 low = c.part[i] < c.part[j] ? c.part[i] : c.part[j];
    mark_descendants(o, c, i, j, low);
    const u64 for_i = free_of(o, c, i, 1, k), for_j = free_of(o, c, j, 3, k);
    const double z1 = total_of(o, i, for_i, 1ull << j_in_i), z2 = total_of(o, j, for_j, ANY);
    if (z1 == -infinity() || z2 == -infinity()) return false;
    const double z3 = total_of(o, j, free_of(o, c, j, 2, k), 1ull << i_in_j);
    const double z4 = total_of(o, i, free_of(o, c, i, 3, k), ANY);
    const u32 others = arcs - __popcll(c.parents[i]) - __popcll(c.parents[j]);
    const double log_u = log(uniform(r.words[ACCEPT]));
    // i gets a parent at least: most reversals are rejected before the sets are drawn
    if (!(log_u < log((double)arcs / (others + 1)) + z1 + z2 - z3 - z4)) return false;
    const u32 of_i = draw_set(o, i, for_i, 1ull << j_in_i, z1, uniform(r.words[SECOND]));
    const u32 of_j = draw_set(o, j, for_j, ANY, z2, uniform(r.words[THIRD]));
    const u64 new_i = o.masks[(u64)i * o.n_sets + of_i], new_j = o.masks[(u64)j * o.n_sets + of_j];
    const u32 after = others + __popcll(new_i) + __popcll(new_j);
    if (!(log_u < log((double)arcs / after) + z1 + z2 - z3 - z4)) return false;
    __syncwarp();
    if (lane == 0) {
        c.parents[i] = new_i;
        c.parents[j] = new_j;
    }
    __syncwarp();
    number_parts(o, c, low);
    sort(o, c);
    evaluate(o, c);
    return true;
}

// Draw a graph and add it to the sums.
__device__ __forceinline__ void take_sample(const Partitions& o, const Chain& c, const Random& r, u32 at) {
    const u32 lane = lane_number(), n = o.n;
    double weight = 0.0;
    for (u32 v = 0; v < n; v++) {
        const u32 set = draw_parents(o, c, v, uniform(r.word(DRAWS + n + v)));
        weight += o.weights[(u64)v * o.n_sets + set];
        if (lane == 0) c.parents[v] = o.masks[(u64)v * o.n_sets + set];
    }
    __syncwarp();
    // arcs from the part before count by their probability, given the partition and that all parents are candidates
    const u64 inner = inner_of(o);
    for (u32 v = lane; v < n; v += 32) {
        u64 before = c.before[v], last = c.last[v];
        double total = c.values[v];
        if (c.parents[v] & ~inner) {
            last = 0;
        } else if (o.n_segments) {
            before &= inner;
            total = of_candidates(o, v, before, last);
        }
        c.new_before[v] = before;
        c.new_last[v] = last;
        c.gains[v] = total;
    }
    __syncwarp();
    u64* arcs = o.arcs + (u64)(at / o.group) * n * n;
    for (u32 i = lane; i < n * o.m; i += 32) {
        const u32 v = i / o.m, bit = i % o.m;
        if (!(c.new_before[v] >> bit & 1)) continue;
        u64 share = 0;
        if (c.new_last[v] >> bit & 1) {
            double x = hit(o, v, bit, c.before[v]) - c.gains[v];
            x = x > NEGLIGIBLE ? x : NEGLIGIBLE;
            share = (u64)(exponential(x < 0.0 ? x : 0.0) * 4294967296.0 + 0.5);
        } else if (c.parents[v] >> bit & 1) {
            share = 4294967296ull;
        }
        if (share) atomicAdd(&arcs[(u64)o.candidates[i] * n + v], share);
    }
    if (weight > o.best_weight[at]) {
        __syncwarp();
        for (u32 v = lane; v < n; v += 32) o.best[(u64)at * n + v] = c.parents[v];
        if (lane == 0) o.best_weight[at] = weight;
        __syncwarp();
    }
}

// 8 blocks: 4,096 chains, the default, run at the same time on 132 multiprocessors.
extern "C" __global__ void __launch_bounds__(128, 8) partition_steps(GRID_CONSTANT Partitions o) {
    const u32 at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = lane_number(), n = o.n;
    if (at >= o.n_chains) return;
    Chain c = chain_of_warp(n);
    for (u32 v = lane; v < n; v += 32) {
        c.part[v] = o.parts[(u64)at * n + v];
        c.parents[v] = o.parents[(u64)at * n + v];
        c.before[v] = c.last[v] = ~1ull;  // not computed yet
    }
    if (lane < 8) c.moves[lane] = 0;
    __syncwarp();
    sort(o, c);
    evaluate(o, c);
    Random r;
    r.seed = o.seed;
    r.chain = o.first_chain + at;
    for (u32 t = 0; t < o.n_steps; t++) {
        r.begin(o.first + t);
        const double x = uniform(r.words[KIND]) - o.shares[0];
        u32 kind = 0;
        bool accepted;
        if (x < 0.0) {
            accepted = reverse(o, c, r);
        } else {
            kind = x < o.shares[1] ? 1 : x < o.shares[1] + o.shares[2] ? 2 : 3;
            accepted = change_partition(o, c, kind, r);
        }
        if (lane == 0) {
            c.moves[2 * kind]++;
            c.moves[2 * kind + 1] += accepted;
        }
        __syncwarp();
        if ((t + 1) % o.thin == 0) {
            if (t + o.thin >= o.n_steps) {
                double sum = 0.0;
                for (u32 v = 0; v < n; v++) sum += current(o, c, v);
                if (lane == 0) o.trace[at] = sum;
            }
            take_sample(o, c, r, at);
        }
    }
    for (u32 v = lane; v < n; v += 32) {
        o.parts[(u64)at * n + v] = c.part[v];
        o.parents[(u64)at * n + v] = c.parents[v];
    }
    if (lane < 8) o.moves[at * 8 + lane] += c.moves[lane];
}
