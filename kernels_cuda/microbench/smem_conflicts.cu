/* smem_conflicts: cycles of a warp-wide shared-memory load against the distance between lanes, i.e. n-way bank conflicts.
   Shapes     32 KiB of random words; lane l loads 4, 8 or 16 bytes at l * stride elements of that width
   Launch     grid 1, block 32 * warps, no cluster
   On chip    static smem 32 KiB; registers as printed by ptxas (record .toml)
   Traffic    32 * width bytes an access in shared memory; stride 0: one element for all lanes
   Work       one addition a word                             Bound  smem
   Model      sm: an access takes as many cycles as its fullest bank has different words. 8-byte loads go in two halves of
              16 lanes, 16-byte loads in four quarters of 8: column wavefronts_model
   Checked    sum of the words of every thread, exact
   Reference  CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and newer
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v smem_conflicts.cu -o smem_conflicts
   Run        ./smem_conflicts --repeats 9                     one JSON line a point */
#include <set>

#include "../common/cta_window.cuh"
using namespace ts;

constexpr int UNROLL = 8, SMEM_WORDS = 8192;

// ---------------------------------------------------------------- host reference

// First word of lane l in unrolled access u of step s. All lanes shift together: the pattern of banks stays.
__host__ __device__ inline int first_word(int words, int stride, int lane, int u, int s) {
  return lane * stride * words + u * 4 + s % 8 * 64;
}
bool right(int words, int stride, const std::vector<uint32_t>& in, const std::vector<uint32_t>& got, int threads, int steps) {
  for (int t = 0; t < threads; ++t) {
    uint32_t want = 0;
    for (int s = 0; s < steps; ++s)
      for (int u = 0; u < UNROLL; ++u)
        for (int j = 0; j < words; ++j) want += in[first_word(words, stride, t % 32, u, s) + j];
    if (got[t] != want) return false;
  }
  return true;
}
int wavefronts(int words, int stride) {
  int total = 0;
  for (int part = 0; part < words; ++part) {  // 32 / words lanes each: 128 bytes
    std::set<int> bank[32];
    for (int lane = part * 32 / words; lane < (part + 1) * 32 / words; ++lane)
      for (int j = 0; j < words; ++j) {
        int word = first_word(words, stride, lane, 0, 0) + j;
        bank[word % 32].insert(word);
      }
    size_t most = 0;
    for (auto& b : bank) most = std::max(most, b.size());
    total += (int)most;
  }
  return total;
}

// ---------------------------------------------------------------- kernel

template <int WORDS>
__global__ void __launch_bounds__(1024) conflict_kernel(const uint32_t* in, uint32_t* out, int stride, int steps, Elapsed* elapsed) {
  __shared__ __align__(1024) uint32_t smem[SMEM_WORDS];
  __shared__ CtaWindow window;
  for (int i = threadIdx.x; i < SMEM_WORDS; i += blockDim.x) smem[i] = in[i];
  const uint32_t base = smem_u32(smem) + first_word(WORDS, stride, threadIdx.x % 32, 0, 0) * 4;
  uint32_t sum = 0;
  const long long t0 = window_open(window);
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const uint32_t at = base + s % 8 * 256;
    uint32_t r[UNROLL][WORDS];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if constexpr (WORDS == 1) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r[u][0]) : "r"(at + u * 16) : "memory");
      if constexpr (WORDS == 2)
        asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r[u][0]), "=r"(r[u][1]) : "r"(at + u * 16) : "memory");
      if constexpr (WORDS == 4)
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[u][0]), "=r"(r[u][1]), "=r"(r[u][2]), "=r"(r[u][3]) : "r"(at + u * 16) : "memory");
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int j = 0; j < WORDS; ++j) sum += r[u][j];
  }
  window_close(window, t0, elapsed);
  out[threadIdx.x] = sum;
}

// ---------------------------------------------------------------- launcher

struct Buffers { uint32_t *in, *out; Elapsed* elapsed; };

template <int WORDS> void measure(const Buffers& x, int repeats) {
  auto kernel = conflict_kernel<WORDS>;
  for (int warps : {4, 16})
    for (int stride : {0, 1, 2, 3, 4, 8, 16, 32, 33}) {
      require(first_word(WORDS, stride, 31, UNROLL - 1, 7) + WORDS <= SMEM_WORDS, "smem_conflicts: the pattern fits");
      for (int steps : {1, 11}) {
        poison(x.out, 1024 * 4);
        kernel<<<1, 32 * warps>>>(x.in, x.out, stride, steps, x.elapsed);
        CHECK_LAUNCH();
        require(right(WORDS, stride, to_host(x.in, SMEM_WORDS), to_host(x.out, 1024), 32 * warps, steps),
                "smem_conflicts: " + std::to_string(4 * WORDS) + " bytes, stride " + std::to_string(stride));
      }
      const int steps = 200;
      Timing t = time_ctas([&] { kernel<<<1, 32 * warps>>>(x.in, x.out, stride, steps, x.elapsed); }, x.elapsed, 1, repeats);
      double cycles_per_access = median(t.cycles) / ((double)steps * UNROLL * warps);
      Json j("smem_conflicts");
      j.put("bytes_per_thread", 4 * WORDS).put("stride_elements", stride).put("stride_words", stride * WORDS).put("warps", warps);
      j.put("wavefronts_model", wavefronts(WORDS, stride)).put("cycles_per_access", cycles_per_access);
      j.put("bytes_per_cycle", 128.0 * WORDS / cycles_per_access).put("repeats", repeats).put("spread", spread(t.cycles)).emit();
    }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9);
  Buffers x{device_alloc<uint32_t>(SMEM_WORDS), device_alloc<uint32_t>(1024), device_alloc<Elapsed>(1)};
  fill_words(x.in, SMEM_WORDS * 4, 1);
  warm_up_clock(0.1);
  measure<1>(x, repeats);
  measure<2>(x, repeats);
  measure<4>(x, repeats);
  return 0;
}
