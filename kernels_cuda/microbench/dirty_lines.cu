/* dirty_lines: one launch between two events, with L2 full of dirty lines, full of clean lines, or holding the operands.
   Shapes     in: `bytes` read by the timed kernel, 0 (empty kernel) and 0.06..1024 MiB; flush buffer 512 MiB
   Launch     empty: 1 and SMs CTAs; code_N: N of straight instructions on SMs CTAs, block 128; read: grid SMs * 4, block 256, 16-byte loads
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    `bytes` from DRAM plus the dirty bytes that its lines push out
   Work       one addition a word                             Bound  event and launch, then dram
   Before     dirty: a 512 MiB memset; dirty_kernel: the same bytes by a kernel's stores; clean: a 512 MiB read;
              clean_after_dirty: memset, then the read; warm: the timed kernel itself; each then 20 us of one spinning CTA,
              so that the host has queued everything before the first event (--gap_us 0 leaves it out)
   Checked    the sum of the timed launch against an order-independent checksum
   Model      protocol of cold tables: event + launch cost, dirty bytes in the DRAM floor
   Reference  none
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dirty_lines.cu -o dirty_lines
   Run        ./dirty_lines --repeats 15                       one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

__global__ void empty() {}
__global__ void wait_cycles(long long limit) {
  long long start = cycles();
  while (cycles() - start < limit) {}
}
__global__ void __launch_bounds__(256) read_all(const uint4* in, size_t vectors, u64* total) {
  u64 sum = 0;
  constexpr int UNROLL = 8;
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += UNROLL * stride) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = i + u * stride < vectors ? __ldcg(in + i + u * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
  }
  block_add(total, sum);
}
// KIB of straight code (one 16-byte instruction an addition, in a chain), run once: what fetching instructions costs.
template <int KIB>
__global__ void straight_code(float* out, float step) {
  float x = threadIdx.x;
#pragma unroll
  for (int i = 0; i < KIB * 64; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(step));
  if (x == 12345.0f) out[0] = x;
}
__global__ void write_all(uint4* out, size_t vectors, uint32_t value) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += stride)
    out[i] = make_uint4(value, value + 1, value + 2, (uint32_t)i);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int repeats = args.get("--repeats", 15), sms = sm_count(), gap_us = args.get("--gap_us", 20);
  size_t flush_bytes = (size_t)512 << 20, most = (size_t)1024 << 20;
  auto* in = device_alloc<unsigned char>(most);
  auto* flush = device_alloc<unsigned char>(flush_bytes);
  auto* total = device_alloc<u64>(2);
  fill_words(in, most, 5);
  warm_up_clock();
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));

  auto prepare = [&](const std::string& state) {
    if (state == "dirty" || state == "clean_after_dirty") CHECK(cudaMemsetAsync(flush, 0x5A, flush_bytes));
    if (state == "dirty_kernel") write_all<<<sms * 4, 256>>>((uint4*)flush, flush_bytes / 16, 7);
    if (state == "clean" || state == "clean_after_dirty") read_all<<<sms * 4, 256>>>((const uint4*)flush, flush_bytes / 16, total + 1);
  };
  // kernel: "none" (two events alone), "empty", "empty_full" (one CTA an SM), "read"
  auto measure = [&](const std::string& kernel, const std::string& state, size_t bytes, int gap) {
    auto run = [&] {
      if (kernel == "empty") empty<<<1, 32>>>();
      if (kernel == "empty_full") empty<<<sms, 256>>>();
      if (kernel == "code_4KiB") straight_code<4><<<sms, 128>>>((float*)flush, 0.25f);
      if (kernel == "code_16KiB") straight_code<16><<<sms, 128>>>((float*)flush, 0.25f);
      if (kernel == "code_64KiB") straight_code<64><<<sms, 128>>>((float*)flush, 0.25f);
      if (kernel == "read") read_all<<<sms * 4, 256>>>((const uint4*)in, bytes / 16, total);
    };
    if (kernel == "read") {
      CHECK(cudaMemset(total, 0, 8));
      run();
      require(to_host(total, 1)[0] == checksum(in, bytes), "dirty_lines: sum");
    }
    std::vector<float> t;
    for (int i = 0; i < repeats + 2; ++i) {
      prepare(state);
      if (state == "warm") run();
      if (gap) wait_cycles<<<1, 1>>>(gap * 1980ll);
      CHECK(cudaEventRecord(a));
      run();
      CHECK(cudaEventRecord(b));
      CHECK_LAUNCH();
      CHECK(cudaEventSynchronize(b));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, a, b));
      if (i >= 2) t.push_back(ms * 1e-3f);
    }
    Json j("dirty_lines");
    j.put("kernel", kernel).put("state", state).put("gap_us", gap).put("bytes", bytes).put("seconds", median(t));
    j.put("spread", spread(t)).emit();
  };

  for (const char* state : {"warm", "clean", "dirty", "dirty_kernel", "clean_after_dirty"})
    for (int gap : {0, gap_us}) {
      for (const char* kernel : {"none", "empty", "empty_full", "code_4KiB", "code_16KiB", "code_64KiB"}) measure(kernel, state, 0, gap);
      if (gap) continue;
      for (double mib : {0.5, 2.0, 16.0, 64.0}) measure("read", state, (size_t)(mib * (1 << 20)), gap);
    }
  for (const char* state : {"warm", "clean", "dirty", "dirty_kernel", "clean_after_dirty"})
    for (double mib : {0.0625, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 200.0, 400.0, 1024.0})
      measure("read", state, (size_t)(mib * (1 << 20)), gap_us);
  return 0;
}
