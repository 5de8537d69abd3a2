// A whole best-first tree under the conditional scorer, in one launch: no host, no heap.
//
// A child never scores above its parent, so the tree is the best `BUDGET` of everything offered, in the order (score,
// then the parent's place, then rank among siblings): the pop order of the reference's heap. The tree grows in waves,
// one a depth: all nodes of that depth that are among the best BUDGET offered so far are expanded together, their
// children join the list, the list is cut again. Nodes beyond the cut can never come back, so the last list is the
// reference's tree. It ends at the first wave with nothing to expand: as many waves as the tree is deep.
//
// A wave has three phases with a grid barrier after each. Block b owns GRU units 8b … 8b + 7 and UC columns of W1 for
// the whole launch; their weights stay in registers (half) or shared memory (float32).
//   select, gates   every block merges the children into its own copy of the list; gates of its own units -> S
//   product         W_hh·s (kept by the owner for the next wave) and W1_s·s + W1_z·z -> U, for all nodes of the wave
//   children        one block a node: ΔL over the candidates, log-softmax, the best CHILDREN
// Bound: barriers and L2 latency (about 8 us a wave), not bytes or arithmetic.
//
// Defines: LEVELS, VOCAB, HIDDEN, GRU (multiple of 32), EMB (multiple of 8), PREFIX, M (<= 256), CHILDREN, BUDGET (<= 256),
// SPLITS, HALF (1: float16 products, float32 sums; 0: float32), TABLE (0: W_ih·emb by product; 1: float16 table;
// 2: float32 table), Z_BF16, EMBED_BF16 (0: float32), BLOCKS = GRU / 8; CHAIN for the greedy chain's entry.
#include "candidates.cuh"
#include "finish.cuh"

#define THREADS 256
#define WARPS 8
#ifdef PROFILE  // clock of block 0 at the ends of phases, behind the barrier's counters
#define MARK() if (blockIdx.x == 0 && threadIdx.x == 0) ((long long*)(g.barrier + 32))[marks++] = clock64()
#else
#define MARK()
#endif
#define UC ((EMB + BLOCKS - 1) / BLOCKS)    // columns of W1 that a block owns
#define TILES (3 + (UC + 7) / 8)            // groups of eight weight rows: r, z, n of the units, columns
#define ROWS (24 + UC)                      // weight rows of a block
#define KB (GRU / 32)                       // groups of 32 along the state
#define KB_WARP ((KB + WARPS - 1) / WARPS)
#define OFFERED (BUDGET * CHILDREN)
#define W2_STRIDE (EMB * 2 + 64)            // bytes of a staged row of W2: no bank conflicts
#define CUT 192                             // survivors beyond which the list is cut by threshold before ranking
#define GROUP 8                             // nodes of one float32 product
#define STAGE 1024                          // columns staged at a time there

struct Weights {
    const void* gru_w1;   // half: fragments [BLOCKS, KB, TILES, 32 lanes, 8]; float32: [BLOCKS, ROWS, GRU]
    const float* w1_z;    // [EMB, HIDDEN]
    const void* w2;       // [VOCAB, EMB], half or float32
    const void* inputs;   // W_ih·emb: table [VOCAB, BLOCKS, 3, 8], or W_ih itself, float32 [BLOCKS, 24, HIDDEN]
    const void* embedding;  // [VOCAB, HIDDEN]; read without a table only
};

struct Scratch {          // global memory of the launch
    u32* barrier;
    int* ids;             // [LEVELS, M] candidates, best first
    float* base;          // [LEVELS, M]
    float* logz;          // [LEVELS]
    void* state;          // [BUDGET, GRU] half or float32: states of the wave
    float* u;             // [BUDGET, EMB]
    double* child_score;  // [BUDGET, CHILDREN]
    int* child_token;
};

// The best nodes offered so far, in pop order.
struct List {
    double score[BUDGET];
    int token[BUDGET], parent[BUDGET], depth[BUDGET];
    int rank[BUDGET];     // among siblings
    int slot[BUDGET];     // place in the wave that expanded it
};

