/* wgmma_cycles: cycles of m64nNk16 bf16 instructions, alone and in the k-steps of a GEMM loop.
   Shapes     A: (64 * m64 * warpgroups, 16 * k16) bf16, row-major; B: (N, 16 * k16) k-major or (16 * k16, N) n-major;
              D: (64 * m64 * warpgroups, N) fp32 = steps * A B^T, for the check
   Launch     grid = SMs under test, block 128 * warpgroups + 32 (one copy warp), no cluster, 1 CTA an SM
   On chip    dynamic smem: A + B + 96 KiB ring of the copy warp; accumulators in registers, m64 * N / 2 per thread
   Traffic    operands stay in shared memory; the copy warp streams stream_bytes_per_cycle from L2 (96 KiB per SM, distinct)
   Work       2 * 64 * N * 16 flop an instruction: N / 2 cycles at 4096 flop/cycle/SM       Bound  tensor
   Orders     stream         no wait between k-steps
              wait0          commit and wait for this k-step
              wait1          commit and wait for the previous k-step
              wait1_barrier  as wait1, and a barrier of all warpgroups a k-step
   Checked    against float64 on the host, random normal operands, poisoned D
   Model      tilesight/kernels/gemm.py (instruction and k-step cycles)
   Reference  PTX ISA, wgmma.mma_async
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a wgmma_cycles.cu -o wgmma_cycles
   Run        ./wgmma_cycles --steps 2000 --repeats 5       one JSON line a point */
#include "../common/copy_stream.cuh"

using namespace ts;

enum Order { STREAM, WAIT0, WAIT1, WAIT1_BARRIER };
const char* const ORDER_NAME[] = {"stream", "wait0", "wait1", "wait1_barrier"};
constexpr int COPY_SET = 96 * 1024;  // bytes of L2 that the copy warp of an SM cycles over

struct Point {  // one kernel: what one warpgroup does in a k-step
  int n, m64, k16;
  Order order;
  bool n_major_b, a_regs;
};
struct Launch { int warpgroups, sms, steps; double stream_bytes_per_cycle; };

// ---------------------------------------------------------------- host reference

std::vector<double> reference(const std::vector<__nv_bfloat16>& a, const std::vector<__nv_bfloat16>& b, int m, int n, int k,
                              bool n_major, int steps) {
  std::vector<double> d((size_t)m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double s = 0;
      for (int x = 0; x < k; ++x)
        s += (double)__bfloat162float(a[i * k + x]) * __bfloat162float(b[n_major ? x * n + j : j * k + x]);
      d[(size_t)i * n + j] = steps * s;
    }
  return d;
}

// ---------------------------------------------------------------- kernel

