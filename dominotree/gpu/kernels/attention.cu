// Tree attention of N verify rows over a committed prefix and themselves, bound by reading K and V of the prefix once.
//
// Grid (SPLITS, GROUPS, SHARES): CTA (s, g, z) serves key/value head g, the z-th share of the N·PER rows (row = node · PER
// + head in the group, so keys and values are never repeated) and every SPLITS-th unit of 16 keys of the length + N keys,
// read from the device: the work follows the real length, not a bucket. Steps:
//   1. cp.async of the prefix's keys and values and of the mask's rows;
//   2. (here the predecessor must have ended) per-head RMSNorm and rotary of this share's queries, and of the tail's keys
//      in this CTA's units: those go to shared memory and, with the values, into the cache;
//   3. by tiles of TK keys: S = QKᵀ (warp = 16 rows × its units), one maximum per row over the CTA, P to shared memory in
//      bf16, O += PV (warp = 16 rows × its D/KS columns);
//   4. sum over the splits: every CTA of the cluster sends its part of O to the row's owner, which adds them in order.
// The CTAs of a cluster also share the work of step 2: each prepares some of the queries and sends them to all. Without
// clusters every CTA prepares all of its queries, the parts go to device memory and `combine_splits` adds them.
// Products are m16n8k16 in bf16 with float32 sums; softmax in float32, base 2. RMSNorm rounds as Hugging Face does in
// bf16 (normed value, then times weight); rotary is computed in float32 and rounded once.
// Every sum runs in an order that N and length alone fix. With few rows the time is that of a chain of latencies and of
// instructions issued, so sizes are defines and loops have fixed bounds.
//
// Defines: D head size, PER query heads per key/value head, GROUPS key/value heads, N rows, MT tiles of 16 rows, KS warps
// per tile, UN units of 16 keys per warp and tile of keys, STAGES tiles in shared memory, SPLITS, SHARES, NORM 0/1,
// CLUSTER 0/1, PDL. Tiles are taken from the end, so that the tail is always among the first STAGES.
#include "shared.cuh"

#define ROWS (MT * 16)
#define SHARE ((N * PER + SHARES - 1) / SHARES)
#define TU (KS * UN)   // units of 16 keys per tile
#define TK (TU * 16)
#define WARPS (MT * KS)
#define THREADS (WARPS * 32)
#define LD (D + 8)    // bf16 elements per staged row: an odd multiple of 16 bytes, so ldmatrix is free of conflicts
#define LDP (TK + 8)  // the same for a row of P
#define LPR (D / 8)   // lanes per row of qkv, 16 bytes each
#define RPW (32 / LPR)
#define COLUMNS (D / KS)  // of O, per warp
#define OWNED ((SHARE + SPLITS - 1) / SPLITS)
#define LDO (D + 8)   // floats per row of a received part
#define NODES ((SHARE + PER - 2) / PER + 1)
#define TAIL_UNITS (((N + 30) / 16 + SPLITS - 1) / SPLITS)  // at most, in one CTA
#define SENDERS (CLUSTER ? SPLITS : 1)                      // CTAs that prepare queries for each other
#define Q_PASSES (((SHARE + RPW - 1) / RPW + SENDERS - 1) / SENDERS)  // of this CTA; a warp prepares RPW rows at a time
#define UNIT_PASSES (16 / RPW)
#define PASSES ((Q_PASSES + 2 * TAIL_UNITS * UNIT_PASSES + WARPS - 1) / WARPS)  // at most, per warp
#define BATCH (PASSES < 3 ? PASSES : 3)                                         // of them in flight

static_assert(COLUMNS % 16 == 0 && (D == 64 || D == 128), "unsupported shape");
static_assert(SHARE <= ROWS && (SHARES - 1) * SHARE < N * PER, "shares do not fit");
static_assert(TAIL_UNITS <= STAGES * TU, "the tail must be in the first stages");

