// Betweenness (Brandes, 2001) of 32 sources at a time: source i is bit i of a mask, and lane i of a row of numbers.
//
// A block takes one batch of sources after another and walks its levels forward and back; levels are separated by block
// barriers, and blocks never wait for each other. A level lists the vertices that any lane has at this distance, with
// the mask of these lanes. `state` has, for each vertex, the lanes that have reached it and the lanes of three levels
// (modulo 3), so that testing an arc reads 4 bytes, and numbers only where lanes agree. Numbers are pulled by the
// vertex that they belong to, in the order of its arcs: sums are bit-identical in each run, and no float atomics are
// needed. A warp takes up to 32 entries of a level: vertices with few lanes and arcs get a thread each, the others the
// whole warp, with a lane for each source.
//
// jtgpu/graphs/gpu.py fills the structs.
typedef unsigned int u32;
typedef unsigned long long u64;

#define LANES 32
#define ALL 0xffffffffu
#define WIDE 16       // more arcs than this are expanded by a warp
#define AHEAD 4       // loads of a thread at a time
#define FEW_ARCS 8    // vertices with at most so many arcs, and few lanes, get a thread
#define MANY 1e290    // paths: the reciprocals of more lose digits
#define UNIT 0x1p512  // scaled numbers are m * UNIT^e
#define SMALL 0x1p-512

struct Arcs {
    const u32 *first, *head;  // of vertex v: head[first[v]] to head[first[v + 1] - 1]
};

struct Batch {
    u32 source, source_end, vertex, vertex_end;  // its sources; the component that they are in
};

struct Part {  // batches whose sums are added up by one block, in order
    u32 batch, batch_end, vertex, vertex_end, arc, arc_end;
    u64 node, edge;  // where its sums begin
};

struct Chunk {  // consecutive parts, added up in order by `sum_parts`
    u32 part, part_end, vertex, vertex_end, arc, arc_end;
    u64 node, edge;  // where the result begins
};

struct Job {
    Arcs out, in;              // in: by head, with tails; the same where the graph is undirected
    const double* reach;       // targets that a vertex stands for
    const u32* sources;
    const double* multiplicity;  // sources that a source stands for
    const Batch* batches;
    const Part* parts;
    const Chunk* chunks;
    double *node, *edge;               // sums of parts
    double *chunk_node, *chunk_edge;   // sums of chunks
    char* scratch;
    u64 stride;                // bytes of scratch of a block
    u32* next;                 // the part that is taken next
    u32* failed;               // batches with too many paths
    u32 n_parts, n_chunks, largest, endpoints;
    u32 few_lanes, pad;        // of vertices that get a thread
};

struct Scratch {
    double* x;           // (n, 32) numbers of paths; on the way back (reach + dependency) / paths
    int* scale;          // (n, 32) their exponents
    u32* state;          // (n, 4) lanes that have reached a vertex; those of levels 0, 1, 2 modulo 3
    u32 *list, *mask;    // vertices and lanes, level after level
    u32* bounds;         // where the levels begin
};

struct Number {
    double m;
    int e;
};

__device__ __forceinline__ double shrink(double x, int by) {
    for (int i = 0; i < by && i < 3; i++) x *= SMALL;
    return x;
}

template <bool SCALED>
__device__ __forceinline__ Number load(const Scratch& s, u32 vertex, u32 lane) {
    const u64 at = (u64)vertex * LANES + lane;
    return {s.x[at], SCALED ? s.scale[at] : 0};
}

template <bool SCALED>
__device__ __forceinline__ void store(const Scratch& s, u32 vertex, u32 lane, Number value) {
    const u64 at = (u64)vertex * LANES + lane;
    s.x[at] = value.m;
    if (SCALED) s.scale[at] = value.e;
}

template <bool SCALED>
__device__ __forceinline__ void add(Number& to, Number more) {
    if (SCALED) {
        const int apart = more.e - to.e;
        to.m = shrink(to.m, apart) + shrink(more.m, -apart);
        if (apart > 0) to.e = more.e;
        if (to.m > UNIT) {
            to.m *= SMALL;
            to.e++;
        }
    } else {
        to.m += more.m;
    }
}