struct Shared {
    List list[2];
    float old_state[BUDGET][8], new_state[BUDGET][8];  // own units of the last wave's nodes and of this one's
    float hidden[BUDGET][24];                          // own rows of W_hh·s of the wave's nodes
    float part[LEVELS][UC];                            // own columns of W1_z·z
    double offer_score[OFFERED];                       // survivors among the new children
    int offer_token[OFFERED], offer_tie[OFFERED], offer_place[OFFERED];
    int place[BUDGET];                                 // new places of the old list
    int node[BUDGET], parent_slot[BUDGET];             // the wave: place in the list, parent's slot
    double mass[BUDGET + 1];
    float activation[EMB];
    float row[M], row_score[M];
    int row_id[M];
    float row_base[M];
    int scratch[32];
    float warp_most[WARPS], warp_total[WARPS];
    int found, kept;
    union __align__(16) {
        float reduce[WARPS][16][TILES * 8 + 1];
        float stage[GROUP][STAGE];
        u64 merge[SPLITS * M];
    };
#if !TABLE
    float input[BUDGET][24];                           // own rows of W_ih·emb of the wave's nodes
#endif
#if HALF
    __align__(16) unsigned char w2[M * W2_STRIDE];     // rows of W2 of the wave's level
#elif WEIGHTS_SHARED
    __align__(16) float weights[ROWS * GRU];
#endif
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float bf16_to_float(unsigned short bits) { return __uint_as_float((u32)bits << 16); }

__device__ inline int tie(int parent, int rank) { return (parent + 1) * 256 + rank; }

// The order of the list: score, then the parent's place, then rank.
__device__ inline bool before(double a, int tie_a, double b, int tie_b) {
    return a > b || (a == b && tie_a < tie_b);
}

// ---- set-up -------------------------------------------------------------------------------------------------

// Own columns of W1_z·z for every level: one warp a level.
__device__ void level_parts(Shared& s, const Weights& w, const void* z) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int level = warp; level < LEVELS; level += WARPS)
        for (int c = 0; c < UC; c++) {
            int column = blockIdx.x * UC + c;
            float sum = 0;
            if (column < EMB)
                for (int k = lane; k < HIDDEN; k += 32) {
#if Z_BF16
                    float value = bf16_to_float(((const unsigned short*)z)[level * HIDDEN + k]);
#else
                    float value = ((const float*)z)[level * HIDDEN + k];
#endif
                    sum += value * w.w1_z[(u64)column * HIDDEN + k];
                }
            sum = warp_sum(sum);
            if (lane == 0) s.part[level][c] = sum;
        }
}

// Ask for the rows of W2 at a level's candidates; they are waited for in children().
__device__ void stage_w2(Shared& s, const Weights& w, const Scratch& g, int level) {
#if HALF
    for (int i = threadIdx.x; i < M * (EMB / 8); i += THREADS) {
        int m = i / (EMB / 8), chunk = i % (EMB / 8);
        long long id = __ldcg(g.ids + level * M + m);
        copy_16(s.w2 + m * W2_STRIDE + chunk * 16, (const unsigned short*)w.w2 + id * EMB + chunk * 8);
    }
#endif
}

// ---- product --------------------------------------------------------------------------------------------------

// Keep or publish one result of the product: row r of the block's weights times the state of node n.
__device__ inline void emit(Shared& s, const Scratch& g, int level, int n, int r, float value) {
    if (r < 24) {
        s.hidden[n][r] = value;
    } else if (r < ROWS && blockIdx.x * UC + r - 24 < EMB) {
        g.u[n * EMB + blockIdx.x * UC + r - 24] = value + s.part[level][r - 24];
    }
}

#if HALF
struct Fragments {
    uint4 w[KB_WARP][TILES];
};

__device__ inline void load_fragments(Fragments& f, const Weights& w) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < KB_WARP; i++)
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int kb = warp + i * WARPS;
            f.w[i][t] = make_uint4(0, 0, 0, 0);
            if (kb < KB) f.w[i][t] = ((const uint4*)w.gru_w1)[((blockIdx.x * KB + kb) * TILES + t) * 32 + lane];
        }
}

// 16 nodes at a time on tensor cores; the warps split the state's length and their sums meet in shared memory.
// Within a group of 32 the order of k is permuted so that a lane's 8 values are contiguous, for states and weights alike.
__device__ void product(Shared& s, const Fragments& f, const Scratch& g, int level, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4;
    const uint4* states = (const uint4*)g.state;
    for (int first = 0; first < count; first += 16) {
        float acc[TILES][4] = {};
        uint4 low[KB_WARP], high[KB_WARP];
#pragma unroll
        for (int i = 0; i < KB_WARP; i++) {
            int kb = warp + i * WARPS, at = kb * 4 + lane % 4;
            low[i] = high[i] = make_uint4(0, 0, 0, 0);
            if (kb < KB && first + quad < count) low[i] = __ldcg(states + (first + quad) * (GRU / 8) + at);
            if (kb < KB && first + quad + 8 < count) high[i] = __ldcg(states + (first + quad + 8) * (GRU / 8) + at);
        }
#pragma unroll
        for (int i = 0; i < KB_WARP; i++)
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                mma_16x8x16(acc[t], low[i].x, high[i].x, low[i].y, high[i].y, f.w[i][t].x, f.w[i][t].y);
                mma_16x8x16(acc[t], low[i].z, high[i].z, low[i].w, high[i].w, f.w[i][t].z, f.w[i][t].w);
            }
        __syncthreads();
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int column = t * 8 + lane % 4 * 2;
            s.reduce[warp][quad][column] = acc[t][0], s.reduce[warp][quad][column + 1] = acc[t][1];
            s.reduce[warp][quad + 8][column] = acc[t][2], s.reduce[warp][quad + 8][column + 1] = acc[t][3];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < 16 * TILES * 8; i += THREADS) {
            int n = i / (TILES * 8), r = i % (TILES * 8);
            float sum = 0;
#pragma unroll
            for (int part = 0; part < WARPS; part++) sum += s.reduce[part][n][r];
            if (first + n < count) emit(s, g, level, first + n, r, sum);
        }
    }
}
#endif