#define NEGATIVE_INFINITY __int_as_float(0xff800000)

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tree_attention(const bf16* qkv, const bf16* q_norm, const bf16* k_norm, float eps, const float* cosines,
               const float* sines, const long long* positions, const long long* length, const unsigned char* mask,
               bf16* k_cache, bf16* v_cache, int capacity, bf16* out, float scale, int room, float* part_o,
               float2* part_stat) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int split = blockIdx.x, g = blockIdx.y, z = blockIdx.z;
  const int tid = threadIdx.x, warp = __shfl_sync(0xffffffffu, tid >> 5, 0), lane = tid & 31;

  // Shared memory; `room` = rows of K (and of V) staged.
  const unsigned q_at = shared_address(shared);
  const unsigned p_at = q_at + ROWS * LD * 2, k_at = p_at + ROWS * LDP * 2, v_at = k_at + room * (LD * 2);
  float* const top_of = reinterpret_cast<float*>(shared + ROWS * (LD + LDP) * 2 + room * (LD * 4));  // [ROWS, KS]
  float* const sum_of = top_of + ROWS * KS;                                                          // [ROWS, KS]
  float* const part = sum_of + ROWS * KS;                                                 // [OWNED, SPLITS, LDO]
  float2* const stat = reinterpret_cast<float2*>(part + CLUSTER * OWNED * SPLITS * LDO);  // [OWNED, SPLITS]
  const unsigned barriers = shared_address(stat + CLUSTER * OWNED * SPLITS);              // queries, parts: 8 bytes each
  unsigned char* const seen = reinterpret_cast<unsigned char*>(stat + CLUSTER * OWNED * SPLITS) + 16;  // rows of the mask

  let_successor_start();
  const int committed = (int)*length;
  const int row0 = z * SHARE, rows = min(SHARE, N * PER - row0), node0 = row0 / PER;
  const int t = lane % LPR, sub = lane / LPR;  // 16 bytes of a row, row of a pass
  const int turn = t % (LPR / 2) * 8;
#if CLUSTER
  const int owned = max(0, min(OWNED, rows - split * OWNED));  // rows that this CTA adds up
  if (tid == 0) {
    expect_bytes(barriers, rows * D * 2);
    expect_bytes(barriers + 8, owned * SPLITS * (D * 4 + 8));
  }
  __syncwarp();
  cluster_arrive();
#endif

  // Passes of this warp: queries first, then keys, then values of the tail's units. The positions of the queries:
  auto query_row = [&](int pass) { return ((CLUSTER ? pass * SPLITS + split : pass) * RPW + sub); };
  int node_of[BATCH];
  size_t turn_at[BATCH];
#pragma unroll
  for (int b = 0; b < BATCH; ++b) {
    const int pass = warp + b * WARPS;
    node_of[b] = min(row0 + query_row(pass), N * PER - 1) / PER;
    if (pass < Q_PASSES) turn_at[b] = (size_t)positions[node_of[b]] * (D / 2) + turn;
  }
#if NORM
  const uint4 q_weight = *reinterpret_cast<const uint4*>(q_norm + t * 8);
  const uint4 k_weight = *reinterpret_cast<const uint4*>(k_norm + t * 8);
#endif
  const unsigned mask_from = (unsigned)(node0 * N) & ~3u;  // bytes of the mask from here on lie in `seen`
  if (mask != nullptr) {
    const unsigned words = ((node0 + NODES) * N - mask_from + 3) / 4;
#pragma unroll 1
    for (unsigned i = tid; i < words; i += THREADS)
      if (mask_from + i * 4 < N * N) copy_4(shared_address(seen) + i * 4, mask + mask_from + i * 4);
  }

  // This CTA's units of 16 keys: split, split + SPLITS, …
  const int keys = committed + N, all_units = (keys + 15) / 16;
  const int units = max(0, (all_units - split + SPLITS - 1) / SPLITS), tiles = (units + TU - 1) / TU;
  bf16* const k_head = k_cache + (size_t)g * capacity * D;
  bf16* const v_head = v_cache + (size_t)g * capacity * D;
  auto load = [&](int tile) {
    const int last = units - tile * TU, first = max(0, last - TU);
    const unsigned to = (tile % STAGES) * (TK * LD * 2) + sub * (LD * 2) + t * 16;
#pragma unroll 1
    for (int u = first + warp; u < last; u += WARPS) {
      const int key = (u * SPLITS + split) * 16 + sub, limit = committed - key;
      const unsigned at = to + (u - first) * (16 * LD * 2);
      const size_t from = (size_t)key * D + t * 8;
#pragma unroll
      for (int r = 0; r < 16; r += RPW)
        if (r < limit) copy_16(k_at + at + r * (LD * 2), k_head + from + r * D);
#pragma unroll
      for (int r = 0; r < 16; r += RPW)
        if (r < limit) copy_16(v_at + at + r * (LD * 2), v_head + from + r * D);
    }
    close_copies();
  };
