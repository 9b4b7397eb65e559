/* smem_latency: cycles of a dependent load from shared memory, from L1, and by ldmatrix.
   Shapes     chains through all of 16 KiB in random order: 4-byte words (shared), 8-byte pointers (l1), 8 x 8 matrices whose
              words hold the row addresses of the next one (ldmatrix)
   Launch     grid 1, block 32 (shared, l1: one lane runs), no cluster
   On chip    static smem 16 KiB; registers as printed by ptxas (record .toml)
   Traffic    l1: 16 KiB, read once before the clock starts; nothing beyond the SM in the loop
   Work       none                                            Bound  latency
   Parts      shared: ld.shared.u32 whose result is the next address; l1: ld.global.u64, likewise (a hit, 64-bit address);
              ldmatrix: x1, x2, x4, whose first register is the next row address
   Checked    the last address of each chain against the host's walk, exact
   Model      latency of one load without contention; includes no address arithmetic
   Reference  Mei and Chu, Dissecting GPU memory hierarchy through microbenchmarking (2017)
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v smem_latency.cu -o smem_latency
   Run        ./smem_latency --repeats 15                      one JSON line a point */
#include <numeric>

#include "../common/cta_window.cuh"
using namespace ts;

constexpr int BYTES = 16384, UNROLL = 16;

// ---------------------------------------------------------------- host reference

// One cycle through all of 0..n-1 in random order: next[i] follows i (Sattolo).
std::vector<uint32_t> random_cycle(int n, uint64_t seed) {
  std::vector<uint32_t> next(n);
  std::iota(next.begin(), next.end(), 0u);
  for (int i = n - 1; i > 0; --i) std::swap(next[i], next[hash32(i + (seed << 40)) % i]);
  return next;
}
uint32_t walk(const std::vector<uint32_t>& next, int steps) {
  uint32_t at = 0;
  for (int i = 0; i < steps; ++i) at = next[at];
  return at;
}

// ---------------------------------------------------------------- kernels: out[lane] = element reached

__global__ void __launch_bounds__(32) shared_kernel(const uint32_t* next, uint32_t* out, int loads, Elapsed* elapsed) {
  __shared__ __align__(1024) uint32_t smem[BYTES / 4];
  __shared__ CtaWindow window;
  for (int i = threadIdx.x; i < BYTES / 4; i += 32) smem[i] = smem_u32(smem + next[i]);
  uint32_t at = smem_u32(smem);
  const long long t0 = window_open(window);
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < loads; i += UNROLL)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
  window_close(window, t0, elapsed);
  if (threadIdx.x == 0) out[0] = (at - smem_u32(smem)) / 4;
}

// pointers[i] is filled here: a 64-bit address that the host does not know.
__global__ void __launch_bounds__(32) l1_kernel(const uint32_t* next, uint64_t* pointers, uint32_t* out, int loads, Elapsed* elapsed) {
  __shared__ CtaWindow window;
  for (int i = threadIdx.x; i < BYTES / 8; i += 32) pointers[i] = (uint64_t)(pointers + next[i]);
  __threadfence();
  __syncwarp();
  uint64_t at = (uint64_t)pointers;
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < BYTES / 8; ++i) asm volatile("ld.global.u64 %0, [%0];" : "+l"(at)::"memory");  // into L1, back to 0
  const long long t0 = window_open(window);
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < loads; i += UNROLL)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) asm volatile("ld.global.u64 %0, [%0];" : "+l"(at)::"memory");
  window_close(window, t0, elapsed);
  if (threadIdx.x == 0) out[0] = (uint32_t)((at - (uint64_t)pointers) / 8);
}

// Element i is 128 * MATRICES bytes; word l of its first matrix is the row address that lane l gives for element next[i].
template <int MATRICES>
__global__ void __launch_bounds__(32) ldmatrix_kernel(const uint32_t* next, uint32_t* out, int loads, Elapsed* elapsed) {
  __shared__ __align__(1024) uint32_t smem[BYTES / 4];
  __shared__ CtaWindow window;
  const uint32_t mine = threadIdx.x % (8 * MATRICES) * 16, base = smem_u32(smem);
#pragma unroll 1
  for (int i = 0; i < BYTES / 4 / 32; ++i)
    smem[i * 32 + threadIdx.x] = base + next[i / MATRICES] * (128 * MATRICES) + mine;
  __syncwarp();
  uint32_t at = base + mine, other[3] = {}, sum = 0;
  const long long t0 = window_open(window);
#pragma unroll 1
  for (int i = 0; i < loads; i += UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if constexpr (MATRICES == 1) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(at)::"memory");
      if constexpr (MATRICES == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%0];" : "+r"(at), "=r"(other[0])::"memory");
      if constexpr (MATRICES == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%0];"
                     : "+r"(at), "=r"(other[0]), "=r"(other[1]), "=r"(other[2])::"memory");
    }
    sum += other[0] + other[1] + other[2];
  }
  window_close(window, t0, elapsed);
  out[threadIdx.x] = (at - base - mine) / (128 * MATRICES);
  out[32 + threadIdx.x] = sum;
}

// ---------------------------------------------------------------- launcher

struct Buffers { uint32_t *next, *out; uint64_t* pointers; Elapsed* elapsed; };

// elements of the chain; lanes that report; launch(loads)
template <class F>
void measure(const Buffers& x, const char* part, const char* instruction, int elements, int lanes, int repeats, F launch) {
  auto next = random_cycle(elements, 7);
  CHECK(cudaMemcpy(x.next, next.data(), elements * 4, cudaMemcpyHostToDevice));
  for (int loads : {UNROLL, 3 * UNROLL}) {
    poison(x.out, 64 * 4);
    launch(loads);
    CHECK_LAUNCH();
    auto got = to_host(x.out, lanes);
    for (uint32_t at : got) require(at == walk(next, loads), std::string("smem_latency: ") + instruction);
  }
  const int loads = 8192;
  Timing t = time_ctas([&] { launch(loads); }, x.elapsed, 1, repeats);
  Json j("smem_latency");
  j.put("part", part).put("instruction", instruction).put("set_bytes", BYTES).put("loads", loads);
  j.put("cycles", median(t.cycles) / loads).put("repeats", repeats).put("spread", spread(t.cycles)).emit();
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 15);
  Buffers x{device_alloc<uint32_t>(BYTES / 4), device_alloc<uint32_t>(64), device_alloc<uint64_t>(BYTES / 8), device_alloc<Elapsed>(1)};
  warm_up_clock(0.1);
  measure(x, "shared", "ld.shared.u32", BYTES / 4, 1, repeats, [&](int n) { shared_kernel<<<1, 32>>>(x.next, x.out, n, x.elapsed); });
  measure(x, "l1", "ld.global.u64", BYTES / 8, 1, repeats,
          [&](int n) { l1_kernel<<<1, 32>>>(x.next, x.pointers, x.out, n, x.elapsed); });
  measure(x, "ldmatrix", "ldmatrix.x1", BYTES / 128, 32, repeats,
          [&](int n) { ldmatrix_kernel<1><<<1, 32>>>(x.next, x.out, n, x.elapsed); });
  measure(x, "ldmatrix", "ldmatrix.x2", BYTES / 256, 32, repeats,
          [&](int n) { ldmatrix_kernel<2><<<1, 32>>>(x.next, x.out, n, x.elapsed); });
  measure(x, "ldmatrix", "ldmatrix.x4", BYTES / 512, 32, repeats,
          [&](int n) { ldmatrix_kernel<4><<<1, 32>>>(x.next, x.out, n, x.elapsed); });
  return 0;
}