template <int N, int M64, int K16, int ORDER, int N_MAJOR, int A_REGS>
__global__ void __launch_bounds__(288, 1)
wgmma_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d, const unsigned char* copies, int steps,
             int stream_interval_cycles, long long* elapsed, float* achieved, float* clock_hz) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t bars[STREAM_SLOTS];
  __shared__ int done;
  __shared__ unsigned long long copied;
  __shared__ long long begin[2], end[2], begin_ns, end_ns;
  constexpr int KB = K16 > 4 ? K16 / 4 : 1, K = 16 * K16;  // blocks of 64 k in shared memory
  const int warpgroups = (blockDim.x - 32) / 128, wg = threadIdx.x / 128, rows = 64 * M64 * warpgroups;
  unsigned char* tile_a = align_1024(raw);
  unsigned char* tile_b = tile_a + KB * rows * 128;
  unsigned char* ring = tile_b + KB * (N_MAJOR ? ((N + 63) / 64) * 8192 : N * 128);
  for (int i = threadIdx.x; i < rows * K; i += blockDim.x) {
    int r = i / K, k = i % K;
    *(__nv_bfloat16*)(tile_a + (k / 64) * rows * 128 + swizzled<128>(r * 128 + (k % 64) * 2)) = a[i];
  }
  for (int i = threadIdx.x; i < N * K; i += blockDim.x) {
    int n = N_MAJOR ? i % N : i / K, k = N_MAJOR ? i / N : i % K;
    uint32_t at = N_MAJOR ? (k / 64) * ((N + 63) / 64) * 8192 + (n / 64) * 8192 + swizzled<128>((k % 64) * 128 + (n % 64) * 2)
                          : (k / 64) * N * 128 + swizzled<128>(n * 128 + (k % 64) * 2);
    *(__nv_bfloat16*)(tile_b + at) = b[i];
  }
  if (threadIdx.x == 0) {
    done = 0;
    for (int i = 0; i < STREAM_SLOTS; ++i) mbar_init(smem_u32(bars + i), 1);
    mbar_init_fence();
  }
  fence_proxy_async();
  __syncthreads();

  if (wg == warpgroups) {
    if (threadIdx.x % 32 == 0) {
      CopyStream stream = {copies + (size_t)blockIdx.x * COPY_SET, STREAM_CHUNK, COPY_SET, stream_interval_cycles};
      long long ran = copy_stream(stream, smem_u32(ring), smem_u32(bars), &done, warpgroups, &copied);
      achieved[blockIdx.x] = ran ? (float)copied / (float)ran : 0;
    }
  } else {
    float acc[M64][N / 2] = {};
    uint32_t frag[M64][K16][4];
    if (A_REGS)
      for (int m = 0; m < M64; ++m)
        for (int k = 0; k < K16; ++k)
          for (int q = 0; q < 4; ++q) {
            int lane = threadIdx.x % 32, r = (wg * M64 + m) * 64 + (threadIdx.x % 128) / 32 * 16 + lane / 4 + 8 * (q % 2);
            int c = 16 * k + lane % 4 * 2 + 8 * (q / 2);
            frag[m][k][q] = *(uint32_t*)(tile_a + (c / 64) * rows * 128 + swizzled<128>(r * 128 + (c % 64) * 2));
          }
    const uint32_t at_a = smem_u32(tile_a) + wg * M64 * 8192, at_b = smem_u32(tile_b);
    const uint64_t desc_a = wgmma_desc_128b(at_a);
    const uint64_t desc_b = N_MAJOR ? wgmma_desc_n_major(at_b, 8192) : wgmma_desc_128b(at_b);
    const uint32_t step_a = rows * 128, step_b = N_MAJOR ? ((N + 63) / 64) * 8192 : N * 128;
    // A few thousand cycles of copies first, so that the stream is in its steady state.
    if (stream_interval_cycles > 0)
      for (long long t = cycles(); cycles() - t < 4000;) {}
    named_barrier(1, 128 * warpgroups);
    long long t0 = cycles();
    if (threadIdx.x == 0) begin_ns = globaltimer_ns();
    for (int s = 0; s < steps; ++s) {
      wgmma_fence();
#pragma unroll
      for (int m = 0; m < M64; ++m)
#pragma unroll
        for (int k = 0; k < K16; ++k) {
          uint64_t db = desc_b + (((k / 4) * step_b + (k % 4) * (N_MAJOR ? 2048 : 32)) >> 4);
          if (A_REGS) Wgmma<N>::template mma_a_regs<N_MAJOR>(acc[m], frag[m][k], db, 1);
          else Wgmma<N>::template mma<N_MAJOR>(acc[m], desc_a + ((m * 8192 + (k / 4) * step_a + (k % 4) * 32) >> 4), db, 1);
        }
      wgmma_commit();
      if (ORDER == WAIT0) wgmma_wait<0>();
      if (ORDER == WAIT1 || ORDER == WAIT1_BARRIER) wgmma_wait<1>();
      if (ORDER == WAIT1_BARRIER) named_barrier(1, 128 * warpgroups);
    }
    wgmma_wait<0>();
    long long t1 = cycles();
    if (threadIdx.x == 0) end_ns = globaltimer_ns();
    if (threadIdx.x % 128 == 0) {
      begin[wg] = t0;
      end[wg] = t1;
      atomicAdd(&done, 1);
    }
    if (d != nullptr && blockIdx.x == 0)
#pragma unroll
      for (int m = 0; m < M64; ++m)
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
          int lane = threadIdx.x % 32, r = (wg * M64 + m) * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * (i / 2 % 2);
          d[(size_t)r * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = acc[m][i];
        }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    long long from = begin[0], to = end[0];
    if (warpgroups == 2) { from = min(from, begin[1]); to = max(to, end[1]); }
    elapsed[blockIdx.x] = to - from;
    clock_hz[blockIdx.x] = (float)(end[0] - begin[0]) / (float)(end_ns - begin_ns) * 1e9f;
  }
}