#pragma unroll 1
  for (int i = 0; i < STAGES; ++i) load(i);

  // Queries, then the tail's keys and values.
  {
    const int first_tail = max(0, (committed / 16 - split + SPLITS - 1) / SPLITS);  // unit of this CTA
    const int tail_passes = max(0, units - first_tail) * UNIT_PASSES;
    const int passes = Q_PASSES + 2 * tail_passes;
#if CLUSTER
    cluster_wait();  // every CTA's barriers are ready
#endif
#pragma unroll 1
    for (int p0 = warp; p0 < passes; p0 += BATCH * WARPS) {
      uint4 raw[BATCH];
      float4 turns[BATCH][4];
      int key_of[BATCH];  // of tail rows
      bool live[BATCH];   // some row of the pass is real; the same for the whole warp
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int pass = p0 + b * WARPS;
        live[b] = pass < passes;
        if (pass < Q_PASSES) {
          live[b] = query_row(pass) - sub < rows;
          if (p0 != warp && live[b]) {
            node_of[b] = min(row0 + query_row(pass), N * PER - 1) / PER;
            turn_at[b] = (size_t)positions[node_of[b]] * (D / 2) + turn;
          }
        } else if (pass < passes) {
          const int in_tail = pass - Q_PASSES - (pass >= Q_PASSES + tail_passes ? tail_passes : 0);
          key_of[b] = ((first_tail + in_tail / UNIT_PASSES) * SPLITS + split) * 16 + in_tail % UNIT_PASSES * RPW + sub;
          live[b] = key_of[b] - sub < keys && key_of[b] - sub + RPW > committed;
          node_of[b] = max(0, min(key_of[b] - committed, N - 1));
          if (live[b] && pass < Q_PASSES + tail_passes) turn_at[b] = (size_t)positions[node_of[b]] * (D / 2) + turn;
        }
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b)
        if (live[b] && p0 + b * WARPS < Q_PASSES + tail_passes) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            turns[b][i] = *reinterpret_cast<const float4*>(cosines + turn_at[b] + i * 4);
            turns[b][2 + i] = *reinterpret_cast<const float4*>(sines + turn_at[b] + i * 4);
          }
        }
      wait_for_predecessor();
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int pass = p0 + b * WARPS;
        const int head = pass < Q_PASSES ? g * PER + (row0 + query_row(pass)) % PER
                         : pass < Q_PASSES + tail_passes ? PER * GROUPS + g : (PER + 1) * GROUPS + g;
        raw[b] = make_uint4(0, 0, 0, 0);
        if (live[b])
          raw[b] = __ldcg(reinterpret_cast<const uint4*>(qkv + (node_of[b] * ((PER + 2) * GROUPS) + head) * D + t * 8));
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int pass = p0 + b * WARPS;
        uint4 value = raw[b];
        if (live[b] && pass < Q_PASSES + tail_passes) {
          unsigned x[4] = {raw[b].x, raw[b].y, raw[b].z, raw[b].w};
#if NORM
          float square = 0.f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            square = fmaf(low_half(x[i]), low_half(x[i]), square);
            square = fmaf(high_half(x[i]), high_half(x[i]), square);
          }
