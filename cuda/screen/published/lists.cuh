// Lists of the k smallest numbers, as Zanirati's kernels have them. A list that is not full has infinite entries.
typedef unsigned int u32;

#ifndef JT_WAYS
#define JT_WAYS 64
#endif
#define K JT_WAYS          // room of a list
#define THREADS 64         // of a block that takes a row
#define BUFFER 22          // numbers of a thread of kato
#define INFINITE __int_as_float(0x7f800000)

// A binary heap with its largest number first; entry i is at i * stride.
struct Heap {
    float* at;
    u32 stride, k;

    __device__ __forceinline__ void start() {
        for (u32 i = 0; i < k; i++) at[i * stride] = INFINITE;
    }

    __device__ __forceinline__ float root() const { return at[0]; }

    __device__ __forceinline__ void add(float x) {
        if (!(x < at[0])) return;
        u32 i = 0;
        while (true) {
            u32 child = 2 * i + 1;
            if (child >= k) break;
            float largest = at[child * stride];
            if (child + 1 < k && at[(child + 1) * stride] > largest) largest = at[++child * stride];
            if (!(largest > x)) break;
            at[i * stride] = largest;
            i = child;
        }
        at[i * stride] = x;
    }
};

// An ascending array.
struct Sorted {
    float* at;
    u32 stride, k;

    __device__ __forceinline__ void start() {
        for (u32 i = 0; i < k; i++) at[i * stride] = INFINITE;
    }

    __device__ __forceinline__ void add(float x) {
        if (!(x < at[(k - 1) * stride])) return;
        u32 i = k - 1;
        for (; i && at[(i - 1) * stride] > x; i--) at[i * stride] = at[(i - 1) * stride];
        at[i * stride] = x;
    }
};