// float32: acc[o][n] += weights[o]·s.stage[n] over `width` staged columns, a warp together. Rows past `rows` are left out.
__device__ inline void dots(Shared& s, float (&acc)[4][GROUP], const float* weights, u64 stride, int rows, int width) {
    for (int k = threadIdx.x % 32 * 4; k < width; k += 128)
#pragma unroll
        for (int o = 0; o < 4; o++) {
            if (o >= rows) continue;
            float4 a = *(const float4*)(weights + o * stride + k);
#pragma unroll
            for (int n = 0; n < GROUP; n++) {
                float4 b = *(const float4*)(s.stage[n] + k);
                acc[o][n] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
            }
        }
}

#if !HALF
__device__ void product(Shared& s, const float* weights, const Scratch& g, int level, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float* states = (const float*)g.state;
    for (int first = 0; first < count; first += GROUP) {
        float acc[(ROWS + 4 * WARPS - 1) / (4 * WARPS)][4][GROUP] = {};
        for (int k0 = 0; k0 < GRU; k0 += STAGE) {
            const int width = GRU - k0 < STAGE ? GRU - k0 : STAGE;
            __syncthreads();
            for (int i = threadIdx.x; i < GROUP * width; i += THREADS) {
                int n = i / width, k = i % width;
                s.stage[n][k] = first + n < count ? __ldcg(states + (first + n) * GRU + k0 + k) : 0;
            }
            __syncthreads();
#pragma unroll
            for (int turn = 0; turn < (ROWS + 4 * WARPS - 1) / (4 * WARPS); turn++) {
                int r = (turn * WARPS + warp) * 4;
                if (r < ROWS) dots(s, acc[turn], weights + r * GRU + k0, GRU, ROWS - r, width);
            }
        }
#pragma unroll
        for (int turn = 0; turn < (ROWS + 4 * WARPS - 1) / (4 * WARPS); turn++)
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int n = 0; n < GROUP; n++) {
                    float sum = warp_sum(acc[turn][o][n]);
                    int r = (turn * WARPS + warp) * 4 + o;
                    if (lane == 0 && r < ROWS && first + n < count) emit(s, g, level, first + n, r, sum);
                }
    }
}
#endif

#if !TABLE
// Own rows of W_ih·emb(token) for the wave's nodes, float32: 24 rows, four a warp.
__device__ void inputs(Shared& s, const List& list, const Weights& w, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float* own = (const float*)w.inputs + (u64)blockIdx.x * 24 * HIDDEN;
    for (int first = 0; first < count; first += GROUP) {
        float acc[4][GROUP] = {};
        for (int k0 = 0; k0 < HIDDEN; k0 += STAGE) {
            const int width = HIDDEN - k0 < STAGE ? HIDDEN - k0 : STAGE;
            __syncthreads();
            for (int i = threadIdx.x; i < GROUP * width; i += THREADS) {
                int n = i / width, k = i % width;
                float value = 0;
                if (first + n < count) {
                    u64 at = (u64)list.token[s.node[first + n]] * HIDDEN + k0 + k;
#if EMBED_BF16
                    value = bf16_to_float(((const unsigned short*)w.embedding)[at]);
#else
                    value = ((const float*)w.embedding)[at];
#endif
                }
                s.stage[n][k] = value;
            }
            __syncthreads();
            if (warp < 6) dots(s, acc, own + (u64)warp * 4 * HIDDEN + k0, HIDDEN, 4, width);
        }
        if (warp < 6)
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int n = 0; n < GROUP; n++) {
                    float sum = warp_sum(acc[o][n]);
                    if (lane == 0 && first + n < count) s.input[first + n][warp * 4 + o] = sum;
                }
    }
    __syncthreads();
}
#endif

// ---- gates ------------------------------------------------------------------------------------------------------

__device__ inline void publish(const Scratch& g, int n, int unit, float value) {
#if HALF
    ((unsigned short*)g.state)[n * GRU + blockIdx.x * 8 + unit] = float_to_half(value);
#else
    ((float*)g.state)[n * GRU + blockIdx.x * 8 + unit] = value;
#endif
}

