// Top-M entries of every row of the base logits, by (value, then lower id), and the parts of the row's log-sum-exp.
//
// Grid (SPLITS, rows), 1024 threads. A block keeps its slice of a row in registers: one read of the logits is all the
// traffic (10 MB at 16 x 151936: 2.4 us). The bound that M entries of the slice surely reach comes from the threads'
// maxima (a binary search over key bits, one barrier a bit); what reaches it, M and a few, is ranked by counting.
// Bound: latency of some forty barriers, not bytes.
//
// Defines: VOCAB, M (<= 1024), SPLITS.
#include "builder.cuh"

#define THREADS 1024
#define WIDTH (VOCAB % 4 == 0 ? 4 : 1)
#define SLICE ((VOCAB / WIDTH + SPLITS - 1) / SPLITS * WIDTH)
#define LOADS ((SLICE / WIDTH + THREADS - 1) / THREADS)
#define COUNT (LOADS * WIDTH)
#define ROOM 2048

struct Shared {
    u64 list[ROOM];
    float part[32];
    int scratch[32];
    int found;
};

// A NaN entry counts, and is written back, as -inf (DraftBlock.repair).
// lists: u64 [rows, SPLITS, M] best first, 0 past the end; sums: float2 (max, sum of exp(x - max)) [rows, SPLITS];
// flags: int [rows, SPLITS], bit 0 a NaN was there, bit 1 something finite was. `counters`: grid barriers to reset.
extern "C" __global__ void __launch_bounds__(THREADS)
top_rows(float* logits, u64* lists, float2* sums, int* flags, u32* counters, int counter_count) {
    Shared& s = *(Shared*)dynamic_shared();
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int split = blockIdx.x, row = blockIdx.y;
    const int begin = split * SLICE, end = begin + SLICE < VOCAB ? begin + SLICE : VOCAB;
    float* line = logits + (u64)row * VOCAB;
    if (split == 0 && row == 0 && tid < counter_count) counters[tid] = 0;

    float x[COUNT];
#define AT(i) (begin + ((i) / WIDTH * THREADS + tid) * WIDTH + (i) % WIDTH)
#pragma unroll
    for (int i = 0; i < COUNT; i += WIDTH) {
        if (WIDTH == 4) {
            float4 v = make_float4(NEG_INF, NEG_INF, NEG_INF, NEG_INF);
            if (AT(i) < end) v = *(const float4*)(line + AT(i));
            x[i] = v.x, x[i + WIDTH / 4] = v.y, x[i + WIDTH / 2] = v.z, x[i + 3 * WIDTH / 4] = v.w;
        } else {
            x[i] = AT(i) < end ? line[AT(i)] : NEG_INF;
        }
    }
    bool nan = false, finite = false;
    float most = NEG_INF;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (x[i] != x[i]) nan = true, x[i] = NEG_INF, line[AT(i)] = NEG_INF;
        finite |= fabsf(x[i]) < __uint_as_float(0x7f800000u);
        most = fmaxf(most, x[i]);
    }
    const u32 mine = AT(0) < end ? ordered(most) : 0;

    // log-sum-exp parts
    float top = warp_max(most);
    if (lane == 0) s.part[warp] = top;
    if (tid == 0) s.found = 0;
    int what = (nan ? 1 : 0) | (finite ? 2 : 0);
    const bool any_nan = __syncthreads_or(what & 1), any_finite = __syncthreads_or(what & 2);
    top = warp_max(s.part[lane]);
    float sum = 0;
    if (top > NEG_INF) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) sum += expf(x[i] - top);
    }
    __syncthreads();
    sum = warp_sum(sum);
    if (lane == 0) s.part[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(s.part[lane]);
        if (lane == 0) {
            sums[row * SPLITS + split] = make_float2(top, sum);
            flags[row * SPLITS + split] = (any_nan ? 1 : 0) | (any_finite ? 2 : 0);
        }
    }

    // a bound that at least `want` entries reach: the want-th largest of the threads' maxima, its top 18 bits
    const int want = M < end - begin ? M : end - begin;
    u32 bound = 0;
    for (int bit = 31; bit >= 14; bit--) {
        u32 candidate = bound | 1u << bit;
        if (__syncthreads_count(mine >= candidate) >= want) bound = candidate;
    }
    if (mine >= bound) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (AT(i) < end && ordered(x[i]) >= bound) {
                int at = atomicAdd(&s.found, 1);
                if (at < ROOM) s.list[at] = composite(x[i], AT(i));
            }
    }
    __syncthreads();
    int found = s.found;
    __syncthreads();
    if (found > ROOM) {  // many equal values, or a slice smaller than the block: the exact bound over all entries
        bound = 0;
        for (int bit = 31; bit >= 0; bit--) {
            u32 candidate = bound | 1u << bit;
            int reach = 0;
#pragma unroll
            for (int i = 0; i < COUNT; i++) reach += AT(i) < end && ordered(x[i]) >= candidate;
            if (block_sum(reach, s.scratch) >= want) bound = candidate;
        }
        int above = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) above += AT(i) < end && ordered(x[i]) > bound;
        const int room = want - block_sum(above, s.scratch);
        int low = begin, high = end;  // the lowest `limit` with `room` entries equal to the bound below it
        while (low < high) {
            int limit = (low + high) / 2, equal = 0;
#pragma unroll
            for (int i = 0; i < COUNT; i++) equal += AT(i) < limit && ordered(x[i]) == bound;
            if (block_sum(equal, s.scratch) >= room) high = limit;
            else low = limit + 1;
        }
        if (tid == 0) s.found = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            u32 key = ordered(x[i]);
            if (AT(i) < end && (key > bound || (key == bound && AT(i) < low)))
                s.list[atomicAdd(&s.found, 1)] = composite(x[i], AT(i));
        }
        __syncthreads();
        found = s.found;
    }

    // rank by counting, eight threads an entry
    u64* out = lists + ((u64)row * SPLITS + split) * M;
    for (int first = 0; first < found; first += THREADS / 8) {
        int at = first + tid / 8, rank = 0;
        u64 entry = at < found ? s.list[at] : 0;
        for (int other = tid % 8; other < found; other += 8) rank += s.list[other] > entry;
        for (int step = 1; step < 8; step <<= 1) rank += __shfl_xor_sync(0xffffffffu, rank, step);
        if (at < found && tid % 8 == 0 && rank < M) out[rank] = entry;
    }
    for (int i = found + tid; i < M; i += THREADS) out[i] = 0;
}
