/* ws_gemm.cuh: C = A B^T with two producer warps (TMA, one for A, one for B), one consumer warpgroup per 64 rows (wgmma), an mbarrier ring of
   stages and a persistent loop over tiles.
   Shapes     A: (m, k), B: (n, k), C: (m, n), bf16, row-major; row pitches are multiples of 16 B; any m, n, k (boxes clip)
   Launch     grid = CTAs (a multiple of CLUSTER), block 128 * TM / 64 + 64, cluster CLUSTER x 1: the pair shares its tile of
              B, each loads half of it for both
   On chip    dynamic smem 1024 + stages * (TM + TN) * 128 + C buffers; accumulators TN / 2 registers per consumer thread
   Traffic    operands TMA boxes of 64 k, 128-byte swizzle; C through shared memory, stmatrix, TMA store
   Work       2 TM TN 64 flop a k-step; TN / 2 cycles per m64nTNk16, 4 TM / 64 of them a k-step
   Modes      WS_FULL; WS_NO_MMA: fills only; WS_NO_COPY: the first `stages` k-steps are filled, later ones only signalled;
              WS_EMPTY: signals only; WS_IN_ORDER: waits for its own k-step's wgmma before it releases the stage
   Reference  CUTLASS, "Efficient GEMM", warp specialisation (the idea; this code is its own) */
#pragma once
#include "wgmma.cuh"

namespace ts {

enum WsMode { WS_FULL, WS_NO_MMA, WS_NO_COPY, WS_EMPTY, WS_IN_ORDER };
constexpr int WS_STAMPS = 8, WS_MAX_STAGES = 16;

struct WsArgs {
  int k_steps, tiles_m, tiles_n, stages;
  int epilogue;       // 0: C is not written
  int raster_rows;    // tile rows walked together before the next tile column
  long long* stamps;  // null, or WS_STAMPS per CTA: see Stamp
};
// Cycles of consumer thread 0 (of its last tile), except the first and the two globaltimer readings.
enum Stamp { ENTRY, READY, FIRST_FULL, LAST_MMA, STORE_ISSUED, STORE_DONE, ENTRY_NS, EXIT_NS };

// A C buffer is 64 rows x COLS; COLS * 2 bytes is one swizzled row.
template <int TM, int TN> struct WsShape {
  static constexpr int WARPGROUPS = TM / 64, THREADS = 128 * WARPGROUPS + 64;
  static constexpr int COLS = TN % 64 == 0 ? 64 : TN % 32 == 0 ? 32 : TN, CHUNKS = TN / COLS;
  static constexpr int C_BUFFERS = CHUNKS > 2 && TM >= 128 ? 2 : CHUNKS;
  static constexpr int STAGE_BYTES = (TM + TN) * 128, C_BYTES = 64 * COLS * 2;
  static constexpr size_t smem(int stages) { return 1024 + (size_t)stages * STAGE_BYTES + WARPGROUPS * C_BUFFERS * C_BYTES; }
  static constexpr int max_stages() {
    int s = (int)((227 * 1024 - 512 - smem(0)) / STAGE_BYTES);
    return s < WS_MAX_STAGES ? s : WS_MAX_STAGES;
  }
};

// Tile index -> (tile row, tile column): groups of raster_rows rows, columns inner.
__device__ __forceinline__ void ws_tile(int t, int rows, int cols, int raster_rows, int& row, int& col) {
  int group = t / (raster_rows * cols), first = group * raster_rows, height = min(raster_rows, rows - first);
  int in = t - group * raster_rows * cols;
  row = first + in % height;
  col = in / height;
}

// One warp loads the A or the B of every stage; what it expects on `full` is its own share of the bytes.
template <int TM, int TN, int CLUSTER, int MODE, bool LOADS_A>
__device__ void ws_produce(const CUtensorMap* map, const WsArgs& p, uint32_t smem, uint32_t full, uint32_t empty) {
  using S = WsShape<TM, TN>;
  constexpr int B_ROWS = TN / CLUSTER;
  const int rank = CLUSTER > 1 ? cluster_rank() : 0, rows = p.tiles_m / CLUSTER;
  int stage = 0, phase = 0;
  long long filled = 0;
  for (int t = blockIdx.x / CLUSTER; t < rows * p.tiles_n; t += gridDim.x / CLUSTER) {
    int row, col;
    ws_tile(t, rows, p.tiles_n, p.raster_rows, row, col);
    row = row * CLUSTER + rank;
    for (int s = 0; s < p.k_steps; ++s, ++filled) {
      mbar_wait(empty + 8 * stage, phase ^ 1);
      __syncwarp();
      bool copy = MODE == WS_FULL || MODE == WS_NO_MMA || MODE == WS_IN_ORDER || (MODE == WS_NO_COPY && filled < p.stages);
      if (!elect_one()) {
      } else if (copy) {
        uint32_t a = smem + stage * S::STAGE_BYTES, b = a + TM * 128, bar = full + 8 * stage;
        mbar_expect(bar, LOADS_A ? TM * 128 : TN * 128);
        if (LOADS_A) tma_load_2d(a, map, s * 64, row * TM, bar);
        else if (CLUSTER == 1) tma_load_2d(b, map, s * 64, col * TN, bar);
        else tma_load_2d_multicast(b + rank * B_ROWS * 128, map, s * 64, col * TN + rank * B_ROWS, bar, (uint16_t)((1 << CLUSTER) - 1));
      } else {
        mbar_arrive(full + 8 * stage);
      }
      if (++stage == p.stages) stage = 0, phase ^= 1;
    }
  }
}

// Writes this warpgroup's 64 x TN accumulators to C, one chunk of COLS columns after the other.
template <int TM, int TN>
__device__ __forceinline__ void ws_store(const float* acc, const CUtensorMap* map_c, uint32_t buffers, int row, int col, int wg) {
  using S = WsShape<TM, TN>;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int c = 0; c < S::CHUNKS; ++c) {
    // Buffers that an earlier chunk or tile used must have been read out.
    if (thread == 0) {
      if (c == 0) bulk_wait_read<0>();
      else if (c >= S::C_BUFFERS) bulk_wait_read<S::C_BUFFERS - 1>();
    }
    if (c == 0 || c >= S::C_BUFFERS) named_barrier(wg + 1, 128);
    uint32_t base = buffers + (wg * S::C_BUFFERS + c % S::C_BUFFERS) * S::C_BYTES;
    const float* d = acc + c * S::COLS / 2;
#pragma unroll
    for (int j = 0; j + 1 < S::COLS / 8; j += 2) {  // matrices: rows 0-7, rows 8-15 of 8 columns, then of the next 8
      uint32_t at = swizzled<S::COLS * 2>((warp * 16 + lane % 16) * S::COLS * 2 + (j + lane / 16) * 16);
      stmatrix_x4(base + at, pack_bf16(d[4 * j], d[4 * j + 1]), pack_bf16(d[4 * j + 2], d[4 * j + 3]),
                  pack_bf16(d[4 * j + 4], d[4 * j + 5]), pack_bf16(d[4 * j + 6], d[4 * j + 7]));
    }
    if (S::COLS == 8) stmatrix_x2(base + (warp * 16 + lane % 16) * 16, pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]));
    fence_proxy_async();
    named_barrier(wg + 1, 128);
    if (thread == 0) {
      tma_store_2d(map_c, col * TN + c * S::COLS, row * TM + wg * 64, base);
      bulk_commit();
    }
  }
}