// The same tree of additions in every run.
__device__ __forceinline__ double warp_sum(double x) {
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}

// Some entries of a level, one in each lane of a warp.
struct Entries {
    u32 vertex, mask, arc, arc_end;

    __device__ Entries(const Scratch& s, const Arcs& arcs, u32 lo, u32 at, bool exists, int slot) {
        vertex = mask = arc = arc_end = 0;
        if (exists) {
            vertex = s.list[at];
            mask = slot < 0 ? s.mask[at] : s.state[4 * vertex + slot];
            arc = arcs.first[lo + vertex];
            arc_end = arcs.first[lo + vertex + 1];
        }
    }
    __device__ Entries(const Entries& e, u32 lane)  // that of one lane, in all lanes
        : vertex(__shfl_sync(ALL, e.vertex, lane)), mask(__shfl_sync(ALL, e.mask, lane)),
          arc(__shfl_sync(ALL, e.arc, lane)), arc_end(__shfl_sync(ALL, e.arc_end, lane)) {}
    __device__ bool is_small(u32 few_lanes) const { return arc_end - arc <= FEW_ARCS && __popc(mask) <= few_lanes; }
};

// Distribute the entries of a level over the warps: every lane calls `visit(at, exists)`.
template <class Visit>
__device__ __forceinline__ void distribute(u32 begin, u32 end, Visit visit) {
    const u32 n_warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 step = (end - begin + n_warps - 1) / n_warps;
    if (step > 32) step = 32;
    for (u32 i = begin + warp * step; i < end; i += n_warps * step) visit(i + lane, lane < step && i + lane < end);
}

// Add the heads of some arcs, every `step`-th one, to the next level, in the lanes that have not reached them.
__device__ __forceinline__ void mark(
    const Scratch& s, const u32* head, u32 lo, u32 arc, u32 arc_end, u32 step, u32 lanes, u32 slot, u32* n_listed
) {
    for (; arc < arc_end; arc += AHEAD * step) {
        u32 v[AHEAD], more[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) v[i] = arc + i * step < arc_end ? head[arc + i * step] - lo : ALL;
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            more[i] = 0;
            if (v[i] == ALL) continue;
            const u32* state = s.state + 4 * v[i];
            more[i] = lanes & ~state[0];
            if (!(more[i] & ~state[slot])) more[i] = 0;
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++)
            if (more[i] && atomicOr(s.state + 4 * v[i] + slot, more[i]) == 0) s.list[atomicAdd(n_listed, 1u)] = v[i];
    }
}

__device__ __forceinline__ void expand(
    const Job& job, const Scratch& s, u32 lo, u32 begin, u32 end, u32 slot, u32* n_listed
) {
    const u32 lane = threadIdx.x % 32;
    distribute(begin, end, [&](u32 at, bool exists) {
        const Entries own(s, job.out, lo, at, exists, -1);
        const bool wide = own.arc_end - own.arc > WIDE;
        if (!wide) mark(s, job.out.head, lo, own.arc, own.arc_end, 1, own.mask, slot, n_listed);
        for (u32 left = __ballot_sync(ALL, wide); left; left &= left - 1) {
            const Entries e(own, __ffs(left) - 1);
            mark(s, job.out.head, lo, e.arc + lane, e.arc_end, 32, e.mask, slot, n_listed);
        }
    });
}

// 32 arcs of a vertex, one in each lane: the other end, and the lanes where it has a level.
struct Look {
    u32 other, hit;

    __device__ Look(const Scratch& s, const Entries& e, const u32* others, u32 lo, u32 slot, u32 base) {
        const u32 arc = base + threadIdx.x % 32;
        other = hit = 0;
        if (arc < e.arc_end) {
            other = others[arc] - lo;
            hit = s.state[4 * other + slot] & e.mask;
        }
    }
};

