// Rows of key/value caches outside attention: the drafter's context rows, and the commit of accepted rows.
// Both are small; neither lets its successor start early, since later kernels read the cache before their own wait.
// Defines: D (head size), PDL.
#include "shared.cuh"

#define LPR (D / 8)  // lanes per row, 16 bytes each

// kv bf16 [R, layers, 2, G, D]: keys and values of R context vectors for all layers. Keys get RMSNorm (k_norm bf16
// [layers, D]) and rotary at position length + r, then both go to cache row length + r of k, v [layers, G, capacity, D].
// Grid (R, layers), 2 · G · LPR threads or any multiple of 32.
extern "C" __global__ void context_rows(const bf16* kv, const bf16* k_norm, float eps, const float* cosines,
                                        const float* sines, const long long* length, bf16* k_cache, bf16* v_cache,
                                        int groups, int capacity) {
  const int r = blockIdx.x, layer = blockIdx.y, layers = gridDim.y;
  wait_for_predecessor();
  const long long at = *length + r;
  if (at >= capacity) return;  // garbage rows behind the accepted ones may reach beyond the end
  const bf16* row = kv + ((size_t)r * layers + layer) * 2 * groups * D;
  const int items = 2 * groups * LPR;
  for (int i0 = 0; i0 < items; i0 += blockDim.x) {
    const int i = i0 + threadIdx.x, head = i / LPR, t = i % LPR, g = head % groups;
    const bool real = i < items, is_key = head < groups;
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (real) raw = __ldcg(reinterpret_cast<const uint4*>(row + (size_t)i * 8));
    const unsigned in[4] = {raw.x, raw.y, raw.z, raw.w};
    float square = 0.f;
#pragma unroll
    for (int j = 0; j < 4; ++j) square += low_half(in[j]) * low_half(in[j]) + high_half(in[j]) * high_half(in[j]);
#pragma unroll
    for (int o = LPR / 2; o > 0; o >>= 1) square += __shfl_xor_sync(0xffffffffu, square, o);
    const float inverse = rsqrtf(square * (1.f / D) + eps);
    uint4 value = raw;
    unsigned* done = reinterpret_cast<unsigned*>(&value);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned w = k_norm ? *reinterpret_cast<const unsigned*>(k_norm + (size_t)layer * D + t * 8 + j * 2) : 0u;
      const unsigned pair = k_norm ? pack_bf16(rounded(low_half(in[j]) * inverse) * low_half(w),
                                               rounded(high_half(in[j]) * inverse) * high_half(w))
                                   : in[j];
      const unsigned other = __shfl_xor_sync(0xffffffffu, pair, LPR / 2);
      const size_t turn = (size_t)at * (D / 2) + t % (LPR / 2) * 8 + j * 2;
      const float2 c = *reinterpret_cast<const float2*>(cosines + turn);
      const float2 s = *reinterpret_cast<const float2*>(sines + turn);
      const float sign = t < LPR / 2 ? -1.f : 1.f;
      if (is_key)
        done[j] = pack_bf16(low_half(pair) * c.x + sign * low_half(other) * s.x,
                            high_half(pair) * c.y + sign * high_half(other) * s.y);
    }
    bf16* cache = is_key ? k_cache : v_cache;
    if (real) *reinterpret_cast<uint4*>(cache + (((size_t)layer * groups + g) * capacity + at) * D + t * 8) = value;
  }
}

// Moves rows length + path[i] to length + i, i < count, in k and v [heads = layers · G, capacity, D]. path is strictly
// ascending, so path[i] ≥ i, and a thread that moves its 16 bytes of every row in order reads each before it is
// overwritten: eight reads, then eight writes. Grid (heads · LPR / threads, 2).
extern "C" __global__ void __launch_bounds__(256)
commit_rows(bf16* k_cache, bf16* v_cache, const long long* path, const void* count_at, int count_is_long, int longest,
            const long long* length, int heads, int capacity) {
  wait_for_predecessor();
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= heads * LPR) return;
  int count = longest;
  if (count_at) {
    const long long counted = count_is_long ? *(const long long*)count_at : *(const int*)count_at;
    count = (int)min(counted, (long long)longest);
  }
  bf16* cache = blockIdx.y ? v_cache : k_cache;
  bf16* base = cache + ((size_t)(item / LPR) * capacity + *length) * D + item % LPR * 8;
  for (int i0 = 0; i0 < count; i0 += 8) {
    uint4 held[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i0 + i < count) held[i] = *reinterpret_cast<const uint4*>(base + (size_t)path[i0 + i] * D);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i0 + i < count) *reinterpret_cast<uint4*>(base + (size_t)(i0 + i) * D) = held[i];
  }
}
