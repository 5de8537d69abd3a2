// Tree attention of n verify rows over a committed prefix and themselves, bound by reading K and V of the prefix once.
//
// Grid (SPLITS, G, Z): CTA (s, g, z) serves key/value head g, the z-th share of the n·PER rows (row = node · PER + head in
// the group, so keys and values are never repeated) and the s-th share of the length + n keys, read from the device:
// shares follow the real length, not a bucket. Steps:
//   1. cp.async of the prefix's keys and values; bit words of the tree mask for the keys of the tail;
//   2. (here the predecessor must have ended) per-head RMSNorm and rotary of this share's queries, and of the tail's keys
//      where they are in this share: those go to shared memory and, with the values, into the cache;
//   3. by tiles of TK keys: S = QKᵀ (warp = 16 rows × its keys), one maximum per row over the CTA, P to shared memory in
//      bf16, O += PV (warp = 16 rows × its D/KS columns);
//   4. sum over the splits: every CTA of the cluster sends its part of O to the row's owner, which adds them in order.
//      Without clusters the parts go to device memory and `combine_splits` adds them.
// Products are m16n8k16 in bf16 with float32 sums; softmax in float32, base 2. RMSNorm rounds as Hugging Face does in
// bf16 (normed value, then times weight); rotary is computed in float32 and rounded once.
// Every sum runs in an order that n and length alone fix.
//
// Defines: D head size, PER query heads per key/value head, MT tiles of 16 rows, KS warps per tile, UN units of 16 keys
// per warp and tile of keys, STAGES tiles in shared memory, SPLITS, NORM 0/1, CLUSTER 0/1, PDL.
// Tiles are taken from the end, so that the tail is always among the first STAGES.
#include "shared.cuh"

#define ROWS (MT * 16)
#define TK (KS * UN * 16)
#define WARPS (MT * KS)
#define THREADS (WARPS * 32)
#define LD (D + 8)    // bf16 elements per staged row: an odd multiple of 16 bytes, so ldmatrix is free of conflicts
#define LDP (TK + 8)  // the same for a row of P
#define LPR (D / 8)   // lanes per row of qkv, 16 bytes each
#define RPW (32 / LPR)
#define COLUMNS (D / KS)  // of O, per warp
#define OWNED ((ROWS + SPLITS - 1) / SPLITS)
#define LDO (D + 8)   // floats per row of a received part
#define BATCH 3       // rows of qkv in flight per lane

static_assert(COLUMNS % 16 == 0, "a warp takes 16 columns of V at a time");
static_assert(TK % 16 == 0 && (D == 64 || D == 128), "unsupported shape");

#define NEGATIVE_INFINITY __int_as_float(0xff800000)

struct Parts {  // where the parts of O and their (maximum, sum) go when there is no cluster
  float* o;     // [G, Z, SPLITS, ROWS, D]
  float2* stat; // [G, Z, SPLITS, ROWS]
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tree_attention(const bf16* qkv, const bf16* q_norm, const bf16* k_norm, float eps, const float* cosines,
               const float* sines, const long long* positions, const long long* length, const unsigned char* mask,
               int n, bf16* k_cache, bf16* v_cache, int capacity, bf16* out, float scale, int room, float* part_o,
               float2* part_stat, const void* next, long long next_bytes) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int split = blockIdx.x, g = blockIdx.y, z = blockIdx.z, groups = gridDim.y;
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;

  // Shared memory; `room` = rows of K (and of V) staged.
  const unsigned q_at = shared_address(shared);
  const unsigned k_at = q_at + ROWS * LD * 2, v_at = k_at + room * LD * 2, p_at = v_at + room * LD * 2;
  const unsigned fixed = (ROWS + 2 * room) * LD * 2 + ROWS * LDP * 2;
  float* const top_of = reinterpret_cast<float*>(shared + fixed);       // [KS, ROWS]
  float* const sum_of = top_of + KS * ROWS;                             // [KS, ROWS]
  float* const part = sum_of + KS * ROWS;                               // [SPLITS, OWNED, LDO]
  float2* const stat = reinterpret_cast<float2*>(part + SPLITS * OWNED * LDO * CLUSTER);  // [SPLITS, OWNED]
  unsigned* const seen = reinterpret_cast<unsigned*>(stat + SPLITS * OWNED * CLUSTER);    // mask words