// The numbers of a vertex's neighbours in the lanes where they have a level: `use(arc, number)`, in the order of arcs.
template <bool SCALED, class Use>
__device__ __forceinline__ void gather(
    const Scratch& s, const Entries& e, const u32* others, u32 lo, u32 slot, Look look, Use use
) {
    const u32 lane = threadIdx.x % 32;
    for (u32 base = e.arc;;) {
        for (u32 left = __ballot_sync(ALL, look.hit != 0); left;) {
            Number found[AHEAD];
            u32 arc[AHEAD];
            u32 n = 0;
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 from = left ? __ffs(left) - 1 : 0;
                const u32 v = __shfl_sync(ALL, look.other, from), lanes = __shfl_sync(ALL, look.hit, from);
                found[i] = {0, 0};
                arc[i] = base + from;
                if (left) n++;
                if (left && lanes >> lane & 1) found[i] = load<SCALED>(s, v, lane);
                left &= left - 1;
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++)
                if (i < n) use(arc[i], found[i]);
        }
        base += 32;
        if (base >= e.arc_end) break;
        look = Look(s, e, others, lo, slot, base);
    }
}

// The entries that get the whole warp, one after another: `visit(entry, look)`. The first arcs of the next one are
// looked at before.
template <class Visit>
__device__ __forceinline__ void in_turn(
    const Scratch& s, const Entries& own, bool large, const u32* others, u32 lo, u32 slot, Visit visit
) {
    u32 left = __ballot_sync(ALL, large);
    if (!left) return;
    Entries next(own, __ffs(left) - 1);
    Look ahead(s, next, others, lo, slot, next.arc);
    while (left) {
        const Entries e = next;
        const Look look = ahead;
        left &= left - 1;
        if (left) {
            next = Entries(own, __ffs(left) - 1);
            ahead = Look(s, next, others, lo, slot, next.arc);
        }
        visit(e, look);
    }
}

// The same for the few arcs of a vertex that has a thread: `lanes[i]` and `other[i]` of arc i.
struct Few {
    u32 other[FEW_ARCS], lanes[FEW_ARCS];

    __device__ Few(const Scratch& s, const Entries& e, const u32* others, u32 lo, u32 slot) {
#pragma unroll
        for (u32 i = 0; i < FEW_ARCS; i++) {
            const bool exists = e.arc + i < e.arc_end;
            other[i] = exists ? others[e.arc + i] - lo : 0;
            lanes[i] = exists ? s.state[4 * other[i] + slot] & e.mask : 0;
        }
    }
};

// Numbers of paths of a new level; whether any is too large.
template <bool SCALED>
__device__ __forceinline__ bool pull(const Job& job, const Scratch& s, u32 lo, u32 begin, u32 end, u32 now, u32 before) {
    const u32 lane = threadIdx.x % 32;
    bool large = false;
    distribute(begin, end, [&](u32 at, bool exists) {
        const Entries own(s, job.in, lo, at, exists, now);
        if (exists) {
            s.mask[at] = own.mask;
            s.state[4 * own.vertex] |= own.mask;
        }
        if (own.is_small(job.few_lanes)) {
            const Few few(s, own, job.in.head, lo, before);
            for (u32 left = own.mask; left; left &= left - 1) {
                const u32 bit = __ffs(left) - 1;
                Number sum = {0, 0};
#pragma unroll
                for (u32 i = 0; i < FEW_ARCS; i++)
                    if (few.lanes[i] >> bit & 1) add<SCALED>(sum, load<SCALED>(s, few.other[i], bit));
                large |= sum.m > MANY;
                store<SCALED>(s, own.vertex, bit, sum);
            }
        }
        in_turn(s, own, !own.is_small(job.few_lanes), job.in.head, lo, before, [&](const Entries& e, const Look& look) {
            Number sum = {0, 0};
            gather<SCALED>(s, e, job.in.head, lo, before, look, [&](u32, Number more) { add<SCALED>(sum, more); });
            large |= sum.m > MANY;
            if (e.mask >> lane & 1) store<SCALED>(s, e.vertex, lane, sum);
        });
    });
    return !SCALED && large;
}