#pragma unroll
          for (int o = LPR / 2; o > 0; o >>= 1) square += __shfl_xor_sync(0xffffffffu, square, o);
          const float inverse = rsqrtf(fmaf(square, 1.f / D, eps));
          const uint4 weight = pass < Q_PASSES ? q_weight : k_weight;
          const unsigned w[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
          for (int i = 0; i < 4; ++i)
            x[i] = multiply_pairs(pack_bf16(low_half(x[i]) * inverse, high_half(x[i]) * inverse), w[i]);
#endif
          const unsigned sign = t < LPR / 2 ? 0x80008000u : 0u;
          unsigned done[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {  // dimension c turns with c + D/2
            const unsigned other = __shfl_xor_sync(0xffffffffu, x[i], LPR / 2) ^ sign;
            const float4 c = turns[b][i / 2], s = turns[b][2 + i / 2];
            done[i] = pack_bf16(fmaf(low_half(x[i]), i % 2 ? c.z : c.x, low_half(other) * (i % 2 ? s.z : s.x)),
                                fmaf(high_half(x[i]), i % 2 ? c.w : c.y, high_half(other) * (i % 2 ? s.w : s.y)));
          }
          value = make_uint4(done[0], done[1], done[2], done[3]);
        }
        if (pass < Q_PASSES) {
          const int row = query_row(pass);
          const unsigned at = q_at + row * (LD * 2) + t * 16;
#if CLUSTER
          if (row < rows) {
#pragma unroll
            for (int c = 0; c < SPLITS; ++c) send_16(neighbour_address(at, c), value, neighbour_address(barriers, c));
          }
#else
          if (row < rows) store_16(at, value);
#endif
        } else if (pass < passes && key_of[b] >= committed) {
          const bool is_value = pass >= Q_PASSES + tail_passes;
          const int unit = key_of[b] / (16 * SPLITS), tile = (units - 1 - unit) / TU;
          const int row = tile * TK + (unit - max(0, units - (tile + 1) * TU)) * 16 + key_of[b] % 16;
          if (key_of[b] >= keys) value = make_uint4(0, 0, 0, 0);  // weight zero times garbage could be NaN
          store_16((is_value ? v_at : k_at) + row * (LD * 2) + t * 16, value);
          if (z == 0 && key_of[b] < keys)
            *reinterpret_cast<uint4*>((is_value ? v_head : k_head) + (size_t)key_of[b] * D + t * 8) = value;
        }
      }
    }
    wait_for_predecessor();
  }

  const int mt = warp / KS, ks = warp % KS, gr = lane >> 2, q = lane & 3;
  const unsigned k_lane = k_at + (lane % 8 + lane / 16 * 8) * (LD * 2) + (lane / 8 % 2) * 16 + ks * (16 * LD * 2);
  const unsigned v_lane = v_at + (lane % 16) * (LD * 2) + (ks * COLUMNS + lane / 16 * 8) * 2;
  const unsigned p_lane = p_at + (mt * 16 + lane % 16) * (LDP * 2) + (lane / 16) * 16;
  const unsigned p_store = p_at + (mt * 16 + gr) * (LDP * 2) + ks * 32 + q * 4;
  float* const tops = top_of + (mt * 16 + gr) * KS;
  float* const sums = sum_of + (mt * 16 + gr) * KS;

#if CLUSTER
  wait_for_bytes(barriers);  // all queries are there; without keys too, since neighbours send to this CTA
#else
  __syncthreads();
#endif
  unsigned a[D / 16][4];  // this warp's 16 queries
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    load_matrices(a[k], q_at + (mt * 16 + lane % 16) * (LD * 2) + (lane / 16) * 16 + k * 32);
  float o[COLUMNS / 8][4], top[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, sum[2] = {0.f, 0.f};
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
    for (int c = 0; c < 4; ++c) o[j][c] = 0.f;

#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile > 0) {
      __syncthreads();  // nobody reads the oldest stage any more
      load(tile - 1 + STAGES);
    }
    wait_for_copies<STAGES - 1>();
    __syncthreads();  // K and V of this tile are there
    const int last = units - tile * TU, first = max(0, last - TU), have = last - first;
    const unsigned stage = (tile % STAGES) * (TK * LD * 2);

    float s[(UN + 1) / 2 * 4][4], best[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY};