  let_successor_start();
#if CLUSTER
  cluster_arrive();  // from here on neighbours may write into `part`
#endif

  // This CTA's share of rows and of keys.
  const int committed = (int)*length, keys = committed + n;
  const int share = (n * PER + gridDim.z - 1) / gridDim.z, row0 = z * share;
  const int rows = max(0, min(share, n * PER - row0));
  const int chunk = ((keys + SPLITS - 1) / SPLITS + 15) / 16 * 16;
  const int k0 = split * chunk, k1 = rows > 0 ? max(k0, min(keys, k0 + chunk)) : k0;
  const int k_end = k0 + (k1 - k0 + 15) / 16 * 16;
  const int tiles = (k_end - k0 + TK - 1) / TK;
  bf16* const k_head = k_cache + (size_t)g * capacity * D;
  bf16* const v_head = v_cache + (size_t)g * capacity * D;

  auto tile_begin = [&](int tile) { return max(k0, k_end - (tile + 1) * TK); };
  auto load = [&](unsigned to, const bf16* head, int tile) {
    if (tile < tiles) {
      const int begin = tile_begin(tile), wanted = (min(committed, k_end - tile * TK) - begin) * LPR;
      to += (tile % STAGES) * TK * LD * 2;
      const bf16* from = head + (size_t)begin * D;
      for (int i = tid; i < wanted; i += THREADS) copy_16(to + (i / LPR) * LD * 2 + (i % LPR) * 16, from + (size_t)i * 8);
    }
    close_copies();
  };
#pragma unroll
  for (int t = 0; t < STAGES; ++t) {
    load(k_at, k_head, t);
    load(v_at, v_head, t);
  }

  // Bit words of the mask, 32 keys from k0 on each, from the first that touches the tail.
  const int word0 = max(0, committed - k0) / 32;
  const int words = k1 > max(k0, committed) ? (k1 - k0 + 31) / 32 - word0 : 0;
  const int node0 = row0 / PER, nodes = rows > 0 ? (row0 + rows - 1) / PER - node0 + 1 : 0;
  for (int i = warp; i < nodes * words; i += WARPS) {
    const int node = node0 + i / words, key = k0 + (word0 + i % words) * 32 + lane;
    const bool sees = key < committed ||
                      (key < keys && (mask == nullptr || mask[(size_t)node * n + (key - committed)] != 0));
    const unsigned bits = __ballot_sync(0xffffffffu, sees);
    if (lane == 0) seen[i] = bits;
  }
  // Rows that no one fills: queries beyond the last, values between the last key and the end of its unit.
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  for (int i = rows * LPR + tid; i < ROWS * LPR; i += THREADS) store_16(q_at + (i / LPR) * LD * 2 + (i % LPR) * 16, zeros);
  for (int i = tid; i < (k_end - k1) * LPR; i += THREADS)
    store_16(v_at + (k1 + i / LPR - tile_begin(0)) * LD * 2 + (i % LPR) * 16, zeros);