template <int TM, int TN, int CLUSTER, int MODE>
__device__ __forceinline__ void ws_consume(const CUtensorMap* map_c, const WsArgs& p, uint32_t smem, uint32_t full, uint32_t empty,
                                           long long* stamp) {
  using S = WsShape<TM, TN>;
  constexpr bool MMA = MODE == WS_FULL || MODE == WS_NO_COPY || MODE == WS_IN_ORDER;
  const int wg = threadIdx.x / 128, rank = CLUSTER > 1 ? cluster_rank() : 0, rows = p.tiles_m / CLUSTER;
  const uint32_t buffers = smem + p.stages * S::STAGE_BYTES;
  const bool elected = threadIdx.x % 128 == 0, stamping = stamp != nullptr && threadIdx.x == 0;
  auto release = [&](int stage) {
    if (!elected) return;
    for (int r = 0; r < CLUSTER; ++r)
      if (CLUSTER == 1) mbar_arrive(empty + 8 * stage);
      else mbar_arrive_at(empty + 8 * stage, r);
  };
  int stage = 0, phase = 0;
  for (int t = blockIdx.x / CLUSTER; t < rows * p.tiles_n; t += gridDim.x / CLUSTER) {
    int row, col;
    ws_tile(t, rows, p.tiles_n, p.raster_rows, row, col);
    row = row * CLUSTER + rank;
    float acc[TN / 2];
    if (!MMA)
#pragma unroll
      for (int i = 0; i < TN / 2; ++i) acc[i] = 0;
    int before = -1;
    bool ready = false;  // the next stage was seen full while the tensor cores were busy
    for (int s = 0; s < p.k_steps; ++s) {
      if (!ready) mbar_wait(full + 8 * stage, phase);
      const int here = stage;
      if (++stage == p.stages) stage = 0, phase ^= 1;
      if (stamping && s == 0) stamp[FIRST_FULL] = cycles();
      if (MMA) {
        uint64_t a = wgmma_desc_128b(smem + here * S::STAGE_BYTES + wg * 8192);
        uint64_t b = wgmma_desc_128b(smem + here * S::STAGE_BYTES + TM * 128);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) Wgmma<TN>::mma(acc, a + 2 * k, b + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        ready = s + 1 < p.k_steps && mbar_test(full + 8 * stage, phase);
        if (MODE == WS_IN_ORDER) {
          wgmma_wait<0>();
          release(here);
        } else {
          wgmma_wait<1>();
          if (before >= 0) release(before);
          before = here;
        }
      } else {
        release(here);
      }
    }
    if (MMA) {
      wgmma_wait<0>();
      if (before >= 0) release(before);
    }
    if (stamping) stamp[LAST_MMA] = cycles();
    if (p.epilogue) {
      ws_store<TM, TN>(acc, map_c, buffers, row, col, wg);
      if (stamping) stamp[STORE_ISSUED] = cycles();
    } else {  // keeps the accumulators alive; never true for sums of random numbers
      float sum = 0;
#pragma unroll
      for (int i = 0; i < TN / 2; ++i) sum += acc[i];
      if (sum == 1.2345678e30f) tma_store_2d(map_c, 0, 0, buffers);
    }
  }
  if (elected) bulk_wait<0>();
  if (stamping) stamp[STORE_DONE] = cycles();
}

