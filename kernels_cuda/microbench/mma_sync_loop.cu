/* mma_sync_loop: cycles of a k-step of mma.sync m16n8k16 bf16 fed by ldmatrix, the loop of tiles with fewer than 64 rows.
   Shapes     A: (tile_m, tile_k) row-major, B: (tile_k, tile_n) row-major, bf16; D: (tile_m, tile_n) fp32 = steps * A B
   Launch     grid = SMs under test times CTAs per SM, block 128 (4 warps as warps_m x warps_n), no cluster
   On chip    dynamic smem: two equal stages of A and B, 16-byte chunks exchanged by row (8 rows never share a bank)
   Traffic    operands stay in shared memory; per k16 a warp reads tile_m / warps_m rows of A and tile_n / warps_n columns of B
   Work       2 tile_m tile_n tile_k flop a k-step                                      Bound  smem, issue, tensor
   Orders     free: warps run on their own; barrier: __syncthreads each k-step, as a loop with cp.async has
   Checked    against float64 on the host, random normal operands, poisoned D
   Model      tilesight/kernels/gemm.py (mma.sync k-step)
   Reference  PTX ISA, mma.sync, ldmatrix
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a mma_sync_loop.cu -o mma_sync_loop
   Run        ./mma_sync_loop --steps 2000 --repeats 5        one JSON line a point */
#include "../common/tilesight.cuh"

using namespace ts;

struct Buffers { __nv_bfloat16 *a, *b; float* d; long long* elapsed; float* clock_hz; };
struct Launch { int sms, ctas_per_sm, steps; float* d; };

// ---------------------------------------------------------------- host reference

double relative_error(const Buffers& x, int m, int n, int k, int steps) {
  auto a = to_host(x.a, m * k), b = to_host(x.b, k * n);
  auto d = to_host(x.d, m * n);
  double err = 0, norm = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double want = 0;
      for (int q = 0; q < k; ++q) want += (double)__bfloat162float(a[i * k + q]) * __bfloat162float(b[q * n + j]);
      want *= steps;
      err += (d[i * n + j] - want) * (d[i * n + j] - want), norm += want * want;
    }
  return std::sqrt(err / norm);
}

// ---------------------------------------------------------------- kernel

// Byte offset of the 16-byte chunk `chunk` of row `row` in rows of ROW_BYTES (64, 128 or 256).
template <int ROW_BYTES> __device__ __forceinline__ uint32_t chunk_at(int row, int chunk) {
  int turn = ROW_BYTES == 64 ? row / 2 % 4 : row % 8;
  return row * ROW_BYTES + (chunk ^ turn) * 16;
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void mma_16816(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int BM, int BN, int BK, int WM, int WN, int BARRIER>
__global__ void __launch_bounds__(128)
loop_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d, int steps, long long* elapsed, float* clock_hz) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr int MT = BM / WM / 16, NT = BN / WN / 8, STAGE = (BM * BK + BK * BN) * 2;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 / WN * (BM / WM), col0 = threadIdx.x / 32 % WN * (BN / WN);
  for (int stage = 0; stage < 2; ++stage) {
    for (int i = threadIdx.x; i < BM * BK; i += 128)
      *(__nv_bfloat16*)(smem + stage * STAGE + chunk_at<BK * 2>(i / BK, i % BK / 8) + i % 8 * 2) = a[i];
    for (int i = threadIdx.x; i < BK * BN; i += 128)
      *(__nv_bfloat16*)(smem + stage * STAGE + BM * BK * 2 + chunk_at<BN * 2>(i / BN, i % BN / 8) + i % 8 * 2) = b[i];
  }
  float acc[MT][NT][4] = {};
  __syncthreads();
  const unsigned long long ns = globaltimer_ns();
  const long long t0 = cycles();
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const uint32_t at_a = smem_u32(smem) + (s & 1) * STAGE, at_b = at_a + BM * BK * 2;
    if (BARRIER) __syncthreads();
#pragma unroll
    for (int k = 0; k < BK / 16; ++k) {
      uint32_t fa[MT][4], fb[NT / 2][4];
#pragma unroll
      for (int i = 0; i < MT; ++i) ldmatrix_x4(fa[i], at_a + chunk_at<BK * 2>(row0 + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < NT / 2; ++j)
        ldmatrix_x4_trans(fb[j], at_b + chunk_at<BN * 2>(k * 16 + lane % 16, (col0 + j * 16) / 8 + lane / 16));
#pragma unroll
      for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int j = 0; j < NT; ++j) mma_16816(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
  float sum = 0;
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < NT; ++j)
      for (int q = 0; q < 4; ++q) sum += acc[i][j][q];
  if (sum == 1.2345678e30f) elapsed[blockIdx.x] = -1;  // the accumulators are complete before the clock is read
  __syncthreads();
  if (threadIdx.x == 0) {
    elapsed[blockIdx.x] = cycles() - t0;
    clock_hz[blockIdx.x] = (float)(cycles() - t0) / (float)(globaltimer_ns() - ns) * 1e9f;
  }
  if (d && blockIdx.x == 0)
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q)
          d[(row0 + i * 16 + lane / 4 + q / 2 * 8) * BN + col0 + j * 8 + lane % 4 * 2 + q % 2] = acc[i][j][q];
}

