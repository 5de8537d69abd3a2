// Skinny product Y[n, N] = X[n, K] · W[N, K]ᵀ for 1 to 136 rows on Hopper, bound by reading W once from device memory.
//
// One producer warp streams tiles of ROWS × 64 of W, and the same 64 columns of X, through a ring of STAGES in shared
// memory (TMA); WG warpgroups multiply them (wgmma, W as the 64-row operand, the n rows of X as its narrow side). The
// producer never waits for results: it runs ahead into the next tile, and, as the weights depend on nothing, starts
// before the preceding kernel has ended. A cluster of C CTAs splits the columns; partial sums meet in shared memory and
// are added in a fixed order, so the same input gives the same bits.
//
// RMSNorm costs no pass of its own: X holds h ∘ g (g: the norm's weight), and since a row's scale commutes with the
// product, Y is multiplied by 1/rms at the end. The squares for it come as sums over column segments, written by the
// kernel that wrote h.
//
// Defines: NTOK rows of X padded to a multiple of 8; WG; STAGES; C; MIN_CTAS per multiprocessor; PDL;
//   LEAD loads left when the successor may start; SCALE 1: multiply by 1/rms(h);
//   EPI 0: Y bf16; 1: Y float32; 2: h += Y (or h = Y when `fresh`), X of the next product, squares, features;
//       3: SwiGLU (warpgroup 0 has gates, 1 ups), bf16 [n, N/2].
#include "common.cuh"
#include "hopper.cuh"

#define ROWS (64 * WG)
#define W_BYTES (ROWS * 128)
#define X_BYTES (NTOK * 128)
#define STAGE_BYTES (W_BYTES + X_BYTES)
#define PITCH (ROWS + 4)  // floats per token in the reduction buffer: conflict-free stores
#define CONSUMERS (128 * WG)
#define TILE_OUT (EPI == 3 ? 64 : ROWS)  // columns of Y per tile
#define SHARE (TILE_OUT / C)             // … of which each CTA of the cluster writes so many
#define SEGMENT (SHARE < 32 ? SHARE : 32)  // columns per sum of squares

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32, MIN_CTAS)
skinny(const void* w_map, const void* x_map, void* Y, const float* squares_in, int segments_in, int squares_pitch, float eps,
       bf16* scaled_out, const bf16* __restrict__ next_norm, float* squares_out, bf16* features, int feature_pitch,
       int fresh, int n, int N, int K) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES], ready, done;
  __shared__ float scale[NTOK];
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  const int rank = blockIdx.x % C, first = blockIdx.x / C, stride = gridDim.x / C;
  const int tiles = (N + (EPI == 3 ? 128 : ROWS) - 1) / (EPI == 3 ? 128 : ROWS);
  const int k_blocks = K / 64, kb_begin = rank * k_blocks / C, kb_end = (rank + 1) * k_blocks / C;
  const unsigned ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  float* red = reinterpret_cast<float*>(dynamic + (ring - shared_address(dynamic)) + STAGES * STAGE_BYTES);

  if (tid == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&full[s], 1);
      barrier_init(&empty[s], WG);
    }
    barrier_init(&ready, C);
    barrier_init(&done, C);
    barriers_visible();
  }
  __syncthreads();
#if C > 1
  cluster_arrive();