// GRU step of the block's own units for the wave's nodes (gate order r, z, n; no bias).
__device__ void gates(Shared& s, const List& list, const Weights& w, const Scratch& g, int count) {
    for (int i = threadIdx.x; i < count * 8; i += THREADS) {
        const int n = i / 8, unit = i % 8, parent = s.parent_slot[n];
        float x[3];
#pragma unroll
        for (int gate = 0; gate < 3; gate++) {
#if TABLE
            u64 at = (((u64)list.token[s.node[n]] * BLOCKS + blockIdx.x) * 3 + gate) * 8 + unit;
#if TABLE == 1
            x[gate] = half_to_float(((const unsigned short*)w.inputs)[at]);
#else
            x[gate] = ((const float*)w.inputs)[at];
#endif
#else
            x[gate] = s.input[n][gate * 8 + unit];
#endif
        }
        const float* hidden = s.hidden[parent];
        float r = sigmoid(x[0] + hidden[unit]);
        float z = sigmoid(x[1] + hidden[8 + unit]);
        float next = tanhf(x[2] + r * hidden[16 + unit]);
        float state = next + z * (s.old_state[parent][unit] - next);
        s.new_state[n][unit] = state;
        publish(g, n, unit, state);
    }
}

// ---- children -----------------------------------------------------------------------------------------------------

// The level's candidates into shared memory.
__device__ void load_level(Shared& s, const Scratch& g, int level) {
    for (int m = threadIdx.x; m < M; m += THREADS) {
        s.row_id[m] = __ldcg(g.ids + level * M + m);
        s.row_base[m] = __ldcg(g.base + level * M + m);
    }
}

