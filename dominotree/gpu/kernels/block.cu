// Several dependent products in one persistent kernel: what lies between two attentions of a decoder,
// output -> gate-up -> down -> next layer's qkv, without ever letting the stream of weights stop.
//
// The parts are those of gemm.cu (TMA ring, wgmma, sums over a cluster in a fixed order). Here one warp streams W through
// all products, running ahead as far as the ring reaches; a second one adds X as soon as the product before is complete
// on all multiprocessors (a counter in device memory) or, where that took several turns, the columns of its first turn;
// two more sum the squares for RMSNorm meanwhile, for half of the rows, and send the norms to the partner. Tiles are as high
// as the shape needs so that every multiprocessor gets the same share. A tile of up to 64 rows of W is one operand of wgmma: the warpgroups then share out its columns;
// higher tiles are two operands, one per warpgroup. Of SwiGLU's tiles above 64 gates each warpgroup takes a half of the gates
// and the same half of the ups: X then is loaded once for a tile that would be two, and a gate meets its up in registers. A
// stage holds as many columns as fit, so that the ring is always full.
//
// All CTAs must be resident: one per multiprocessor at most. Defines: NTOK, STAGES, STAGE_BYTES, INNER (blocks of 64
// columns of a stage that a warpgroup multiplies), RED_PITCH and HALF_PITCH (floats per token of a tile's sums, and of those
// that the partner sends), LEAD, PDL.
#include "common.cuh"
#include "hopper.cuh"

#define CONSUMERS 256
#define THREADS (CONSUMERS + 128)
#define HOLD (STAGES >= 6 ? 2 : 1)  // stages whose products may still run
#define MAX_OPS 4
#ifdef TRACE  // clock of every step of every CTA, for finding out where the time goes: [CTA][op][step]
#define TRACE_ARG , long long* trace
#define STAMP_BY(one, op, step) if (one) trace[((size_t)blockIdx.x * MAX_OPS + (op)) * 16 + (step)] = clock64()
#define STAMP_TIME(one, op, step) if (one) asm volatile("{\n.reg .u64 now;\nmov.u64 now, %%globaltimer;\nst.global.u64 [%0], now;\n}" ::"l"(trace + ((size_t)blockIdx.x * MAX_OPS + (op)) * 16 + (step)) : "memory")
#else
#define TRACE_ARG
#define STAMP_BY(one, op, step)
#define STAMP_TIME(one, op, step)
#endif
#define STAMP(op, step) STAMP_BY(tid == 0, op, step)
#define TOKENS (NTOK <= 8 ? 4 : 8)  // of which a warp adds the squares together
#define QUAD_TOKENS 4               // that a warp finishes together, four columns a lane
#define TURN_TOKENS (CONSUMERS / 32 * QUAD_TOKENS)
#define TURNS ((NTOK + TURN_TOKENS - 1) / TURN_TOKENS)
#define CHAINS (NTOK <= 8 ? 4 : NTOK <= 72 ? 2 : 1)  // independent sums: a narrow product is bound by its latency
#define PAIRS (CHAINS / 2)  // of them for gates, and as many for ups; 0: such tiles do not fit

struct Op {  // one product; 160 bytes, as packed by gpu/block.py
  const unsigned char* w_map;
  const unsigned char* x_map;
  void* y;
  const float* squares_in;
  bf16* scaled_out;
  const bf16* next_norm;
  float* squares_out;
  bf16* features;
  int* wait;  // counter of the product before (CTAs that are done with it), null for the first
  int* done;
  int* wait_early;  // counter of its first turn's tiles, or null
  int* done_early;
  int feature_pitch, epilogue, segments_in, n_out;  // n_out: rows of W
  int k, rows, splits, tiles;                       // rows of W per operand
  int base;                                         // which group of CTAs takes tile 0
  float eps;
  int depth, operands;            // blocks of 64 columns per stage; 1: warpgroups share them, 2: they share the rows
  int early_blocks, early_tiles;  // blocks of X that the first turn of the product before gives, and its tiles
  int squares_pitch;              // floats per token of `squares`: [token][segment]
  int alternate;                  // 1: the CTAs of a cluster take turns in the stages, 0: each takes a stretch
};