// Dependencies on the vertices of a level, added to the sums of the part.
template <bool SCALED, bool EDGES>
__device__ __forceinline__ void collect(
    const Job& job, const Scratch& s, const Part& part, u32 lo, u32 begin, u32 end, u32 level, const double* times,
    u32* reached
) {
    const u32 lane = threadIdx.x % 32, now = 1 + level % 3, after = 1 + (level + 1) % 3;
    distribute(begin, end, [&](u32 at, bool exists) {
        const Entries own(s, job.out, lo, at, exists, -1);
        if (exists) s.state[4 * own.vertex + now] = own.mask;
        double* node = job.node + part.node + (lo + own.vertex - part.vertex);
        double* edge = job.edge + part.edge;
        if (own.is_small(job.few_lanes) && exists) {
            const Few few(s, own, job.out.head, lo, after);
            double total = 0;
            double on_arc[EDGES ? FEW_ARCS : 1] = {0};
            for (u32 left = own.mask; left; left &= left - 1) {
                const u32 bit = __ffs(left) - 1;
                const Number paths = load<SCALED>(s, own.vertex, bit);
                double sum = 0;
#pragma unroll
                for (u32 i = 0; i < FEW_ARCS; i++)
                    if (few.lanes[i] >> bit & 1) {
                        const Number more = load<SCALED>(s, few.other[i], bit);
                        const double share = more.m * shrink(paths.m, more.e - paths.e);
                        sum += SCALED ? share : more.m;
                        if (EDGES) on_arc[i] += share * times[bit];
                    }
                const double delta = SCALED ? sum : sum * paths.m;
                total += delta * times[bit];
                store<SCALED>(s, own.vertex, bit, {(job.reach[lo + own.vertex] + delta) / paths.m, paths.e});
                if (job.endpoints) atomicAdd(reached + bit, 1u);
            }
            if (level) *node += total + (job.endpoints ? __popc(own.mask) : 0);
            if (EDGES)
#pragma unroll
                for (u32 i = 0; i < FEW_ARCS; i++)
                    if (few.lanes[i]) edge[own.arc + i - part.arc] += on_arc[i];
        }
        in_turn(s, own, !own.is_small(job.few_lanes), job.out.head, lo, after, [&](const Entries& e, const Look& look) {
            const bool mine = e.mask >> lane & 1;
            const Number paths = mine ? load<SCALED>(s, e.vertex, lane) : Number{1, 0};
            double sum = 0;
            gather<SCALED>(s, e, job.out.head, lo, after, look, [&](u32 arc, Number more) {
                const double share = more.m * shrink(paths.m, more.e - paths.e);
                sum += SCALED ? share : more.m;
                if (EDGES) {
                    const double on_arc = warp_sum(share * times[lane]);
                    if (lane == 0) edge[arc - part.arc] += on_arc;
                }
            });
            const double delta = SCALED ? sum : sum * paths.m;
            if (mine) store<SCALED>(s, e.vertex, lane, {(job.reach[lo + e.vertex] + delta) / paths.m, paths.e});
            const double total = warp_sum(mine ? delta * times[lane] : 0);
            if (lane == 0 && level)
                job.node[part.node + (lo + e.vertex - part.vertex)] += total + (job.endpoints ? __popc(e.mask) : 0);
            if (job.endpoints && mine) atomicAdd(reached + lane, 1u);
        });
    });
}

template <bool SCALED, bool EDGES>
__device__ __forceinline__ void sweep(const Job& job, const Scratch& s, const Part& part, u32 b) {
    __shared__ u32 n_listed, failed, reached[LANES];
    __shared__ double times[LANES];
    const Batch batch = job.batches[b];
    const u32 lo = batch.vertex, n = batch.vertex_end - lo, n_sources = batch.source_end - batch.source;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) ((uint4*)s.state)[i] = {0, 0, 0, 0};
    if (threadIdx.x == 0) {
        n_listed = n_sources;
        failed = 0;
    }
    __syncthreads();
    if (threadIdx.x < LANES) {
        const u32 i = threadIdx.x;
        reached[i] = 0;
        times[i] = i < n_sources ? job.multiplicity[batch.source + i] : 0;
        if (i < n_sources) {
            const u32 v = job.sources[batch.source + i] - lo;
            s.list[i] = v;
            s.mask[i] = s.state[4 * v] = s.state[4 * v + 1] = 1u << i;
            store<SCALED>(s, v, i, {1, 0});
        }
    }
    __syncthreads();
    u32 level = 0, before = 0, begin = 0, end = n_sources;
    for (;; level++) {
        if (threadIdx.x == 0) s.bounds[level] = begin;
        for (u32 i = before + threadIdx.x; i < begin; i += blockDim.x)  // makes room for the level after the next
            s.state[4 * s.list[i] + 1 + (level + 2) % 3] = 0;
        expand(job, s, lo, begin, end, 1 + (level + 1) % 3, &n_listed);
        __syncthreads();
        before = begin;
        begin = end;
        end = n_listed;
        if (begin == end) break;
        if (pull<SCALED>(job, s, lo, begin, end, 1 + (level + 1) % 3, 1 + level % 3)) failed = 1;
        __syncthreads();
        if (failed) {
            if (threadIdx.x == 0) job.failed[b] = 1;
            return;
        }
    }
    u32 after = end, last = end;  // where the two levels behind this one end
    for (begin = before;; level--) {
        for (u32 i = after + threadIdx.x; i < last; i += blockDim.x) s.state[4 * s.list[i] + 1 + (level + 2) % 3] = 0;
        collect<SCALED, EDGES>(job, s, part, lo, begin, end, level, times, reached);
        __syncthreads();
        if (level == 0) break;
        last = after;
        after = end;
        end = begin;
        begin = s.bounds[level - 1];
    }
    if (job.endpoints && threadIdx.x < n_sources)
        job.node[part.node + (job.sources[batch.source + threadIdx.x] - part.vertex)] += reached[threadIdx.x] - 1.0;
}