#pragma unroll
    for (int u = 0; u < UN; u += 2) {  // two units at a time, four chains of products
      if (u * KS + ks >= have) break;
      const unsigned at = k_lane + stage + u * (KS * 16 * LD * 2);
      if (u + 1 < UN && (u + 1) * KS + ks < have) {
        unsigned b[2][2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[2 * u + j][c] = 0.f;
#pragma unroll
        for (int i = 0; i < 2; ++i) load_matrices(b[0][i], at + i * (KS * 16 * LD * 2));
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (k + 1 < D / 16) load_matrices(b[(k + 1) % 2][i], at + i * (KS * 16 * LD * 2) + (k + 1) * 32);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const unsigned(&x)[4] = b[k % 2][i];
            mma_16x8x16(s[2 * (u + i)], a[k][0], a[k][1], a[k][2], a[k][3], x[0], x[1]);
            mma_16x8x16(s[2 * (u + i) + 1], a[k][0], a[k][1], a[k][2], a[k][3], x[2], x[3]);
          }
        }
      } else {
        unsigned b[2][4];
        float odd[2][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[2 * u + j][c] = odd[j][c] = 0.f;
        load_matrices(b[0], at);
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
          if (k + 1 < D / 16) load_matrices(b[(k + 1) % 2], at + (k + 1) * 32);
#pragma unroll
          for (int j = 0; j < 2; ++j)
            mma_16x8x16(k % 2 ? odd[j] : s[2 * u + j], a[k][0], a[k][1], a[k][2], a[k][3], b[k % 2][2 * j],
                        b[k % 2][2 * j + 1]);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[2 * u + j][c] += odd[j][c];
      }
    }
#pragma unroll
    for (int u = 0; u < UN; ++u) {
      if (u * KS + ks >= have) break;
      float(&x)[4] = s[2 * u];
      float(&y)[4] = s[2 * u + 1];
      const int ahead = ((first + u * KS + ks) * SPLITS + split) * 16 - committed;  // of the tail's first key
      if (ahead > -16) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int node = (row0 + min(mt * 16 + gr + h * 8, rows - 1)) / PER;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int j = ahead + i / 2 * 8 + 2 * q + i % 2;
            bool sees = j < N;
            if (mask != nullptr && j >= 0 && j < N) sees = seen[node * N + j - mask_from] != 0;
            float& v = i / 2 ? y[2 * h + i % 2] : x[2 * h + i % 2];
            if (!sees) v = NEGATIVE_INFINITY;
          }
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h)
        best[h] = fmaxf(fmaxf(fmaxf(x[2 * h], x[2 * h + 1]), fmaxf(y[2 * h], y[2 * h + 1])), best[h]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 1));
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 2));
      if (q == 0) tops[h * 8 * KS + ks] = best[h] * scale;
    }
    sync_group(1 + mt, KS * 32);
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float higher = top[h];
#pragma unroll
      for (int w = 0; w < KS; ++w) higher = fmaxf(higher, tops[h * 8 * KS + w]);
      base[h] = higher == NEGATIVE_INFINITY ? 0.f : higher;  // a row that sees nothing yet
      const float fade = power_of_2(top[h] - base[h]);
      top[h] = higher;
      sum[h] *= fade;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) o[j][2 * h] *= fade, o[j][2 * h + 1] *= fade;
    }
#pragma unroll
    for (int u = 0; u < UN; ++u)
      if (u * KS + ks < have) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float p0 = power_of_2(fmaf(s[2 * u + j][2 * h], scale, -base[h]));
            const float p1 = power_of_2(fmaf(s[2 * u + j][2 * h + 1], scale, -base[h]));
            sum[h] += p0 + p1;
            store_4(p_store + h * (8 * LDP * 2) + u * (KS * 32) + j * 16, pack_bf16(p0, p1));
          }
      }
    sync_group(1 + mt, KS * 32);  // P of these 16 rows is there
#pragma unroll 4
    for (int u = 0; u < have; ++u) {
      unsigned p[4];
      load_matrices(p, p_lane + u * 32);
#pragma unroll
      for (int j = 0; j < COLUMNS / 16; ++j) {
        unsigned b[4];
        load_matrices_transposed(b, v_lane + stage + u * (16 * LD * 2) + j * 32);
        mma_16x8x16(o[2 * j], p[0], p[1], p[2], p[3], b[0], b[1]);
        mma_16x8x16(o[2 * j + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
      }
    }
  }

  // Send the parts: neighbouring lanes swap halves so that each holds four columns of one row.
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    if (q == 0) sums[h * 8 * KS + ks] = sum[h];
    if (q == 0 && ks == 0) tops[h * 8 * KS] = top[h];  // last read before the barrier that P waited for
  }
  const int odd = q & 1, row = mt * 16 + gr + odd * 8;
#if CLUSTER
  const int owner = min(row / OWNED, SPLITS - 1);
  const unsigned there =
      neighbour_address(shared_address(part + (row % OWNED * SPLITS + split) * LDO + ks * COLUMNS + (q >> 1) * 4), owner);
  const unsigned tell = neighbour_address(barriers + 8, owner);