// The best CHILDREN of node n of the wave, whose cumulative score is `score`.
__device__ void children(Shared& s, const Weights& w, const Scratch& g, int level, int n, double score) {
    const int tid = threadIdx.x, lane = tid % 32, part = tid % 4;
    const bool corrected = level >= PREFIX;
    __syncthreads();
    if (corrected) {
        for (int k = tid; k < EMB; k += THREADS) {
            float u = __ldcg(g.u + n * EMB + k);
            s.activation[k] = u * sigmoid(u);
        }
        __syncthreads();
    }
    for (int first = 0; first < M; first += THREADS / 4) {  // four threads a candidate
        const int m = first + tid / 4;
        float sum = 0;
        if (corrected && m < M) {
#if HALF
            for (int k = part * 8; k < EMB; k += 32) {
                uint4 v = *(const uint4*)(s.w2 + m * W2_STRIDE + k * 2);
                const float* a = s.activation + k;
                sum += half_to_float(v.x & 0xffff) * a[0] + half_to_float(v.x >> 16) * a[1];
                sum += half_to_float(v.y & 0xffff) * a[2] + half_to_float(v.y >> 16) * a[3];
                sum += half_to_float(v.z & 0xffff) * a[4] + half_to_float(v.z >> 16) * a[5];
                sum += half_to_float(v.w & 0xffff) * a[6] + half_to_float(v.w >> 16) * a[7];
            }
#else
            const float* row = (const float*)w.w2 + (u64)s.row_id[m] * EMB;
            for (int k = part * 4; k < EMB; k += 16) {
                float4 v = *(const float4*)(row + k);
                const float* a = s.activation + k;
                sum += v.x * a[0] + v.y * a[1] + v.z * a[2] + v.w * a[3];
            }
#endif
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (part == 0 && m < M) s.row[m] = s.row_base[m] + sum;
    }
    __syncthreads();
    float norm;
    if (corrected) {  // log-sum-exp over the candidates, every warp for itself
        float most = NEG_INF, total = 0;
        for (int m = lane; m < M; m += 32) most = fmaxf(most, s.row[m]);
        most = warp_max(most);
        for (int m = lane; m < M; m += 32) total += expf(s.row[m] - most);
        norm = most + logf(warp_sum(total));
    } else {
        norm = __ldcg(g.logz + level);
    }
    for (int m = tid; m < M; m += THREADS) {
        float value = s.row[m] - norm;
        s.row_score[m] = value == value ? value : NEG_INF;
    }
    __syncthreads();
    for (int first = 0; first < M; first += THREADS / 4) {
        const int m = first + tid / 4;
        int rank = 0;
        if (m < M) {
            const float mine = s.row_score[m];
            const int id = s.row_id[m];
            for (int other = part; other < M; other += 4) {
                float theirs = s.row_score[other];
                rank += theirs > mine || (theirs == mine && s.row_id[other] < id);
            }
        }
        rank += __shfl_xor_sync(0xffffffffu, rank, 1);
        rank += __shfl_xor_sync(0xffffffffu, rank, 2);
        if (part == 0 && m < M && rank < CHILDREN) {
            g.child_score[n * CHILDREN + rank] = score + (double)s.row_score[m];
            g.child_token[n * CHILDREN + rank] = s.row_id[m];
#if TABLE == 1
            // the gates read this row if the child is expanded; bring it near while the wave ends
            const unsigned short* next = (const unsigned short*)w.inputs + (u64)s.row_id[m] * GRU * 3;
            for (int k = 0; k < GRU * 3; k += 64) prefetch_l2(next + k);
#endif
        }
    }
}

// ---- the stop rule while the tree grows ----------------------------------------------------------------------------------

// With convex costs C a node pays at place m only if its probability exceeds R(m) · (C(m + 1) − C(m)), R = (1 + Φ) / C. What
// is offered later only raises Φ, and puts nodes later. So from the first place of today's list that does not pay on,
// nothing ever will: those entries go, and whatever scores no higher need not be offered.
#define SLACK 1e-6  // in log-probability: rounding must not cut what the rule itself would have kept

__device__ void raise_least_score(Shared& s, const Stop& stop, const List& list, int& size, double& least_score) {
    const int keep = stop_count(stop, list.score, size, s.mass, &s.kept);
    if (keep == size || s.mass[keep + 1] - s.mass[keep] < 1e-9) return;  // too little to tell from rounding
    const double least = list.score[keep] - SLACK;
    __syncthreads();
    if (threadIdx.x == 0) s.kept = size;
    __syncthreads();
    for (int i = keep + threadIdx.x; i < size; i += THREADS)
        if (list.score[i] <= least) atomicMin(&s.kept, i);
    __syncthreads();
    size = s.kept;
    least_score = least;
    __syncthreads();
}

// Whether the costs of 0 … budget nodes are convex, but for rounding.
__device__ bool convex(Shared& s, const double* cost, int budget) {
    if (threadIdx.x == 0) s.kept = 1;
    __syncthreads();
    for (int i = 1 + threadIdx.x; i < budget; i += THREADS)
        if ((cost[i + 1] - cost[i]) - (cost[i] - cost[i - 1]) < -1e-12 * cost[i]) s.kept = 0;
    __syncthreads();
    const bool found = s.kept;
    __syncthreads();
    return found;
}

// ---- select ---------------------------------------------------------------------------------------------------------

// Merge the children of the wave's `count` nodes into the list of `size` nodes, cut it to `budget`, and name the next
// wave: nodes of depth `depth` in the list. All blocks do the same. Returns the next wave's count; `size` is updated.
// `least_score`: what never pays under the stop rule, see raise_least_score().
__device__ int select(Shared& s, const Scratch& g, const List& old, List& now, int& size, int count, int budget,
                      int depth, int levels, const Stop& stop, double& least_score) {
    const int tid = threadIdx.x, part = tid % 8;
    const double bound = size == budget && old.score[budget - 1] > least_score ? old.score[budget - 1] : least_score;
    u32 least = 0;  // key of the threshold cut
    int found;
    for (;;) {
        if (tid == 0) s.found = 0;
        __syncthreads();
        for (int i = tid; i < count * CHILDREN; i += THREADS) {
            double score = __ldcg(g.child_score + i);
            if (score < bound || ordered((float)score) < least) continue;
            int at = atomicAdd(&s.found, 1);
            s.offer_score[at] = score;
            s.offer_token[at] = __ldcg(g.child_token + i);
            s.offer_tie[at] = tie(s.node[i / CHILDREN], i % CHILDREN);
        }
        __syncthreads();
        found = s.found;
        if (found <= CUT || found <= budget || least) break;
        for (int bit = 31; bit >= 12; bit--) {  // keys that at least `budget` survivors reach
            u32 candidate = least | 1u << bit;
            int reach = 0;
            for (int i = tid; i < found; i += THREADS) reach += ordered((float)s.offer_score[i]) >= candidate;
            if (block_sum(reach, s.scratch) >= budget) least = candidate;
        }
        if (!least) break;
    }
    // places by counting, eight threads an entry: survivors first, then the old list
    for (int first = 0; first < found + size; first += THREADS / 8) {
        const int i = first + tid / 8;
        int place = 0;
        if (i < found) {
            const double score = s.offer_score[i];
            const int key = s.offer_tie[i];
            for (int j = part; j < found; j += 8) place += before(s.offer_score[j], s.offer_tie[j], score, key);
            for (int j = part; j < size; j += 8) place += before(old.score[j], tie(old.parent[j], old.rank[j]), score, key);
        } else if (i < found + size) {
            const double score = old.score[i - found];
            const int key = tie(old.parent[i - found], old.rank[i - found]);
            for (int j = part; j < found; j += 8) place += before(s.offer_score[j], s.offer_tie[j], score, key);
        }
        for (int step = 1; step < 8; step <<= 1) place += __shfl_xor_sync(0xffffffffu, place, step);
        if (part == 0) {
            if (i < found) s.offer_place[i] = place;
            else if (i < found + size) s.place[i - found] = i - found + place;
        }
    }
    __syncthreads();
    for (int i = tid; i < found + size; i += THREADS) {
        const bool is_new = i < found;
        const int at = is_new ? s.offer_place[i] : s.place[i - found];
        if (at >= budget) continue;
        const int parent = is_new ? s.offer_tie[i] / 256 - 1 : old.parent[i - found];
        now.score[at] = is_new ? s.offer_score[i] : old.score[i - found];
        now.token[at] = is_new ? s.offer_token[i] : old.token[i - found];
        now.parent[at] = parent < 0 ? -1 : s.place[parent];
        now.depth[at] = is_new ? depth : old.depth[i - found];
        now.rank[at] = is_new ? s.offer_tie[i] % 256 : old.rank[i - found];
        now.slot[at] = is_new ? -1 : old.slot[i - found];
    }
    size = found + size < budget ? found + size : budget;
    __syncthreads();
    if (stop.costs) raise_least_score(s, stop, now, size, least_score);
    // the next wave, in list order; the last of a full list cannot have a child in it
    int next = 0;
    for (int first = 0; first < size; first += THREADS) {
        const int i = first + tid;
        const bool grows = i < size && i < budget - 1 && depth < levels && now.depth[i] == depth;
        const u32 votes = __ballot_sync(0xffffffffu, grows);
        if (tid % 32 == 0) s.scratch[tid / 32] = __popc(votes);
        __syncthreads();
        int at = next;
        for (int warp = 0; warp < WARPS; warp++) {
            if (warp < tid / 32) at += s.scratch[warp];
            next += s.scratch[warp];
        }
        if (grows) {
            at += __popc(votes & ((1u << tid % 32) - 1));
            s.node[at] = i;
            s.parent_slot[at] = now.parent[i] < 0 ? 0 : now.slot[now.parent[i]];
            now.slot[i] = at;
        }
        __syncthreads();
    }
    return next;
}

// ---- the launch -------------------------------------------------------------------------------------------------------

// `logits` only takes the repair of rows without any finite entry; `root` float32 [GRU]; `anchor`, `position` int64 [1];
// `limits` int32 [2]: levels and nodes allowed in this round.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
grow(const u64* lists, const float2* sums, const int* flags, float* logits, const void* z, const float* root,
     const long long* anchor, const long long* position, const int* limits,
     const void* gru_w1, const float* w1_z, const void* w2, const void* input_weights, const void* embedding,
     u32* barrier, int* ids, float* base, float* logz, void* state, float* u, double* child_score, int* child_token,
     const double* costs, const double* calibration, int knots,
     long long* out_token, int* out_parent, int* out_depth, double* out_score, int* out_count, long long* out_ids,
     long long* out_positions, unsigned char* out_mask, int* out_nan) {
    const Slices slices = {lists, sums, flags};
    const Weights w = {gru_w1, w1_z, w2, input_weights, embedding};
    const Scratch g = {barrier, ids, base, logz, state, u, child_score, child_token};
    const Stop stop = {costs, calibration, knots};
    const Output out = {out_token, out_parent, out_depth, out_score, out_count, out_ids, out_positions, out_mask, out_nan};
    Shared& s = *(Shared*)dynamic_shared();
    const int tid = threadIdx.x;
    u32 round = 0;
#ifdef PROFILE
    int marks = 0;
#endif
    MARK();
    const int levels = limits[0] < LEVELS ? limits[0] : LEVELS, budget = limits[1] < BUDGET ? limits[1] : BUDGET;

#if HALF
    Fragments f;
    load_fragments(f, w);
#else
    const float* f = (const float*)w.gru_w1 + (u64)blockIdx.x * ROWS * GRU;
#if WEIGHTS_SHARED
    for (int i = tid; i < ROWS * GRU; i += THREADS) s.weights[i] = f[i];
    f = s.weights;
#endif
#endif
    for (int row = blockIdx.x; row < LEVELS; row += BLOCKS) {
        float logz = merge_row(slices, row, VOCAB, M, SPLITS, logits + (u64)row * VOCAB, s.merge, g.ids + row * M,
                               g.base + row * M);
        if (tid == 0) g.logz[row] = logz;
    }
    if (tid < 8) {
        s.new_state[0][tid] = root[blockIdx.x * 8 + tid];
        publish(g, 0, tid, s.new_state[0][tid]);
    }
    MARK();
    level_parts(s, w, z);
    MARK();
    grid_barrier(g.barrier, BLOCKS, ++round);
    MARK();

    int size = 0, count = budget > 0 && levels > 0 ? 1 : 0, turn = 0, level = 0;
    double least_score = NEG_INF;
    const Stop early = {costs && convex(s, costs + 1, budget) ? costs : nullptr, calibration, knots};
    if (count) stage_w2(s, w, g, 0), load_level(s, g, 0);
    while (count) {
        const List& old = s.list[turn];
        product(s, f, g, level, count);
        MARK();
        if (level >= PREFIX) grid_barrier(g.barrier, BLOCKS, ++round);
        MARK();
        wait_copies();
        __syncthreads();
        for (int n = blockIdx.x; n < count; n += BLOCKS)
            children(s, w, g, level, n, level ? old.score[s.node[n]] : 0.0);
        MARK();
        grid_barrier(g.barrier, BLOCKS, ++round);
        MARK();
        if (++level < levels) stage_w2(s, w, g, level), load_level(s, g, level);
        if (level == 1 && tid == 0) s.node[0] = -1;  // the root's children have no parent node
        __syncthreads();
        for (int i = tid; i < count * 8; i += THREADS) s.old_state[i / 8][i % 8] = s.new_state[i / 8][i % 8];
        count = select(s, g, old, s.list[turn ^ 1], size, count, budget, level, levels, early, least_score);
        turn ^= 1;
        MARK();
        if (!count) break;
#if !TABLE
        inputs(s, s.list[turn], w, count);
#endif
        gates(s, s.list[turn], w, g, count);
        MARK();
        grid_barrier(g.barrier, BLOCKS, ++round);
        MARK();
    }
    const List& tree = s.list[turn];
    __syncthreads();
    const int kept = stop_count(stop, tree.score, size, s.mass, &s.kept);
    int nan = 0;
    for (int i = 0; i < LEVELS * SPLITS; i++) nan |= slices.flags[i] & 1;
    write_tree(out, BUDGET, kept, tree.token, tree.parent, tree.depth, tree.score, *anchor, *position, nan);
    MARK();
}

// ---- the greedy corrected chain -----------------------------------------------------------------------------------------

#ifdef CHAIN
#define PER (HALF ? 8 : 4)                        // numbers in 16 bytes of W2
#define CHUNKS ((EMB / PER + 7) / 8)              // 16-byte pieces of a row for each of eight lanes

#define AHEAD (HALF ? 4 : 2)                      // turns whose rows are on their way at once

// Best token and log-sum-exp parts of L + ΔL over this block's share of the vocabulary; eight lanes a row of W2.
// Bound: one read of W2 (78 MB at 151936 x 256 in float16).
__device__ void whole_row(Shared& s, const Weights& w, const Scratch& g, int level, const float* line, u64* best,
                          float2* part) {
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, q = lane % 8;
    float a[CHUNKS][PER] = {};
    if (level >= PREFIX)
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if ((q + 8 * i) * PER < EMB)
#pragma unroll
                for (int k = 0; k < PER; k++) {
                    float u = __ldcg(g.u + level * EMB + (q + 8 * i) * PER + k);
                    a[i][k] = u * sigmoid(u);
                }
    u64 top = 0;
    float most = NEG_INF, total = 0;
    for (int first = (blockIdx.x * WARPS + warp) * 4; first < VOCAB; first += BLOCKS * WARPS * 4 * AHEAD) {
        uint4 v[AHEAD][CHUNKS];  // rows of several turns are asked for before the first is used
        float x[AHEAD];
#pragma unroll
        for (int turn = 0; turn < AHEAD; turn++) {
            const int id = first + turn * (BLOCKS * WARPS * 4) + lane / 8;
            x[turn] = q == 0 && id < VOCAB ? __ldcg(line + id) : NEG_INF;
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                v[turn][i] = make_uint4(0, 0, 0, 0);
                if (level >= PREFIX && id < VOCAB && (q + 8 * i) * PER < EMB)
                    v[turn][i] = __ldg((const uint4*)w.w2 + (u64)id * (EMB / PER) + q + 8 * i);
            }
        }
#pragma unroll
        for (int turn = 0; turn < AHEAD; turn++) {
            const int id = first + turn * (BLOCKS * WARPS * 4) + lane / 8;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                const uint4 row = v[turn][i];
#if HALF
                sum += half_to_float(row.x & 0xffff) * a[i][0] + half_to_float(row.x >> 16) * a[i][1];
                sum += half_to_float(row.y & 0xffff) * a[i][2] + half_to_float(row.y >> 16) * a[i][3];
                sum += half_to_float(row.z & 0xffff) * a[i][4] + half_to_float(row.z >> 16) * a[i][5];
                sum += half_to_float(row.w & 0xffff) * a[i][6] + half_to_float(row.w >> 16) * a[i][7];
#else
                sum += __uint_as_float(row.x) * a[i][0] + __uint_as_float(row.y) * a[i][1];
                sum += __uint_as_float(row.z) * a[i][2] + __uint_as_float(row.w) * a[i][3];
#endif
            }
            for (int step = 1; step < 8; step <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (q == 0 && id < VOCAB) {
                const float value = x[turn] + sum;
                const u64 entry = composite(value, id);
                top = entry > top ? entry : top;
                if (value > most) total = total * expf(most - value) + 1, most = value;
                else if (value > NEG_INF) total += expf(value - most);
            }
        }
    }
    if (top) atomicMax(best, top);
    const float warp_most = warp_max(most);
    total = warp_sum(most > NEG_INF ? total * expf(most - warp_most) : 0.0f);
    if (lane == 0) s.warp_most[warp] = warp_most, s.warp_total[warp] = total;
    __syncthreads();
    if (tid == 0) {
        float block_most = NEG_INF, sum = 0;
        for (int i = 0; i < WARPS; i++) block_most = fmaxf(block_most, s.warp_most[i]);
        for (int i = 0; i < WARPS; i++)
            if (s.warp_most[i] > NEG_INF) sum += s.warp_total[i] * expf(s.warp_most[i] - block_most);
        part[blockIdx.x] = make_float2(block_most, sum);
    }
}