// ---------------------------------------------------------------- launcher

template <int BM, int BN, int BK, int WM, int WN, int BARRIER>
void measure(const Buffers& x, int steps, int repeats, int sms) {
  auto kernel = loop_kernel<BM, BN, BK, WM, WN, BARRIER>;
  size_t smem = (size_t)2 * (BM + BN) * BK * 2;
  allow_smem(kernel, smem);
  auto launch = [&](const Launch& l) {
    kernel<<<l.sms * l.ctas_per_sm, 128, smem>>>(x.a, x.b, l.d, l.steps, x.elapsed, x.clock_hz);
    CHECK_LAUNCH();
  };
  for (int n : {1, 3}) {
    poison(x.d, sizeof(float) * BM * BN);
    launch({1, 1, n, x.d});
    double e = relative_error(x, BM, BN, BK, n);
    require(e < 1e-4, "mma_sync_loop " + std::to_string(BM) + "x" + std::to_string(BN) + ": relative error " + std::to_string(e));
  }
  for (Launch l : {Launch{1, 1, steps, nullptr}, Launch{sms, 1, steps, nullptr}, Launch{sms, 2, steps, nullptr}}) {
    std::vector<double> per_step, clock;
    for (int r = 0; r <= repeats; ++r) {
      launch(l);
      double step = median(to_host(x.elapsed, l.sms * l.ctas_per_sm)) / steps;
      if (r > 0) per_step.push_back(step), clock.push_back(median(to_host(x.clock_hz, l.sms * l.ctas_per_sm)));
    }
    // Shared-memory reads of all warps a k16: each warp its rows of A and its columns of B.
    double read_bytes = 4.0 * (BM / WM + BN / WN) * 32;
    Json j("mma_sync_loop");
    j.put("tile_m", BM).put("tile_n", BN).put("tile_k", BK).put("warps_m", WM).put("warps_n", WN);
    j.put("order", BARRIER ? "barrier" : "free").put("sms", l.sms).put("ctas_per_sm", l.ctas_per_sm).put("steps", steps);
    j.put("cycles_per_step", median(per_step)).put("cycles_per_k16", median(per_step) / (BK / 16));
    j.put("smem_read_cycles_per_k16", read_bytes / 128).put("mma_flop_per_cycle", 2.0 * BM * BN * BK * l.ctas_per_sm / median(per_step));
    j.put("clock_hz", median(clock)).put("spread", spread(per_step)).emit();
  }
}

template <int BM, int BN, int BK, int WM, int WN>
void both(const Buffers& x, int steps, int repeats, int sms) {
  measure<BM, BN, BK, WM, WN, 0>(x, steps, repeats, sms);
  measure<BM, BN, BK, WM, WN, 1>(x, steps, repeats, sms);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int steps = args.get("--steps", 2000), repeats = args.get("--repeats", 5), sms = sm_count();
  Buffers x{device_alloc<__nv_bfloat16>(128 * 128), device_alloc<__nv_bfloat16>(128 * 128), device_alloc<float>(128 * 128),
            device_alloc<long long>(2 * sms), device_alloc<float>(2 * sms)};
  fill_normal_bf16(x.a, 128 * 128, 1);
  fill_normal_bf16(x.b, 128 * 128, 2);
  both<32, 128, 32, 2, 2>(x, steps, repeats, sms);
  both<32, 128, 64, 2, 2>(x, steps, repeats, sms);
  both<32, 128, 64, 1, 4>(x, steps, repeats, sms);
  both<32, 64, 64, 2, 2>(x, steps, repeats, sms);
  both<16, 128, 32, 1, 4>(x, steps, repeats, sms);
  both<16, 128, 64, 1, 4>(x, steps, repeats, sms);
  both<16, 64, 64, 1, 4>(x, steps, repeats, sms);
  both<64, 64, 32, 2, 2>(x, steps, repeats, sms);
  both<64, 64, 64, 2, 2>(x, steps, repeats, sms);
  both<64, 128, 64, 2, 2>(x, steps, repeats, sms);
  both<128, 128, 32, 2, 2>(x, steps, repeats, sms);
  return 0;
}