#else
  const size_t place = ((size_t)(g * SHARES + z) * SPLITS + split) * ROWS;
#endif
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
    const float r0 = __shfl_xor_sync(0xffffffffu, odd ? o[j][0] : o[j][2], 1);
    const float r1 = __shfl_xor_sync(0xffffffffu, odd ? o[j][1] : o[j][3], 1);
    const float x0 = odd ? r0 : o[j][0], x1 = odd ? r1 : o[j][1], x2 = odd ? o[j][2] : r0, x3 = odd ? o[j][3] : r1;
    if (row < rows) {
#if CLUSTER
      send_16(there + j * 32,
              make_uint4(__float_as_uint(x0), __float_as_uint(x1), __float_as_uint(x2), __float_as_uint(x3)), tell);
#else
      *reinterpret_cast<float4*>(part_o + (place + row) * D + ks * COLUMNS + j * 8 + (q >> 1) * 4) =
          make_float4(x0, x1, x2, x3);
#endif
    }
  }
  sync_group(1 + mt, KS * 32);
  const int r = mt * 16 + lane;
  if (ks == 0 && lane < 16 && r < rows) {
    float all = 0.f;
#pragma unroll
    for (int w = 0; w < KS; ++w) all += sum_of[r * KS + w];
#if CLUSTER
    send_8(neighbour_address(shared_address(stat + r % OWNED * SPLITS + split), r / OWNED), top_of[r * KS], all,
           neighbour_address(barriers + 8, r / OWNED));
#else
    part_stat[place + r] = make_float2(top_of[r * KS], all);
#endif
  }
#if CLUSTER
  if (owned == 0) return;
  wait_for_bytes(barriers + 8);  // every part of the rows that this CTA owns is there
#pragma unroll 1
  for (int i = tid; i < owned * (D / 4); i += THREADS) {
    const int slot = i / (D / 4), column = i % (D / 4) * 4;
    const float2* const st = stat + slot * SPLITS;
    float highest = st[0].x, all = 0.f, x[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int w = 1; w < SPLITS; ++w) highest = fmaxf(highest, st[w].x);
    if (highest == NEGATIVE_INFINITY) highest = 0.f;
#pragma unroll
    for (int w = 0; w < SPLITS; ++w) {
      const float weight = power_of_2(st[w].x - highest);
      const float4 v = *reinterpret_cast<const float4*>(part + (slot * SPLITS + w) * LDO + column);
      all = fmaf(weight, st[w].y, all);
      x[0] = fmaf(weight, v.x, x[0]), x[1] = fmaf(weight, v.y, x[1]);
      x[2] = fmaf(weight, v.z, x[2]), x[3] = fmaf(weight, v.w, x[3]);
    }
    const float inverse = all > 0.f ? __fdividef(1.f, all) : 0.f;  // a row that sees nothing at all gives zeros, not NaN
    const int at = row0 + split * OWNED + slot;
    bf16* to = out + ((at / PER) * (GROUPS * PER) + g * PER + at % PER) * D + column;
    *reinterpret_cast<uint2*>(to) =
        make_uint2(pack_bf16(x[0] * inverse, x[1] * inverse), pack_bf16(x[2] * inverse, x[3] * inverse));
  }
#endif
}

#if !CLUSTER
// Adds the parts of each row: a warp a row and group. Grid (rows of all groups / 4), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
combine_splits(const float* part_o, const float2* part_stat, bf16* out) {
  let_successor_start();
  wait_for_predecessor();
  const int item = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  const int g = item / (N * PER), at = item % (N * PER);
  if (g >= GROUPS) return;
  const size_t place = (size_t)(g * SHARES + at / SHARE) * SPLITS * ROWS + at % SHARE;
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
    const float weight = power_of_2(st[w].x - highest);
    all += weight * st[w].y;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) x[c] += weight * __ldcg(part_o + (place + w * ROWS) * D + c * 32 + lane);
  }
  const float inverse = all > 0.f ? 1.f / all : 0.f;
  bf16* to = out + ((at / PER) * (GROUPS * PER) + g * PER + at % PER) * D;
#pragma unroll
  for (int c = 0; c < D / 32; ++c) to[c * 32 + lane] = __float2bfloat16(x[c] * inverse);
}
#endif