template <bool SCALED, bool EDGES>
__device__ __forceinline__ void work(const Job& job) {
    __shared__ u32 taken;
    const u64 n = job.largest;
    Scratch s;
    s.x = (double*)(job.scratch + (u64)blockIdx.x * job.stride);
    s.state = (u32*)(s.x + n * LANES);
    s.list = s.state + n * 4;
    s.mask = s.list + n * LANES;
    s.scale = (int*)(s.mask + n * LANES);
    s.bounds = (u32*)s.scale + (SCALED ? n * LANES : 0);
    for (;;) {
        if (threadIdx.x == 0) taken = atomicAdd(job.next, 1u);
        __syncthreads();
        if (taken >= job.n_parts) return;
        const Part part = job.parts[taken];
        for (u32 i = threadIdx.x; i < part.vertex_end - part.vertex; i += blockDim.x) job.node[part.node + i] = 0;
        if (EDGES)
            for (u32 i = threadIdx.x; i < part.arc_end - part.arc; i += blockDim.x) job.edge[part.edge + i] = 0;
        for (u32 b = part.batch; b < part.batch_end; b++) {
            __syncthreads();
            sweep<SCALED, EDGES>(job, s, part, b);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(1024) nodes(const Job* job, const u32*) { work<false, false>(*job); }
extern "C" __global__ void __launch_bounds__(1024) edges(const Job* job, const u32*) { work<false, true>(*job); }
extern "C" __global__ void __launch_bounds__(1024) nodes_scaled(const Job* job, const u32*) { work<true, false>(*job); }
extern "C" __global__ void __launch_bounds__(1024) edges_scaled(const Job* job, const u32*) { work<true, true>(*job); }

// The sums of the parts of each chunk, in order.
__device__ __forceinline__ double sum_at(const Job& job, const Chunk& chunk, u32 at, bool of_edges) {
    double sum = 0;
    for (u32 p = chunk.part; p < chunk.part_end; p++) {
        const Part& part = job.parts[p];
        const u32 begin = of_edges ? part.arc : part.vertex, end = of_edges ? part.arc_end : part.vertex_end;
        if (at >= begin && at < end) sum += of_edges ? job.edge[part.edge + at - begin] : job.node[part.node + at - begin];
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) sum_parts(const Job* jobs, const u32* with_edges) {
    const Job& job = *jobs;
    const u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (u32 c = 0; c < job.n_chunks; c++) {
        const Chunk chunk = job.chunks[c];
        for (u32 i = chunk.vertex + first; i < chunk.vertex_end; i += step)
            job.chunk_node[chunk.node + i - chunk.vertex] = sum_at(job, chunk, i, false);
        if (with_edges)
            for (u32 i = chunk.arc + first; i < chunk.arc_end; i += step)
                job.chunk_edge[chunk.edge + i - chunk.arc] = sum_at(job, chunk, i, true);
    }
}