#endif

  if (warp == CONSUMERS / 32) {  // ---------------------------------------------------------------- producer
    if (lane == 0) {
      auto load_w = [&](int tile, int kb, int slot) {
        const unsigned at = ring + slot * STAGE_BYTES;
        barrier_expect(&full[slot], STAGE_BYTES);
#pragma unroll
        for (int w = 0; w < WG; ++w) {
          int row = EPI == 3 ? w * (N / 2) + tile * 64 : tile * ROWS + w * 64;
          tma_load(at + w * 8192, w_map, kb * 64, row, &full[slot]);
        }
      };
      auto load_x = [&](int kb, int slot) {
        tma_load(ring + slot * STAGE_BYTES + W_BYTES, x_map, kb * 64, 0, &full[slot]);
      };
      const int per_tile = kb_end - kb_begin;
      const int mine = first < tiles ? (tiles - first + stride - 1) / stride : 0, total = mine * per_tile;
      const int early = min(total, STAGES);
      // The successor's loads should follow ours without a gap: not earlier, or its ring is full before our end.
      const int trigger = total - LEAD;
      if (trigger <= early) let_successor_start();
      for (int i = 0; i < early; ++i) load_w(first + i / per_tile * stride, kb_begin + i % per_tile, i);
      wait_for_predecessor();
      for (int i = 0; i < early; ++i) load_x(kb_begin + i % per_tile, i);
      int tile = first + early / per_tile * stride, kb = kb_begin + early % per_tile, slot = 0;
      unsigned parity = 0;
      for (int i = early; i < total; ++i) {
        if (i == trigger) let_successor_start();
        barrier_wait(&empty[slot], parity);
        load_w(tile, kb, slot);
        load_x(kb, slot);
        if (++kb == kb_end) kb = kb_begin, tile += stride;
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
#if C > 1
    __syncwarp();
    cluster_wait();
#endif
    return;
  }

  // -------------------------------------------------------------------------------------------------- consumers
#if C > 1
  cluster_wait();  // the barriers of all CTAs exist
#endif
  wait_for_predecessor();
#if SCALE
  for (int token = warp; token < n; token += CONSUMERS / 32) {
    float sum = 0.f;
    for (int s = lane; s < segments_in; s += 32) sum += __ldcg(squares_in + (size_t)token * squares_pitch + s);
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) scale[token] = rsqrtf(sum / K + eps);
  }
  consumers_sync(CONSUMERS);
#endif

  const int wg = warp / 4, g = lane / 4, t = lane % 4;
  int slot = 0, turn = 0;
  unsigned parity = 0;
  for (int tile = first; tile < tiles; tile += stride, ++turn) {
    float acc[NTOK / 2];
#pragma unroll
    for (int i = 0; i < NTOK / 2; ++i) acc[i] = 0.f;
    int previous = -1;
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      barrier_wait(&full[slot], parity);
      const unsigned at = ring + slot * STAGE_BYTES;
      wgmma_fence(acc);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma(acc, operand(at + wg * 8192 + k * 32), operand(at + W_BYTES + k * 32));
      wgmma_commit();
      wgmma_wait<1>(acc);
      if (previous >= 0 && tid % 128 == 0) barrier_arrive(&empty[previous]);
      previous = slot;
      if (++slot == STAGES) slot = 0, parity ^= 1;
    }
    wgmma_wait<0>(acc);
    if (previous >= 0 && tid % 128 == 0) barrier_arrive(&empty[previous]);

    // Sum over the cluster in order, then write; each CTA takes SHARE of the tile's columns.
#if C > 1
    if (turn > 0) barrier_wait_cluster(&done, (turn - 1) & 1);  // everyone has read my last sums
#else
    if (turn > 0) consumers_sync(CONSUMERS);
#endif
#pragma unroll
    for (int i = 0; i < NTOK / 2; ++i) {
      int token = i / 4 * 8 + 2 * t + i % 2, row = wg * 64 + (warp % 4) * 16 + g + (i / 2 % 2) * 8;
      red[token * PITCH + row] = acc[i];
    }
    consumers_sync(CONSUMERS);
#if C > 1
    if (tid < C) barrier_arrive_remote(&ready, tid);
    barrier_wait_cluster(&ready, turn & 1);
#endif
    const unsigned red_at = shared_address(red);
    auto total = [&](int token, int row) {
      float part[C];
#pragma unroll
      for (int c = 0; c < C; ++c) part[c] = load_cluster<C>(red_at + (token * PITCH + row) * 4, c);
      float sum = 0.f;
#pragma unroll
      for (int c = 0; c < C; ++c) sum += part[c];
#if SCALE
      sum *= scale[token];
#endif
      return sum;
    };
    const int items = n * SHARE, rounds = (items + CONSUMERS - 1) / CONSUMERS;
#pragma unroll 2
    for (int r = 0; r < rounds; ++r) {
      const int i = r * CONSUMERS + tid, token = min(i / SHARE, n - 1), row = rank * SHARE + i % SHARE;
      const int column = tile * TILE_OUT + row, width = EPI == 3 ? N / 2 : N;
      const bool real = i < items && column < width;
      const size_t place = (size_t)token * width + (real ? column : 0);
#if EPI == 3
      float gate = rounded(total(token, row)), up = rounded(total(token, row + 64));
      float silu = rounded(gate / (1.f + __expf(-gate)));
      if (real) reinterpret_cast<bf16*>(Y)[place] = __float2bfloat16(silu * up);
#elif EPI == 0
      float sum = total(token, row);
      if (real) reinterpret_cast<bf16*>(Y)[place] = __float2bfloat16(sum);
#elif EPI == 1
      float sum = total(token, row);
      if (real) reinterpret_cast<float*>(Y)[place] = sum;
#else
      float value = rounded(total(token, row));
      bf16* h = reinterpret_cast<bf16*>(Y);
      if (real && !fresh) value = rounded(value + __bfloat162float(h[place]));
      if (real) {
        h[place] = __float2bfloat16(value);
        scaled_out[place] = __float2bfloat16(value * __bfloat162float(next_norm[column]));
        if (features) features[(size_t)token * feature_pitch + column] = __float2bfloat16(value);
      }
      float square = real ? value * value : 0.f;
#pragma unroll
      for (int d = SEGMENT / 2; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
      if (real && i % SEGMENT == 0) squares_out[(size_t)token * squares_pitch + column / SEGMENT] = square;
#endif
    }
#if C > 1
    consumers_sync(CONSUMERS);
    if (tid < C) barrier_arrive_remote(&done, tid);
#endif
  }
#if C > 1
  if (turn > 0) barrier_wait_cluster(&done, (turn - 1) & 1);  // nobody reads this CTA's memory any more
#endif
}