// ---------------------------------------------------------------- launcher

struct Buffers {
  __nv_bfloat16 *a, *b;
  float* d;
  unsigned char* copies;
  long long* elapsed;
  float *achieved, *clock_hz;
};

template <int N, int M64, int K16, int ORDER, int N_MAJOR, int A_REGS>
void launch(const Buffers& x, const Launch& l, float* d) {
  auto kernel = wgmma_kernel<N, M64, K16, ORDER, N_MAJOR, A_REGS>;
  size_t kb = K16 > 4 ? K16 / 4 : 1, b_bytes = N_MAJOR ? (N + 63) / 64 * 8192 : N * 128;
  size_t smem = std::max<size_t>(1024 + kb * (64 * M64 * l.warpgroups * 128 + b_bytes) + STREAM_RING, 120 * 1024);
  allow_smem(kernel, smem);
  int interval = l.stream_bytes_per_cycle > 0 ? (int)(STREAM_CHUNK / l.stream_bytes_per_cycle) : 0;
  kernel<<<l.sms, 128 * l.warpgroups + 32, smem>>>(x.a, x.b, d, x.copies, l.steps, interval, x.elapsed, x.achieved, x.clock_hz);
  CHECK_LAUNCH();
}

using Launcher = void (*)(const Buffers&, const Launch&, float*);
struct Case { Point point; Launcher launch; };
template <int N, int M64 = 1, int K16 = 4, int ORDER = STREAM, int N_MAJOR = 0, int A_REGS = 0>
Case make() {
  return {{N, M64, K16, (Order)ORDER, (bool)N_MAJOR, (bool)A_REGS}, launch<N, M64, K16, ORDER, N_MAJOR, A_REGS>};
}
template <int N, int M64 = 1, int K16 = 4, int N_MAJOR = 0, int A_REGS = 0>
void add_orders(std::vector<Case>& out) {
  if constexpr (K16 != 2) out.push_back(make<N, M64, K16, STREAM, N_MAJOR, A_REGS>());  // 2: the compiler serialises it
  out.push_back(make<N, M64, K16, WAIT0, N_MAJOR, A_REGS>());
  out.push_back(make<N, M64, K16, WAIT1, N_MAJOR, A_REGS>());
  out.push_back(make<N, M64, K16, WAIT1_BARRIER, N_MAJOR, A_REGS>());
}
std::vector<Case> all_cases() {
  std::vector<Case> c;
  add_orders<8>(c); add_orders<16>(c); add_orders<24>(c); add_orders<32>(c); add_orders<48>(c); add_orders<64>(c);
  add_orders<80>(c); add_orders<96>(c); add_orders<128>(c); add_orders<160>(c); add_orders<192>(c); add_orders<256>(c);
  add_orders<64, 1, 2>(c); add_orders<128, 1, 2>(c); add_orders<256, 1, 2>(c);
  add_orders<64, 1, 8>(c); add_orders<128, 1, 8>(c); add_orders<256, 1, 8>(c);
  add_orders<64, 2>(c); add_orders<128, 2>(c); add_orders<32, 4>(c); add_orders<64, 4>(c);
  add_orders<64, 1, 4, 1>(c); add_orders<128, 1, 4, 1>(c); add_orders<256, 1, 4, 1>(c); add_orders<128, 2, 4, 1>(c);
  add_orders<8, 1, 4, 0, 1>(c); add_orders<32, 1, 4, 0, 1>(c); add_orders<64, 1, 4, 0, 1>(c); add_orders<128, 1, 4, 0, 1>(c);
  return c;
}

