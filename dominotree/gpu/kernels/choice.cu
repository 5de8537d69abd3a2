// The target's choice at every verify row, and the walk along the choices (engine.md §7), without a host.
//
// best_two, grid (SPLITS, n): the two best ids of a slice of a row, the lower id among equals. Greedy: one read of the
// logits, 10 MB at 17 x 151936. Sampled: scores are logits + T · g in float64, g = -log(-log u) with u from
// Philox4x32-10 keyed by (seed, absolute position), bit for bit what sampling.py computes; about half of it is spent on
// the two logarithms, so an id whose score cannot reach the thread's second best gets none.
// walk, one block: rows from slices, then the path. Bound: latency, three barriers and a step per accepted node.
//
// Defines: VOCAB, SPLITS (<= 32), SAMPLED.

#define THREADS 256
#define MOST_ROWS 1032
#if SAMPLED
typedef double Score;
#else
typedef float Score;
#endif
typedef unsigned int u32;

__device__ inline Score lowest() { return -(Score)__uint_as_float(0x7f800000u); }

struct Best {
    Score v1, v2;
    int i1, i2;
};

// What a slice hands on; i1 < 0: the row holds NaN there.
struct Part {
    double v1, v2;
    int i1, i2;
};

__device__ inline bool above(Score v, int i, Score w, int j) { return v > w || (v == w && i < j); }

__device__ inline void offer(Best& b, Score v, int i) {
    if (above(v, i, b.v1, b.i1)) {
        b.v2 = b.v1, b.i2 = b.i1, b.v1 = v, b.i1 = i;
    } else if (above(v, i, b.v2, b.i2)) {
        b.v2 = v, b.i2 = i;
    }
}

__device__ inline void merge_warp(Best& b) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        Score v1 = __shfl_xor_sync(0xffffffffu, b.v1, d), v2 = __shfl_xor_sync(0xffffffffu, b.v2, d);
        int i1 = __shfl_xor_sync(0xffffffffu, b.i1, d), i2 = __shfl_xor_sync(0xffffffffu, b.i2, d);
        if (i1 != b.i1) offer(b, v1, i1);
        if (i2 != b.i1 && i2 != b.i2) offer(b, v2, i2);
    }
}

#if SAMPLED
// Four words for token ids 4 block … 4 block + 3.
__device__ inline void philox(u32 block, unsigned long long position, unsigned long long seed, u32 (&out)[4]) {
    u32 c0 = block, c1 = (u32)position, c2 = (u32)(position >> 32), c3 = 0;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

__device__ inline double gumbel(u32 word) {
    double u = __dmul_rn(__dadd_rn((double)word, 0.5), 1.0 / 4294967296.0);
    return -log(-log(u));
}
// No word gives more: u <= 1 - 2^-33.
#define MOST_NOISE 22.9
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
best_two(const float* __restrict__ logits, const long long* __restrict__ positions, const long long* __restrict__ seed,
         const double* __restrict__ temperature, Part* __restrict__ parts) {
    __shared__ Best bests[THREADS / 32];
    const int row = blockIdx.y, tid = threadIdx.x;
    const int quads = (VOCAB + 3) / 4, share = (quads + SPLITS - 1) / SPLITS;
    const int first = blockIdx.x * share, end = first + share < quads ? first + share : quads;
    const float* line = logits + (long long)row * VOCAB;
    Best b = {lowest(), lowest(), VOCAB, VOCAB + 1};
    bool nan = false;
#if SAMPLED
    const unsigned long long position = positions[row] + 1, key = *seed;
    const double t = *temperature, reach = t * MOST_NOISE;
#endif
    for (int quad = first + tid; quad < end; quad += THREADS) {
        float x[4];
        const int id = 4 * quad;
        if (VOCAB % 4 == 0) {
            float4 v = __ldg((const float4*)(line + id));
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) x[k] = id + k < VOCAB ? line[id + k] : 0.f;
        }
#if SAMPLED
        bool wanted = false;
#pragma unroll
        for (int k = 0; k < 4; k++) wanted |= !(x[k] + reach < b.v2);
        u32 words[4];
        if (wanted) philox(quad, position, key, words);
#endif
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (VOCAB % 4 != 0 && id + k >= VOCAB) break;
            nan |= x[k] != x[k];
#if SAMPLED
            if (x[k] + reach < b.v2) continue;
            offer(b, __dadd_rn((double)x[k], __dmul_rn(t, gumbel(words[k]))), id + k);
#else
            offer(b, x[k], id + k);
#endif
        }
    }
    merge_warp(b);
    if (tid % 32 == 0) bests[tid / 32] = b;
    const bool any_nan = __syncthreads_or(nan);
    if (tid >= 32) return;
    b = tid < THREADS / 32 ? bests[tid] : Best{lowest(), lowest(), VOCAB, VOCAB + 1};
    merge_warp(b);
    if (tid == 0) parts[row * SPLITS + blockIdx.x] = Part{(double)b.v1, (double)b.v2, any_nan ? -1 : b.i1, b.i2};
}