template <int TM, int TN, int CLUSTER, int MODE>
__global__ void __launch_bounds__(128 * TM / 64 + 64, 1)
ws_gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
               const __grid_constant__ CUtensorMap map_c, const WsArgs p) {
  using S = WsShape<TM, TN>;
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t bars[2 * WS_MAX_STAGES];
  long long* stamp = p.stamps ? p.stamps + blockIdx.x * WS_STAMPS : nullptr;
  if (stamp && threadIdx.x == 0) stamp[ENTRY] = cycles(), stamp[ENTRY_NS] = globaltimer_ns();
  const uint32_t smem = smem_u32(align_1024(raw)), full = smem_u32(bars), empty = full + 8 * WS_MAX_STAGES;
  if (threadIdx.x == S::THREADS - 1) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    prefetch_map(&map_c);
  }
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) mbar_init(full + 8 * s, 2), mbar_init(empty + 8 * s, S::WARPGROUPS * CLUSTER);
    mbar_init_fence();
  }
  if (CLUSTER > 1) cluster_sync();
  else __syncthreads();
  if (stamp && threadIdx.x == 0) stamp[READY] = cycles();
  if (threadIdx.x / 128 == S::WARPGROUPS) {
    if (threadIdx.x / 32 % 4 == 0) ws_produce<TM, TN, CLUSTER, MODE, true>(&map_a, p, once(smem), once(full), once(empty));
    else ws_produce<TM, TN, CLUSTER, MODE, false>(&map_b, p, once(smem), once(full), once(empty));
  } else {
    ws_consume<TM, TN, CLUSTER, MODE>(&map_c, p, once(smem), once(full), once(empty), stamp);
  }
  if (CLUSTER > 1) cluster_sync();  // nobody leaves while the other CTA may still signal or fill it
  if (stamp && threadIdx.x == 0) stamp[EXIT_NS] = globaltimer_ns();
}

// ---------------------------------------------------------------- host

struct WsProblem { int m, n, k; const __nv_bfloat16 *a, *b; __nv_bfloat16* c; };

template <int TM, int TN, int CLUSTER = 1, int MODE = WS_FULL>
struct WsGemm {
  using S = WsShape<TM, TN>;
  CUtensorMap a, b, c;
  WsArgs args;
  int ctas;
  // ctas: SMs to use; fewer when there are fewer tiles. stages 0: as many as fit.
  WsGemm(const WsProblem& p, int max_ctas, int stages = 0, int epilogue = 1, long long* stamps = nullptr, int raster_rows = 8) {
    a = tensor_map_bf16(p.a, p.m, p.k, p.k, TM, 64);
    b = tensor_map_bf16(p.b, p.n, p.k, p.k, TN / CLUSTER, 64);
    constexpr CUtensorMapSwizzle swizzle = S::COLS == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                           : S::COLS == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                           : S::COLS == 16 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                           : CU_TENSOR_MAP_SWIZZLE_NONE;
    c = tensor_map_bf16(p.c, p.m, p.n, p.n, 64, S::COLS, swizzle);
    int tiles_m = (p.m + TM - 1) / TM, tiles_n = (p.n + TN - 1) / TN;
    tiles_m = (tiles_m + CLUSTER - 1) / CLUSTER * CLUSTER;
    args = {(p.k + 63) / 64, tiles_m, tiles_n, stages ? stages : S::max_stages(), epilogue, raster_rows, stamps};
    ctas = std::min(max_ctas / CLUSTER * CLUSTER, tiles_m * tiles_n);
    require(args.stages >= 1 && args.stages <= S::max_stages(), "stages fit in shared memory");
    allow_smem(ws_gemm_kernel<TM, TN, CLUSTER, MODE>, S::smem(args.stages));
  }
  void operator()(cudaStream_t stream = 0) const {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(S::THREADS);
    config.dynamicSmemBytes = S::smem(args.stages);
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = CLUSTER > 1 ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, ws_gemm_kernel<TM, TN, CLUSTER, MODE>, a, b, c, args));
  }
};

}  // namespace ts