  // Queries, then the tail's keys, then its values: LPR lanes a row.
  {
    const int first = min(k1, max(k0, committed)), tail = k1 - first, jobs = rows + 2 * tail;
    const int t = lane % LPR, column = t * 8, turn = t % (LPR / 2) * 8;
    const int step = WARPS * RPW, mine = warp * RPW + lane / LPR;
    const size_t stride = (size_t)(PER + 2) * groups * D;
#if NORM
    const uint4 q_weight = *reinterpret_cast<const uint4*>(q_norm + column);
    const uint4 k_weight = *reinterpret_cast<const uint4*>(k_norm + column);
#endif
    for (int j0 = 0; j0 < jobs; j0 += BATCH * step) {
      uint4 raw[BATCH];
      float4 turns[BATCH][4];
      int node_of[BATCH];
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int j = j0 + b * step + mine;
        node_of[b] = j < rows ? (row0 + j) / PER : first - committed + (j - rows) % max(tail, 1);
        if (j < rows + tail) {
          const size_t at = (size_t)positions[node_of[b]] * (D / 2) + turn;
          turns[b][0] = *reinterpret_cast<const float4*>(cosines + at);
          turns[b][1] = *reinterpret_cast<const float4*>(cosines + at + 4);
          turns[b][2] = *reinterpret_cast<const float4*>(sines + at);
          turns[b][3] = *reinterpret_cast<const float4*>(sines + at + 4);
        } else {
          turns[b][0] = turns[b][1] = turns[b][2] = turns[b][3] = make_float4(0.f, 0.f, 0.f, 0.f);
        }
      }
      wait_for_predecessor();
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int j = j0 + b * step + mine;
        const int head = j < rows ? g * PER + (row0 + j) % PER : (PER + (j >= rows + tail)) * groups + g;
        raw[b] = zeros;
        if (j < jobs) raw[b] = __ldcg(reinterpret_cast<const uint4*>(qkv + node_of[b] * stride + (size_t)head * D + column));
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int j = j0 + b * step + mine;
        const unsigned in[4] = {raw[b].x, raw[b].y, raw[b].z, raw[b].w};
        unsigned pairs[4];
#if NORM
        float square = 0.f;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          square += low_half(in[i]) * low_half(in[i]) + high_half(in[i]) * high_half(in[i]);
#pragma unroll
        for (int o = LPR / 2; o > 0; o >>= 1) square += __shfl_xor_sync(0xffffffffu, square, o);
        const float inverse = rsqrtf(square * (1.f / D) + eps);
        const uint4 weight = j < rows ? q_weight : k_weight;
        const unsigned w[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pairs[i] = pack_bf16(rounded(low_half(in[i]) * inverse) * low_half(w[i]),
                               rounded(high_half(in[i]) * inverse) * high_half(w[i]));
#else
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = in[i];
#endif
        unsigned done[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // dimension c turns with c + D/2
          const unsigned other = __shfl_xor_sync(0xffffffffu, pairs[i], LPR / 2);
          const float4 c = turns[b][i / 2], s = turns[b][2 + i / 2];
          const float c0 = i % 2 ? c.z : c.x, c1 = i % 2 ? c.w : c.y;
          float s0 = i % 2 ? s.z : s.x, s1 = i % 2 ? s.w : s.y;
          if (t < LPR / 2) s0 = -s0, s1 = -s1;
          done[i] = pack_bf16(low_half(pairs[i]) * c0 + low_half(other) * s0,
                              high_half(pairs[i]) * c1 + high_half(other) * s1);
        }
        uint4 value = make_uint4(done[0], done[1], done[2], done[3]);
        if (j < rows) {
          store_16(q_at + j * LD * 2 + t * 16, value);
        } else if (j < jobs) {
          const bool is_value = j >= rows + tail;
          if (is_value) value = raw[b];
          const int key = committed + node_of[b], tile = (k_end - 1 - key) / TK;
          store_16((is_value ? v_at : k_at) + (tile * TK + key - tile_begin(tile)) * LD * 2 + t * 16, value);
          if (z == 0) *reinterpret_cast<uint4*>((is_value ? v_head : k_head) + (size_t)key * D + column) = value;
        }
      }
    }
    wait_for_predecessor();
  }

  const int mt = warp / KS, ks = warp % KS, gr = lane >> 2, q = lane & 3;
  const unsigned q_lane = q_at + (mt * 16 + lane % 16) * LD * 2 + (lane / 16) * 16;
  const unsigned p_lane = p_at + (mt * 16 + lane % 16) * LDP * 2 + (lane / 16) * 16;
  const unsigned p_store = p_at + (mt * 16 + gr) * LDP * 2 + q * 4;
  const unsigned k_lane = (lane % 8 + lane / 16 * 8) * LD * 2 + (lane / 8 % 2) * 16;
  const unsigned v_lane = (lane % 16) * LD * 2 + (ks * COLUMNS + lane / 16 * 8) * 2;
  const unsigned* seen_by[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = min(mt * 16 + gr + h * 8, max(rows - 1, 0));
    seen_by[h] = seen + ((row0 + row) / PER - node0) * words;
  }

  float o[COLUMNS / 8][4], top[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, sum[2] = {0.f, 0.f};
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
    for (int c = 0; c < 4; ++c) o[j][c] = 0.f;

  for (int tile = 0; tile < tiles; ++tile) {
    if (tile > 0) {
      __syncthreads();  // nobody reads the oldest stage any more
      load(k_at, k_head, tile - 1 + STAGES);
      load(v_at, v_head, tile - 1 + STAGES);
    }
    wait_for_copies<2 * STAGES - 1>();
    __syncthreads();  // K of this tile is there
    const int begin = tile_begin(tile), units = (k_end - tile * TK - begin) / 16;
    const unsigned stage = (tile % STAGES) * TK * LD * 2;

    float s[2 * UN][4];
#pragma unroll
    for (int j = 0; j < 2 * UN; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) s[j][c] = 0.f;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      unsigned a[4];
      load_matrices(a, q_lane + k * 32);
#pragma unroll
      for (int u = 0; u < UN; ++u) {
        if (u * KS + ks < units) {
          unsigned b[4];
          load_matrices(b, k_at + stage + (u * KS + ks) * 16 * LD * 2 + k_lane + k * 32);
          mma_16x8x16(s[2 * u], a[0], a[1], a[2], a[3], b[0], b[1]);
          mma_16x8x16(s[2 * u + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
    }

    float best[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY};
#pragma unroll
    for (int u = 0; u < UN; ++u) {
      const int unit = u * KS + ks, offset = begin - k0 + unit * 16, word = offset / 32 - word0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        unsigned bits = unit < units ? 0xffffffffu : 0u;
        if (unit < units && words > 0 && word >= 0) bits = seen_by[h][word] >> (offset & 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // n-tile i / 2, column 2q + i % 2
          float& x = s[2 * u + i / 2][2 * h + i % 2];
          x = (bits >> (i / 2 * 8 + 2 * q + i % 2)) & 1 ? x * scale : NEGATIVE_INFINITY;
          best[h] = fmaxf(best[h], x);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 1));
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 2));
      if (q == 0) top_of[ks * ROWS + mt * 16 + gr + h * 8] = best[h];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float higher = top[h];
#pragma unroll
      for (int w = 0; w < KS; ++w) higher = fmaxf(higher, top_of[w * ROWS + mt * 16 + gr + h * 8]);
      const float base = higher == NEGATIVE_INFINITY ? 0.f : higher;  // a row that sees nothing yet
      const float fade = exp2f(top[h] - base);
      top[h] = higher;
      sum[h] *= fade;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) o[j][2 * h] *= fade, o[j][2 * h + 1] *= fade;
#pragma unroll
      for (int j = 0; j < 2 * UN; ++j) {
        const float p0 = exp2f(s[j][2 * h] - base), p1 = exp2f(s[j][2 * h + 1] - base);
        sum[h] += p0 + p1;
        if (j / 2 * KS + ks < units)
          store_4(p_store + h * 8 * LDP * 2 + ((j / 2 * KS + ks) * 16 + j % 2 * 8) * 2, pack_bf16(p0, p1));
      }
    }
    wait_for_copies<2 * STAGES - 2>();
    __syncthreads();  // P and V of this tile are there
#pragma unroll 4
    for (int k = 0; k < units; ++k) {
      unsigned a[4];
      load_matrices(a, p_lane + k * 32);
#pragma unroll
      for (int j = 0; j < COLUMNS / 16; ++j) {
        unsigned b[4];
        load_matrices_transposed(b, v_at + stage + k * 16 * LD * 2 + v_lane + j * 32);
        mma_16x8x16(o[2 * j], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_16x8x16(o[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
  if (next_bytes > 0 && tid == 0)
    prefetch_share(next, next_bytes, (z * groups + g) * SPLITS + split, SPLITS * groups * gridDim.z);

  // Send the parts: neighbouring lanes swap halves so that each holds four columns of one row.
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    if (q == 0) sum_of[ks * ROWS + mt * 16 + gr + h * 8] = sum[h];
    if (q == 0 && ks == 0) top_of[mt * 16 + gr + h * 8] = top[h];  // last read before the barrier that P waited for
  }
  const int odd = q & 1, row = mt * 16 + gr + odd * 8;
#if CLUSTER
  const int owned = max(1, (rows + SPLITS - 1) / SPLITS);
  cluster_wait();
  const unsigned there =
      neighbour_address(shared_address(part + (split * OWNED + row % owned) * LDO), min(row / owned, SPLITS - 1));
#else
  const size_t place = ((size_t)(g * gridDim.z + z) * SPLITS + split) * ROWS;
#endif
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
    const float r0 = __shfl_xor_sync(0xffffffffu, odd ? o[j][0] : o[j][2], 1);
    const float r1 = __shfl_xor_sync(0xffffffffu, odd ? o[j][1] : o[j][3], 1);
    const int column = ks * COLUMNS + j * 8 + (q >> 1) * 4;
    const float x0 = odd ? r0 : o[j][0], x1 = odd ? r1 : o[j][1], x2 = odd ? o[j][2] : r0, x3 = odd ? o[j][3] : r1;
    if (row < rows) {
#if CLUSTER
      neighbour_store_16(there + column * 4, x0, x1, x2, x3);
#else
      *reinterpret_cast<float4*>(part_o + (place + row) * D + column) = make_float4(x0, x1, x2, x3);
#endif
    }
  }
  __syncthreads();
  for (int r = tid; r < rows; r += THREADS) {
    float all = 0.f;
#pragma unroll
    for (int w = 0; w < KS; ++w) all += sum_of[w * ROWS + r];
#if CLUSTER
    neighbour_store_8(neighbour_address(shared_address(stat + split * OWNED + r % owned), r / owned), top_of[r], all);
#else
    part_stat[place + r] = make_float2(top_of[r], all);
#endif
  }
#if CLUSTER
  cluster_arrive();
  cluster_wait();  // every part of the rows that this CTA owns is there
  for (int i = tid; i < owned * (D / 4); i += THREADS) {
    const int slot = i / (D / 4), column = i % (D / 4) * 4, r = split * owned + slot;
    if (r >= rows) break;
    float highest = NEGATIVE_INFINITY, all = 0.f, x[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int w = 0; w < SPLITS; ++w) highest = fmaxf(highest, stat[w * OWNED + slot].x);
    if (highest == NEGATIVE_INFINITY) highest = 0.f;
#pragma unroll
    for (int w = 0; w < SPLITS; ++w) {
      const float2 st = stat[w * OWNED + slot];
      const float weight = exp2f(st.x - highest);
      const float4 v = *reinterpret_cast<const float4*>(part + (w * OWNED + slot) * LDO + column);
      all += weight * st.y;
      x[0] += weight * v.x, x[1] += weight * v.y, x[2] += weight * v.z, x[3] += weight * v.w;
    }
    const float inverse = all > 0.f ? 1.f / all : 0.f;  // a row that sees nothing at all gives zeros, not NaN
    const int at = row0 + r;
    bf16* to = out + ((size_t)(at / PER) * groups * PER + g * PER + at % PER) * D + column;
    *reinterpret_cast<uint2*>(to) =
        make_uint2(pack_bf16(x[0] * inverse, x[1] * inverse), pack_bf16(x[2] * inverse, x[3] * inverse));
  }
#endif
}

#if !CLUSTER
// Adds the parts of each row: a warp a row and group. Grid (rows of all groups / 4), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
combine_splits(const float* part_o, const float2* part_stat, bf16* out, int n, int groups, int shares) {
  let_successor_start();
  wait_for_predecessor();
  const int item = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  const int total = n * PER, g = item / total, at = item % total;
  if (g >= groups) return;
  const int share = (total + shares - 1) / shares, z = at / share, r = at % share;
  const size_t place = (size_t)(g * shares + z) * SPLITS * ROWS + r;
  float highest = NEGATIVE_INFINITY, all = 0.f, x[D / 32];
  float2 st[SPLITS];
#pragma unroll
  for (int w = 0; w < SPLITS; ++w) {
    st[w] = __ldcg(part_stat + place + w * ROWS);
    highest = fmaxf(highest, st[w].x);
  }
  if (highest == NEGATIVE_INFINITY) highest = 0.f;
#pragma unroll
  for (int c = 0; c < D / 32; ++c) x[c] = 0.f;
#pragma unroll
  for (int w = 0; w < SPLITS; ++w) {
    const float weight = exp2f(st[w].x - highest);
    all += weight * st[w].y;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) x[c] += weight * __ldcg(part_o + (place + w * ROWS) * D + c * 32 + lane);
  }
  const float inverse = all > 0.f ? 1.f / all : 0.f;
  bf16* to = out + ((size_t)(at / PER) * groups * PER + g * PER + at % PER) * D;
#pragma unroll
  for (int c = 0; c < D / 32; ++c) to[c * 32 + lane] = __float2bfloat16(x[c] * inverse);
}
#endif
