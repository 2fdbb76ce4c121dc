// Betweenness as published by Wolonciej: a stream for each source, virtual vertices, Stride-CSR, no queues.
//
// A vertex u of degree d is split into ceil(d / neighbours) virtual vertices, a thread each. The one with ordinal o visits
// every NVIR[u]-th neighbour from o on, so that the threads of a vertex read consecutive words. Every level looks at all
// virtual vertices. Atomic sums of doubles make the last bits depend on time, as published.
//
// Corrected: numbers of paths are doubles (`T` = u32 is as published and wraps around); levels are counted on the device,
// so that a step has the same arguments in each round and can be captured in a graph.
typedef unsigned int u32;

struct Graph {
    const u32 *GRAPH_R, *GRAPH_C, *NVIR, *VMAP, *OFFSET;
    double* bc;
    u32 n, n_virtual;
};

struct Stream {  // one source at a time
    int* d;              // levels; -1: not reached
    double* sigma;       // numbers of paths, or u32 in the same place
    double* delta;
    double* partial_bc;  // of all sources of this stream
    u32 curr_vertex, cont, running;
    int l;
};

#define EACH(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

template <class T>
__device__ __forceinline__ void begin(const Graph* g, Stream* s) {
    EACH(v, g->n) {
        const bool is_source = v == s->curr_vertex;
        s->d[v] = is_source ? 0 : -1;
        ((T*)s->sigma)[v] = is_source;
    }
}

template <class T>
__device__ __forceinline__ void forward(const Graph* g, Stream* s) {
    const int l = s->l;
    T* sigma = (T*)s->sigma;
    EACH(x, s->running ? g->n_virtual : 0) {
        const u32 u = g->VMAP[x];
        if (s->d[u] != l) continue;
        for (u32 k = g->GRAPH_R[u] + g->OFFSET[x]; k < g->GRAPH_R[u + 1]; k += g->NVIR[u]) {
            const u32 v = g->GRAPH_C[k];
            if (s->d[v] == -1) {
                s->d[v] = l + 1;
                s->cont = 1;
            }
            if (s->d[v] == l + 1) atomicAdd(sigma + v, sigma[u]);
        }
    }
}

template <class T>
__device__ __forceinline__ void invert(const Graph* g, Stream* s) {
    const T* sigma = (const T*)s->sigma;
    EACH(v, g->n) s->delta[v] = s->d[v] < 0 || sigma[v] == 0 ? 0 : 1.0 / (double)sigma[v];
}

template <class T>
__device__ __forceinline__ void gather(const Graph* g, Stream* s) {
    const T* sigma = (const T*)s->sigma;
    EACH(v, g->n) if (s->d[v] > 0) s->partial_bc[v] += s->delta[v] * (double)sigma[v] - 1;
}

#define SIGMA(name, T)                                                                                   \
    extern "C" __global__ void begin_##name(const Graph* g, Stream* s) { begin<T>(g, s); }               \
    extern "C" __global__ void forward_##name(const Graph* g, Stream* s) { forward<T>(g, s); }           \
    extern "C" __global__ void invert_##name(const Graph* g, Stream* s) { invert<T>(g, s); }             \
    extern "C" __global__ void gather_##name(const Graph* g, Stream* s) { gather<T>(g, s); }
SIGMA(float64, double)
SIGMA(uint32, u32)

extern "C" __global__ void advance(const Graph*, Stream* s) {  // one thread, after each step forward
    if (s->cont) s->l++;
    else s->running = 0;
    s->cont = 0;
}

extern "C" __global__ void backward(const Graph* g, Stream* s) {
    const int l = s->l;
    EACH(x, l > 0 ? g->n_virtual : 0) {
        const u32 u = g->VMAP[x];
        if (s->d[u] != l - 1) continue;
        double sum = 0;
        for (u32 k = g->GRAPH_R[u] + g->OFFSET[x]; k < g->GRAPH_R[u + 1]; k += g->NVIR[u])
            if (s->d[g->GRAPH_C[k]] == l) sum += s->delta[g->GRAPH_C[k]];
        atomicAdd(s->delta + u, sum);
    }
}

extern "C" __global__ void retreat(const Graph*, Stream* s) {  // one thread, after each step back
    if (s->l > 0) s->l--;
}

extern "C" __global__ void clear(const Graph* g, Stream* s) { EACH(v, g->n) s->partial_bc[v] = 0; }

extern "C" __global__ void add_up(const Graph* g, Stream* s) { EACH(v, g->n) g->bc[v] += s->partial_bc[v]; }