void check(const Case& c, const Buffers& x, int warpgroups) {
  const Point& p = c.point;
  int m = 64 * p.m64 * warpgroups, k = 16 * p.k16;
  for (int steps : {1, 3}) {
    poison(x.d, sizeof(float) * m * p.n);
    c.launch(x, {warpgroups, 1, steps, 0}, x.d);
    auto got = to_host(x.d, (size_t)m * p.n);
    auto want = reference(to_host(x.a, (size_t)m * k), to_host(x.b, (size_t)p.n * k), m, p.n, k, p.n_major_b, steps);
    double err = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) err += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
    double relative = std::sqrt(err / norm);
    require(relative < 1e-4, "wgmma n=" + std::to_string(p.n) + " m64=" + std::to_string(p.m64) + " " + ORDER_NAME[p.order] +
                                 ": relative error " + std::to_string(relative));
  }
}

void measure(const Case& c, const Buffers& x, const Launch& l, int repeats) {
  std::vector<double> per_repeat, achieved, clock;
  for (int r = 0; r < repeats + 1; ++r) {
    c.launch(x, l, nullptr);
    auto e = to_host(x.elapsed, l.sms);
    auto s = to_host(x.achieved, l.sms);
    if (r == 0) continue;
    per_repeat.push_back(median(e));
    achieved.push_back(median(s));
    clock.push_back(median(to_host(x.clock_hz, l.sms)));
  }
  const Point& p = c.point;
  double step = median(per_repeat) / l.steps, mma = step / (p.m64 * p.k16 * l.warpgroups);
  Json j("wgmma_cycles");
  j.put("n", p.n).put("m64_per_warpgroup", p.m64).put("warpgroups", l.warpgroups).put("k16_per_step", p.k16);
  j.put("order", ORDER_NAME[p.order]).put("a_source", p.a_regs ? "registers" : "shared");
  j.put("b_order", p.n_major_b ? "n_major" : "k_major").put("sms", l.sms);
  j.put("stream_asked_bytes_per_cycle", l.stream_bytes_per_cycle).put("stream_bytes_per_cycle", median(achieved));
  j.put("cycles_per_step", step).put("cycles_per_mma", mma).put("tensor_share", p.n / 2.0 / mma);
  j.put("clock_hz", median(clock)).put("steps", l.steps).put("spread", spread(per_repeat)).emit();
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int steps = args.get("--steps", 2000), repeats = args.get("--repeats", 5), sms = sm_count();
  Buffers x{device_alloc<__nv_bfloat16>(512 * 128), device_alloc<__nv_bfloat16>(256 * 128), device_alloc<float>(512 * 256),
            device_alloc<unsigned char>((size_t)sms * COPY_SET), device_alloc<long long>(sms), device_alloc<float>(sms),
            device_alloc<float>(sms)};
  fill_normal_bf16(x.a, 512 * 128, 1);
  fill_normal_bf16(x.b, 256 * 128, 2);
  fill_normal_bf16((__nv_bfloat16*)x.copies, (size_t)sms * COPY_SET / 2, 3);
  for (const Case& c : all_cases())
    for (int warpgroups : {1, 2}) {
      const Point& p = c.point;
      check(c, x, warpgroups);
      for (int n_sms : {1, sms}) {
        // All SMs at once only for the common shapes: cycles barely depend on it.
        if (n_sms > 1 && !(p.k16 == 4 && (p.n == 8 || p.n == 64 || p.n == 128 || p.n == 256))) continue;
        measure(c, x, {warpgroups, n_sms, steps, 0}, repeats);
      }
      bool streamed = p.k16 == 4 && !p.a_regs && (p.order == STREAM || p.order == WAIT1) &&
                      (p.n == 8 || p.n == 32 || p.n == 64 || p.n == 128 || p.n == 256);
      if (streamed)
        for (int n_sms : {1, 33, sms})
          for (double rate : {16.0, 32.0, 48.0, 64.0})
            if (n_sms < sms || rate <= 32) measure(c, x, {warpgroups, n_sms, steps, rate}, repeats);
    }
  return 0;
}