__device__ __forceinline__ float low_of(unsigned v) { return __uint_as_float(v << 16); }  // of two bf16
__device__ __forceinline__ float high_of(unsigned v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float4 floats(uint2 v) {  // of four bf16
  return make_float4(low_of(v.x), high_of(v.x), low_of(v.y), high_of(v.y));
}
__device__ __forceinline__ uint2 halves(float4 v) {
  __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
  return make_uint2(*reinterpret_cast<unsigned*>(&low), *reinterpret_cast<unsigned*>(&high));
}
__device__ __forceinline__ float gated(float gate, float up) {  // SwiGLU, rounded as in bf16
  gate = rounded(gate);
  return rounded(__fdividef(gate, 1.f + __expf(-gate))) * rounded(up);
}

__device__ __forceinline__ void wait_counter(const int* counter, int target) {
  int seen;
  unsigned tries = 0;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (++tries > (1u << 24)) __trap();
  } while (seen < target);
}

// Sums over the lanes: at every step a lane gives half of its tokens away and gets its share of the other half; in the end
// sum[0] is that of token `of`.
template <int HALF>
__device__ __forceinline__ void add_lanes(float (&sum)[TOKENS], int lane, int& of) {
  if constexpr (HALF > 0) {
    constexpr int d = HALF * 32 / TOKENS;
    const bool upper = lane & d;
#pragma unroll
    for (int q = 0; q < HALF; ++q) {
      const float low = sum[q], high = sum[q + HALF];
      sum[q] = (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, d);
    }
    of += upper * HALF;
    add_lanes<HALF / 2>(sum, lane, of);
  } else {
#pragma unroll
    for (int q = 16 / TOKENS; q > 0; q /= 2) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], q);
  }
}

template <bool IS>
struct Flag {
  static constexpr bool value = IS;
};