// n verify rows: ids, positions int64 [n]; parent int32 [n - 1] (node indices, -1 = anchor); nodes int32 [1] of them are
// real. stops int64 [stop_count]. forced >= 0: for measurements, choose a path to the deepest node within that depth.
// rows int64 [longest] (unused entries 0), count, bonus int64 [1]; record int64 [6 + 4 longest], may lie on the host.
extern "C" __global__ void __launch_bounds__(1024)
walk(const Part* __restrict__ parts, int n, const long long* __restrict__ ids, const int* __restrict__ parent,
     const long long* __restrict__ positions, const int* __restrict__ nodes, const long long* __restrict__ stops,
     int stop_count, const long long* __restrict__ length, const long long* __restrict__ anchor,
     const int* __restrict__ repaired, int longest, int forced, long long* rows, long long* count, long long* bonus,
     long long* record) {
    __shared__ double gap[MOST_ROWS];
    __shared__ int token[MOST_ROWS], other[MOST_ROWS], next[MOST_ROWS], path[MOST_ROWS];
    __shared__ int taken, deepest, goal;
    const int tid = threadIdx.x, lane = tid % 32, real = *nodes;
    const long long start = *length;
    if (tid == 0) deepest = 0, goal = 0;
    for (int row = tid / 32; row < n; row += blockDim.x / 32) {
        Part mine = {0, 0, 0, 0};
        if (lane < SPLITS) mine = parts[row * SPLITS + lane];
        const bool nan = __any_sync(0xffffffffu, lane < SPLITS && mine.i1 < 0);
        Best b = {(Score)mine.v1, (Score)mine.v2, mine.i1, mine.i2};
        if (lane >= SPLITS) b = Best{lowest(), lowest(), VOCAB, VOCAB + 1};
        merge_warp(b);
        if (lane == 0) {
            token[row] = nan ? VOCAB : b.i1, other[row] = b.i2, next[row] = 0;
            gap[row] = (double)b.v1 - (double)b.v2;
        }
    }
    __syncthreads();
    for (int row = tid; row <= real; row += blockDim.x) {
        int depth = (int)(positions[row] - start);
        atomicMax(&deepest, depth);
        if (forced >= 0 && depth <= forced) atomicMax(&goal, depth * 2048 + 2047 - row);
    }
    __syncthreads();
    const int last = forced >= 0 ? 2047 - goal % 2048 : -1;
    if (forced >= 0 && tid == 0)
        for (int row = last; row > 0; row = parent[row - 1] + 1) token[parent[row - 1] + 1] = (int)ids[row];
    __syncthreads();
    for (int node = tid; node < real; node += blockDim.x) {
        const int up = parent[node] + 1;
        bool fits = up != last && ids[node + 1] == token[up];
        if (up > 0)
            for (int s = 0; s < stop_count; s++) fits &= ids[up] != stops[s];
        if (fits) next[up] = node + 1;
    }
    __syncthreads();
    if (tid == 0) {
        int row = 0, steps = 1;
        path[0] = 0;
        while (next[row] && steps < longest) path[steps++] = row = next[row];
        taken = steps;
        *count = steps, *bonus = token[row];
        record[0] = start, record[1] = *anchor, record[2] = steps, record[3] = real, record[4] = deepest;
        record[5] = *repaired;
    }
    __syncthreads();
    for (int i = tid; i < longest; i += blockDim.x) {
        const int row = i < taken ? path[i] : 0;
        rows[i] = row;
        record[6 + i] = row;
        record[6 + longest + i] = token[row];
        record[6 + 2 * longest + i] = other[row];
        record[6 + 3 * longest + i] = __double_as_longlong(gap[row]);
    }
}

// After everything of a round that reads them: the committed length and the next anchor.
extern "C" __global__ void advance(long long* length, long long* anchor, const long long* count, const long long* bonus) {
    *length += *count;
    *anchor = *bonus < VOCAB ? *bonus : VOCAB - 1;
}
