/* wgmma_rate: rate of one wgmma instruction by dtype, N and source of A, operands resident.
   Shapes     A: (64 * warpgroups, 128 bytes of k), B: (N, 128 bytes of k), both rows of k, in shared memory; D: 64 x N a warpgroup
   Launch     grid 1 or one CTA an SM, block 128 * warpgroups, no cluster
   On chip    dynamic smem 1 KiB + A + B; accumulators in registers, N / 2 per thread
   Traffic    operands stay in shared memory, or A in registers; none beyond the SM in the loop
   Work       2 * 64 * N * K flop an instruction (int8: operations), K = 16 (bf16, fp16), 8 (tf32), 32 (fp8, int8)
   Bound      tensor; with A in shared memory and small N its reads
   Order      groups of 4 instructions (128 bytes of k), no wait between groups
   Checked    against float64 on the host (int8 exact), random operands, poisoned D, every dtype, N, source and warpgroups
   Model      tensor.<dtype>.flop_per_cycle_per_sm; loops of bf16 are in wgmma_cycles
   Reference  PTX ISA, wgmma.mma_async
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v wgmma_rate.cu -o wgmma_rate
   Run        ./wgmma_rate --repeats 7                         one JSON line a point */
#include "../common/cta_window.cuh"
#include "../common/mma.cuh"
#include "../common/wgmma_types.cuh"
using namespace ts;

constexpr int ROW_WORDS = 32, MOST_M = 128, MOST_N = 256;

// ---------------------------------------------------------------- kernel

template <class T, int N>
__global__ void __launch_bounds__(256, 1)
wgmma_kernel(const uint32_t* a, const uint32_t* b, double* d, int steps, bool a_registers, Elapsed* elapsed) {
  extern __shared__ unsigned char raw[];
  __shared__ CtaWindow window;
  const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the same for all lanes: descriptors stay in uniform registers
  const int rows = blockDim.x / 2, lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
  unsigned char *tile_a = align_1024(raw), *tile_b = tile_a + rows * 128;
  for (int i = threadIdx.x; i < rows * ROW_WORDS; i += blockDim.x) *(uint32_t*)(tile_a + swizzled<128>(i * 4)) = a[i];
  for (int i = threadIdx.x; i < N * ROW_WORDS; i += blockDim.x) *(uint32_t*)(tile_b + swizzled<128>(i * 4)) = b[i];
  typename T::Acc acc[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) wgmma_zero(acc[i]);
  uint32_t fragment[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int r = 0; r < 4; ++r) fragment[k][r] = a[(row0 + 8 * (r % 2)) * ROW_WORDS + 8 * k + lane % 4 + 4 * (r / 2)];
  const uint64_t desc_a = wgmma_desc_128b(smem_u32(tile_a) + wg * 8192), desc_b = wgmma_desc_128b(smem_u32(tile_b));
  fence_proxy_async();
  const long long t0 = window_open(window);
  if (a_registers) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) WgmmaOf<T, N>::from_registers(acc, fragment[k], desc_b + 2 * k, 1);
      wgmma_commit();
    }
  } else {
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) WgmmaOf<T, N>::from_smem(acc, desc_a + 2 * k, desc_b + 2 * k, 1);
      wgmma_commit();
    }
  }
  wgmma_wait<0>();
  window_close(window, t0, elapsed);
  if (d != nullptr)
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      d[(size_t)(row0 + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = (double)acc[i];
}

// ---------------------------------------------------------------- launcher

struct Dtype {  // operands and product of one dtype, for all N
  uint32_t *a, *b;
  std::vector<double> product;  // MOST_M x MOST_N
};

template <class T, int N> void measure(const Dtype& x, double* d, Elapsed* elapsed, int repeats, int sms) {
  auto kernel = wgmma_kernel<T, N>;
  allow_smem(kernel, 1024 + (MOST_M + N) * 128);
  for (int warpgroups : {1, 2})
    for (bool registers : {false, true}) {
      const int m = 64 * warpgroups;
      auto launch = [&](int ctas, int steps, double* out) {
        kernel<<<ctas, 2 * m, 1024 + (m + N) * 128>>>(x.a, x.b, out, steps, registers, elapsed);
        CHECK_LAUNCH();
      };
      double e = 0;
      for (int steps : {1, 3}) {
        std::vector<double> want((size_t)m * N);
        for (int i = 0; i < m * N; ++i) want[i] = steps * x.product[i / N * MOST_N + i % N];
        poison(d, sizeof(double) * m * N);
        launch(1, steps, d);
        e = relative_error(to_host(d, (size_t)m * N), want);
        require(e < tolerance(T::dtype, "fp32"), std::string("wgmma_rate: ") + T::dtype + " n=" + std::to_string(N) +
                                                     (registers ? " registers" : " shared") + ": relative error " + std::to_string(e));
      }
      const int steps = 102400 / std::max(N, 32);  // about a quarter of a millisecond
      for (int ctas : {1, sms}) {
        Timing t = time_ctas([&] { launch(ctas, steps, nullptr); }, elapsed, ctas, repeats);
        double each = median(t.cycles) / (4.0 * steps * warpgroups);
        Json j("wgmma_rate");
        j.put("dtype", T::dtype).put("n", N).put("k", T::K).put("a_source", registers ? "registers" : "shared");
        j.put("warpgroups", warpgroups).put("sms", ctas).put("cycles_per_instruction", each);
        j.put("flop_per_cycle_per_sm", 2.0 * 64 * N * T::K / each).put("clock_hz", t.clock_hz).put("relative_error", e);
        j.put("repeats", repeats).put("spread", spread(t.cycles)).emit();
      }
    }
}

template <class T> void measure_dtype(double* d, Elapsed* elapsed, int repeats, int sms) {
  const int k = 4 * T::K;
  Operand a = random_operand(T::dtype, MOST_M * k, 1), b = random_operand(T::dtype, MOST_N * k, 2);
  Dtype x{upload<uint32_t>(a.raw), upload<uint32_t>(b.raw), product(a.value.data(), b.value.data(), MOST_M, MOST_N, k)};
  measure<T, 8>(x, d, elapsed, repeats, sms);
  measure<T, 16>(x, d, elapsed, repeats, sms);
  measure<T, 32>(x, d, elapsed, repeats, sms);
  measure<T, 64>(x, d, elapsed, repeats, sms);
  measure<T, 96>(x, d, elapsed, repeats, sms);
  measure<T, 128>(x, d, elapsed, repeats, sms);
  measure<T, 192>(x, d, elapsed, repeats, sms);
  measure<T, 256>(x, d, elapsed, repeats, sms);
  CHECK(cudaFree(x.a));
  CHECK(cudaFree(x.b));
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 7), sms = sm_count();
  if (compute_capability() / 10 != 9) {
    Json("wgmma_rate").put("part", "skipped").put("reason", "no wgmma: needs compute capability 9.x").emit();
    return 0;
  }
  double* d = device_alloc<double>(MOST_M * MOST_N);
  Elapsed* elapsed = device_alloc<Elapsed>(sms);
  warm_up_clock(0.1);
  measure_dtype<WgBf16>(d, elapsed, repeats, sms);
  measure_dtype<WgFp16>(d, elapsed, repeats, sms);
  measure_dtype<WgTf32>(d, elapsed, repeats, sms);
  measure_dtype<WgFp8>(d, elapsed, repeats, sms);
  measure_dtype<WgFp8E5m2>(d, elapsed, repeats, sms);
  measure_dtype<WgInt8>(d, elapsed, repeats, sms);
  return 0;
}