struct Walk {  // this CTA's tiles of one product, and its stages: begin, begin + step, … before end
  int groups, member, first, begin, end, step;
  __device__ Walk(const Op& op, int ctas) {
    const int splits = op.splits, stages = (op.k / 64 + op.depth - 1) / op.depth, group = blockIdx.x / splits;
    groups = ctas / splits, member = blockIdx.x % splits;
    first = (group - op.base % groups + groups) % groups;
    begin = op.alternate ? member : member * stages / splits;
    end = op.alternate ? stages : (member + 1) * stages / splits;
    step = op.alternate ? splits : 1;
  }
  __device__ int own() const { return (end - begin + step - 1) / step; }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) block(const Op* ops, const unsigned char* maps, int count, int n TRACE_ARG) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES], received[2], scaled;
  __shared__ float scale[2][NTOK];
  __shared__ __align__(16) Op op_of[MAX_OPS];
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, ctas = gridDim.x;
  const unsigned ring = kept((shared_address(dynamic) + 1023) / 1024 * 1024);
  const unsigned full_at = kept(shared_address(full)), empty_at = kept(shared_address(empty));
  STAMP_TIME(tid == 0, 0, 10);
  STAMP(0, 9);
  if (warp == CONSUMERS / 32 && lane < 2 * count) prefetch_map(maps + lane * 128);
  float* red = reinterpret_cast<float*>(dynamic + (ring - shared_address(dynamic)) + STAGES * STAGE_BYTES);  // [NTOK, RED_PITCH], 2 × [NTOK, HALF_PITCH]

  for (int i = tid; i < count * (int)sizeof(Op) / 4; i += THREADS)
    reinterpret_cast<int*>(op_of)[i] = __ldg(reinterpret_cast<const int*>(ops) + i);
  if (tid == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&full[s], 2);  // W and X
      barrier_init(&empty[s], 2);
    }
    barrier_init(&received[0], 1);
    barrier_init(&received[1], 1);
    barrier_init(&scaled, 4);  // two warps of each of the pair
    barriers_visible();
  }
  __syncthreads();
  cluster_arrive_relaxed();

  if (warp >= CONSUMERS / 32) {
    const int role = warp - CONSUMERS / 32;
    if (role == 0 && lane == 0) {  // ------------------------------------------------------------- W
      const unsigned long long once = read_once_policy();  // weights do not push activations out of L2
      int slot = 0;
      unsigned parity = 1;  // the first round over the ring finds it empty
      for (int o = 0; o < count; ++o) {
        const Op& op = op_of[o];
        Walk w(op, ctas);
        const int height = op.rows, depth = op.depth, operands = op.operands, tiles = op.tiles;
        const int second = op.epilogue == 3 ? op.n_out / 2 : height, step = op.epilogue == 3 ? height : operands * height;
        const int bytes = height * depth * 128, expected = operands * bytes, last = w.end - LEAD * w.step;
        const void* w_map = op.w_map;
        for (int tile = w.first; tile < tiles; tile += w.groups) {
          const bool ending = o + 1 == count && tile + w.groups >= tiles;
          for (int kb = w.begin; kb < w.end; kb += w.step) {
            if (ending && kb >= last) let_successor_start();
            barrier_wait_at(empty_at + slot * 8, parity);
            STAMP_BY(tile == w.first && kb == w.begin, o, 6);
            STAMP_BY(true, o, 7);
            const unsigned at = ring + slot * STAGE_BYTES, bar = full_at + slot * 8;
            barrier_expect_at(bar, expected);
            tma_load_blocks(at, w_map, tile * step, kb * depth, bar, once);
            if (operands == 2) tma_load_blocks(at + bytes, w_map, tile * step + second, kb * depth, bar, once);
            if (++slot == STAGES) slot = 0, parity ^= 1;
          }
        }
      }
      let_successor_start();
    } else if (role == 1 && lane == 0) {  // -------------------------------------------------------- X
      wait_for_predecessor();
      int slot = 0;
      unsigned parity = 1;
      for (int o = 0; o < count; ++o) {
        const Op& op = op_of[o];
        Walk w(op, ctas);
        if (o == 0) STAMP_BY(true, 0, 8);
        const void* x_map = op.x_map;
        const int tiles = op.tiles, depth = op.depth, behind = op.operands * op.rows * depth * 128;
        int open = op.wait ? 0 : op.k / 64 + depth;  // blocks of X that are known to be complete
        for (int tile = w.first; tile < tiles; tile += w.groups)
          for (int kb = w.begin; kb < w.end; kb += w.step) {
            while ((kb + 1) * depth > open) {
              if (open == 0 && op.wait_early && op.early_blocks >= (kb + 1) * depth) {
                wait_counter(op.wait_early, op.early_tiles);
                open = op.early_blocks;
              } else {
                wait_counter(op.wait, ctas);
                open = op.k / 64 + depth;
              }
              asm volatile("fence.proxy.async.global;" ::: "memory");  // written by stores, read by TMA
              STAMP_BY(true, o, 8);
            }
            barrier_wait_at(empty_at + slot * 8, parity);
            barrier_expect_at(full_at + slot * 8, NTOK * depth * 128);
            tma_load_blocks(ring + slot * STAGE_BYTES + behind, x_map, 0, kb * depth, full_at + slot * 8);
            if (++slot == STAGES) slot = 0, parity ^= 1;
          }
      }
    } else if (role >= 2) {  // --------------------------------------------------------------------- squares
      cluster_wait();  // the pair shares out the tokens
      wait_for_predecessor();
      const int member = blockIdx.x & 1;
      for (int o = 0; o < count; ++o) {
        const Op& op = op_of[o];
        if (op.squares_in == nullptr) continue;
        const float* squares = op.squares_in;
        const int segments = op.segments_in;
        if (op.wait) wait_counter(op.wait, ctas);
        for (int token0 = (member * 2 + role - 2) * TOKENS; token0 < n; token0 += 4 * TOKENS) {
          float sum[TOKENS] = {};
          for (int s0 = lane; s0 < segments; s0 += 128) {
            float part[4][TOKENS];
#pragma unroll
            for (int u = 0; u < 4; ++u)  // all loads first, then the sums
#pragma unroll
              for (int q = 0; q < TOKENS; ++q)
                part[u][q] = s0 + u * 32 < segments && token0 + q < n
                                 ? __ldcg(squares + (size_t)(token0 + q) * op.squares_pitch + s0 + u * 32) : 0.f;
#pragma unroll
            for (int u = 0; u < 4; ++u)
#pragma unroll
              for (int q = 0; q < TOKENS; ++q) sum[q] += part[u][q];
          }
          int of = 0;
          add_lanes<TOKENS / 2>(sum, lane, of);
          if (lane % (32 / TOKENS) == 0 && token0 + of < n) {
            float* const place = &scale[o & 1][token0 + of];
            *place = rsqrtf(sum[0] / op.k + op.eps);
            store_cluster(place, *place, member ^ 1);
          }
        }
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(&scaled);
          barrier_arrive_remote(&scaled, member ^ 1);
        }
      }
      return;
    }
    __syncwarp();
    cluster_wait();
    return;
  }

  // -------------------------------------------------------------------------------------------------- consumers
  cluster_wait();
  wait_for_predecessor();
  const int wg = warp / 4, g = lane / 4, t = lane % 4;
  auto complete = [&](int* counter) {  // what this CTA has written is there for everybody
    asm volatile("fence.proxy.async.global;" ::: "memory");
    consumers_sync(CONSUMERS);
    if (tid == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  };
  int slot = 0, exchanges = 0, scales = 0;
  unsigned parity = 0;
  for (int o = 0; o < count; ++o) {
    const Op& op = op_of[o];
    Walk w(op, ctas);
    const int height = op.rows, splits = op.splits, depth = op.depth;
    const bool by_columns = op.operands == 1, paired = PAIRS > 0 && op.epilogue == 3 && height > 64;
    const int pitch = (paired ? 1 : 2) * height + 4;  // of sums: each warpgroup leaves its own, unless gates met their ups
    const int row0 = by_columns ? 0 : wg * height, z0 = by_columns ? wg * INNER : 0;
    const bool scaling = op.squares_in != nullptr;
    bool scale_known = false;
    STAMP(o, 0);
    if (o == 0) STAMP_TIME(tid == 0, 0, 11);
    const int wide = op.epilogue == 3 ? height : op.operands * height;  // columns of Y in a tile
    const int begin = w.member * wide / splits, share = (w.member + 1) * wide / splits - begin;  // of them ours
    const int width = op.epilogue == 3 ? op.n_out / 2 : op.n_out;
    for (int tile = w.first; tile < op.tiles; tile += w.groups) {
      // Four columns of a row of the residual stream and of the norm's weight: on their way during the products.
      const int quad = lane % 8 * 4, quad_token = warp * QUAD_TOKENS + lane / 8;
      uint2 old[TURNS] = {}, weight = make_uint2(0, 0);
      auto old_of = [&](int token, int column) {
        return __ldcg(reinterpret_cast<const uint2*>(reinterpret_cast<bf16*>(op.y) + (size_t)token * width + column));
      };
      auto weight_of = [&](int column) { return __ldg(reinterpret_cast<const uint2*>(op.next_norm + column)); };
      if (const int column = tile * wide + begin + quad; op.epilogue == 2 && quad < share && column < width) {
        weight = weight_of(column);
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
          if (quad_token + turn * TURN_TOKENS < n) old[turn] = old_of(quad_token + turn * TURN_TOKENS, column);
      }
      float acc[CHAINS][NTOK / 2];
#pragma unroll
      for (int c = 0; c < CHAINS; ++c)
#pragma unroll
        for (int i = 0; i < NTOK / 2; ++i) acc[c][i] = 0.f;
      // Operand descriptors hold addresses / 16: of the first stage, then steps.
      const unsigned w_first = kept(operand_low(ring + (paired ? wg * height / 2 : row0 * depth + z0 * height) * 128));
      const unsigned x_first = kept(operand_low(ring + (op.operands * height * depth + z0 * NTOK) * 128));
      const unsigned w_step = height * 8, w_ups = height * depth * 8;
      const bool announces = tid % 128 == 0;
      int held = 0;
      auto multiply = [&](auto kind) {
        for (int left = w.own(); left > 0; --left) {
          const unsigned w_at = w_first + slot * (STAGE_BYTES / 16), x_at = x_first + slot * (STAGE_BYTES / 16);
          const unsigned release = empty_at + 8 * (slot >= HOLD ? slot - HOLD : slot - HOLD + STAGES);
          barrier_wait_at(full_at + slot * 8, parity);
#ifdef TRACE
          if (held == 0 && tile == w.first) STAMP(o, 1);
#endif
          wgmma_fences(acc);
#pragma unroll
          for (int z = 0; z < INNER; ++z)  // a loop of unknown length would have its products serialised
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              const unsigned long long x_of = operand_of(x_at + z * (NTOK * 8) + k * 2);
              const unsigned at = w_at + z * w_step + k * 2;
              if constexpr (decltype(kind)::value) {
                wgmma(acc[k % (PAIRS + !PAIRS)], operand_of(at), x_of);
                wgmma(acc[PAIRS + k % (PAIRS + !PAIRS)], operand_of(at + w_ups), x_of);
              } else {
                wgmma(acc[k % CHAINS], operand_of(at), x_of);
              }
            }
          wgmma_commit();
          if (++slot == STAGES) slot = 0, parity ^= 1;
          wgmma_waits<HOLD>(acc);
          if (held < HOLD)
            ++held;
          else if (announces)
            barrier_arrive_at(release);
        }
      };
#if PAIRS > 0  // two loops: a branch inside would have the products serialised
      if (paired)
        multiply(Flag<true>());
      else
#endif
        multiply(Flag<false>());
      wgmma_waits<0>(acc);
      for (; held > 0; --held)
        if (announces) barrier_arrive_at(empty_at + 8 * (slot >= held ? slot - held : slot - held + STAGES));

      STAMP(o, 2);
      const float* scale_of = scale[o & 1];
      auto know_scale = [&]() {
        if (!scaling || scale_known) return;
        barrier_wait_cluster(&scaled, scales & 1);
        ++scales;
        scale_known = true;
      };
      if (paired) know_scale();
      consumers_sync(CONSUMERS);  // everyone has read the last sums
#if PAIRS > 0
      if (paired) {
#pragma unroll
        for (int i = 0; i < NTOK / 2; ++i) {
          int token = i / 4 * 8 + 2 * t + i % 2, row = (warp % 4) * 16 + g + (i / 2 % 2) * 8;
          float gate = acc[0][i], up = acc[PAIRS][i];
#pragma unroll
          for (int c = 1; c < PAIRS; ++c) gate += acc[c][i], up += acc[PAIRS + c][i];
          const float by = scaling ? scale_of[token] : 1.f;
          __nv_bfloat162 both = __floats2bfloat162_rn(gate * by, up * by);
          if (row < height / 2)
            reinterpret_cast<unsigned*>(red)[token * pitch + wg * height / 2 + row] = *reinterpret_cast<unsigned*>(&both);
        }
      } else
#endif
      {
#pragma unroll
        for (int i = 0; i < NTOK / 2; ++i) {
          int token = i / 4 * 8 + 2 * t + i % 2, row = (warp % 4) * 16 + g + (i / 2 % 2) * 8;
          float sum = acc[0][i];
#pragma unroll
          for (int c = 1; c < CHAINS; ++c) sum += acc[c][i];
          if (row < height) red[token * pitch + wg * height + row] = sum;
        }
      }
      consumers_sync(CONSUMERS);
      auto sums_of = [&](int at) {  // four of a token, of both warpgroups where they shared the columns
        float4 sum = *reinterpret_cast<const float4*>(red + at);
        if (by_columns) {
          const float4 more = *reinterpret_cast<const float4*>(red + at + height);
          sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        return sum;
      };
      // Each of a pair sends the other its sums of the other's columns: `theirs` of [token][row], gates before ups.
      const float* theirs = nullptr;
      const int sides = op.epilogue == 3 ? 2 : 1;
      if (splits > 1) {
        const int buffer = exchanges & 1, other_begin = begin == 0 ? share : 0, other_share = wide - share;
        const int quads = other_share / 4, pieces = sides * quads;
        float* const landing = red + NTOK * RED_PITCH + buffer * NTOK * HALF_PITCH;
        if (tid == 0) barrier_expect(&received[buffer], n * sides * share * 4);
        for (int i = tid; i < n * pieces; i += CONSUMERS) {
          const int token = i / pieces, piece = i % pieces, side = piece / quads, row = piece % quads * 4;
          const float4 sums = sums_of(token * pitch + side * height + other_begin + row);
          send_cluster(landing + token * HALF_PITCH + side * other_share + row, sums, &received[buffer], w.member ^ 1);
        }
        theirs = landing;
        barrier_wait_cluster(&received[buffer], exchanges >> 1 & 1);
        ++exchanges;
      }
      know_scale();
      STAMP(o, 3);
      auto total = [&](int token, int side, int j) {  // the whole sums of our columns j … j + 3
        float4 sum = sums_of(token * pitch + side * height + begin + j);
        if (splits > 1) {
          const float4 more = *reinterpret_cast<const float4*>(theirs + token * HALF_PITCH + side * share + j);
          sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        if (scaling) {
          const float by = scale_of[token];
          sum.x *= by, sum.y *= by, sum.z *= by, sum.w *= by;
        }
        return sum;
      };
      if (op.epilogue == 2) {  // the residual stream
        bf16* h = reinterpret_cast<bf16*>(op.y);
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
          const int token = quad_token + turn * TURN_TOKENS;
          if (warp * QUAD_TOKENS + turn * TURN_TOKENS >= n) break;
          float square = 0.f;
          for (int j = quad; j < share; j += 32) {
            const int column = tile * wide + begin + j;
            if (token >= n || column >= width) continue;
            const float4 value = total(token, 0, j);
            const size_t place = (size_t)token * width + column;
            float4 was = floats(j == quad ? old[turn] : old_of(token, column)), sum;
            float4 norm = floats(j == quad ? weight : weight_of(column));
            sum.x = rounded(was.x + rounded(value.x)), sum.y = rounded(was.y + rounded(value.y));
            sum.z = rounded(was.z + rounded(value.z)), sum.w = rounded(was.w + rounded(value.w));
            const uint2 kept_row = halves(sum);
            *reinterpret_cast<uint2*>(h + place) = kept_row;
            if (op.features) *reinterpret_cast<uint2*>(op.features + (size_t)token * op.feature_pitch + column) = kept_row;
            square += sum.x * sum.x + sum.y * sum.y + sum.z * sum.z + sum.w * sum.w;
            norm.x *= sum.x, norm.y *= sum.y, norm.z *= sum.z, norm.w *= sum.w;
            *reinterpret_cast<uint2*>(op.scaled_out + place) = halves(norm);
          }
#pragma unroll
          for (int d = 4; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
          if (lane % 8 == 0 && token < n) op.squares_out[(size_t)token * op.squares_pitch + tile * splits + w.member] = square;
        }
      } else {
        bf16* y = reinterpret_cast<bf16*>(op.y);
        const int quads = share / 4;
        for (int i = tid; i < n * quads; i += CONSUMERS) {
          const int token = i / quads, j = i % quads * 4, column = tile * wide + begin + j;
          float4 value;
          if (paired) {  // (gate, up) in a word
            const uint4 both = *reinterpret_cast<const uint4*>(red + token * pitch + j);
            value.x = gated(low_of(both.x), high_of(both.x)), value.y = gated(low_of(both.y), high_of(both.y));
            value.z = gated(low_of(both.z), high_of(both.z)), value.w = gated(low_of(both.w), high_of(both.w));
          } else {
            value = total(token, 0, j);
          }
          if (op.epilogue == 3 && !paired) {
            const float4 up = total(token, 1, j);
            value.x = gated(value.x, up.x), value.y = gated(value.y, up.y);
            value.z = gated(value.z, up.z), value.w = gated(value.w, up.w);
          }
          if (column < width) *reinterpret_cast<uint2*>(y + (size_t)token * width + column) = halves(value);
        }
      }
      if (op.done_early && tile < w.groups) complete(op.done_early);
    }
    if (scaling && !scale_known) {  // no tile of this product was ours: keep the phases in step
      barrier_wait_cluster(&scaled, scales & 1);
      ++scales;
    }
    STAMP(o, 4);
    if (op.done) complete(op.done);
    STAMP(o, 5);
    STAMP_TIME(tid == 0, o, 12);
  }
}