// The chain whose token at each level is the best of the whole vocabulary, as children of the levels for pop_levels():
// `only` 1: Domino's chain, one child a level, scored over the whole row; 0: the static scorer, the candidates of each
// level corrected for the chain's state. best u64 [LEVELS]; parts float2 [LEVELS, BLOCKS].
extern "C" __global__ void __launch_bounds__(THREADS, 1)
chain(const u64* lists, const float2* sums, const int* flags, float* logits, const void* z, const float* root,
      const void* gru_w1, const float* w1_z, const void* w2, const void* input_weights, const void* embedding,
      u32* barrier, int* ids, float* base, float* logz, void* state, float* u, double* child_score, int* child_token,
      u64* best, float2* parts, float* list_score, int only) {
    const Slices slices = {lists, sums, flags};
    const Weights w = {gru_w1, w1_z, w2, input_weights, embedding};
    const Scratch g = {barrier, ids, base, logz, state, u, child_score, child_token};
    Shared& s = *(Shared*)dynamic_shared();
    const int tid = threadIdx.x;
    u32 round = 0;
#if HALF
    Fragments f;
    load_fragments(f, w);
#else
    const float* f = (const float*)w.gru_w1 + (u64)blockIdx.x * ROWS * GRU;
#endif
    if (blockIdx.x == 0 && tid < LEVELS) best[tid] = 0;
    for (int row = blockIdx.x; row < LEVELS; row += BLOCKS) {
        float value = merge_row(slices, row, VOCAB, M, SPLITS, logits + (u64)row * VOCAB, s.merge, ids + row * M,
                                base + row * M);
        if (tid == 0) logz[row] = value;
    }
    if (tid < 8) {
        s.new_state[0][tid] = root[blockIdx.x * 8 + tid];
        publish(g, 0, tid, s.new_state[0][tid]);
    }
    if (tid == 0) s.node[0] = 0, s.parent_slot[0] = 0;
    level_parts(s, w, z);
    grid_barrier(barrier, BLOCKS, ++round);
    for (int level = 0; level < LEVELS; level++) {
        Scratch own = g;
        own.u = u + level * EMB;
        product(s, f, own, level, 1);
        if (level >= PREFIX) grid_barrier(barrier, BLOCKS, ++round);
        if (only || level + 1 < LEVELS) {
            whole_row(s, w, g, level, logits + (u64)level * VOCAB, best + level, parts + level * BLOCKS);
            grid_barrier(barrier, BLOCKS, ++round);
        }
        if (level + 1 == LEVELS) break;
        if (tid == 0) s.list[0].token[0] = id_of(__ldcg(best + level));
        if (tid < 8) s.old_state[0][tid] = s.new_state[0][tid];
        __syncthreads();
#if !TABLE
        inputs(s, s.list[0], w, 1);
#endif
        gates(s, s.list[0], w, g, 1);
        grid_barrier(barrier, BLOCKS, ++round);
    }
    if (blockIdx.x >= LEVELS) return;
    for (int level = blockIdx.x; level < LEVELS; level += BLOCKS) {
        if (only) {
            float most = NEG_INF, sum = 0;
            for (int i = 0; i < BLOCKS; i++) most = fmaxf(most, __ldcg(&parts[level * BLOCKS + i].x));
            for (int i = 0; i < BLOCKS; i++) {
                float2 part = __ldcg(parts + level * BLOCKS + i);
                if (part.x > NEG_INF) sum += part.y * expf(part.x - most);
            }
            if (tid == 0) {
                const u64 entry = __ldcg(best + level);
                list_score[level] = unordered((u32)(entry >> 32)) - (most + logf(sum));
                child_token[level] = id_of(entry);
            }
            continue;
        }
        __syncthreads();
        stage_w2(s, w, g, level), load_level(s, g, level);
        wait_copies();
        children(s, w, g, level, level, 0.0);
        __syncthreads();
        for (int i = tid; i < CHILDREN; i += THREADS)
            list_score[level * CHILDREN + i] = (float)child_score[level * CHILDREN + i];
    }
}
#endif

// Bytes of dynamic shared memory that grow() wants.
extern "C" __global__ void shared_bytes(int* out) { *out = sizeof(Shared); }

#if TABLE
// The anchor's GRU state, from the zero state: root float32 [GRU].
extern "C" __global__ void root_state(const long long* anchor, const void* inputs, float* root) {
    const int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= GRU) return;
    u64 at = ((u64)*anchor * BLOCKS + unit / 8) * 24 + unit % 8;
#if TABLE == 1
    float z = half_to_float(((const unsigned short*)inputs)[at + 8]);
    float n = half_to_float(((const unsigned short*)inputs)[at + 16]);
#else
    float z = ((const float*)inputs)[at + 8], n = ((const float*)inputs)[at + 16];
#endif
    root[unit] = (1.0f - sigmoid(z)) * tanhf(n);
}
#endif
