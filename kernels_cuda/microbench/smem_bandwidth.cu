/* smem_bandwidth: bytes per cycle of an SM's shared memory by instruction and warps, without bank conflicts.
   Shapes     32 KiB of random words (loads), 2 KiB a warp (stores); an access is 32 consecutive elements of 4, 8 or 16 bytes, or
              one, two or four 8 x 8 matrices of 16-byte rows (ldmatrix, stmatrix)
   Launch     grid 1, block 32 * warps, no cluster
   On chip    dynamic smem 64 KiB; registers as printed by ptxas (record .toml)
   Traffic    32 * width bytes an access in shared memory; no global memory in the loop
   Work       one addition a word loaded                      Bound  smem; with few warps latency
   Checked    loads: sum of the words of every thread; stores: every word of shared memory afterwards; both exact
   Model      sm.smem_bandwidth_bytes_per_cycle: the largest value
   Reference  CUDA C++ Programming Guide, "Shared Memory"; PTX ISA, ldmatrix, stmatrix
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v smem_bandwidth.cu -o smem_bandwidth
   Run        ./smem_bandwidth --repeats 9                     one JSON line a point */
#include "../common/cta_window.cuh"
using namespace ts;

enum Access { LOAD4, LOAD8, LOAD16, LDMATRIX1, LDMATRIX2, LDMATRIX4, STORE4, STORE8, STORE16, STMATRIX1, STMATRIX2, STMATRIX4 };
const char* const INSTRUCTION[] = {"ld.shared", "ld.shared", "ld.shared", "ldmatrix.x1", "ldmatrix.x2", "ldmatrix.x4",
                                   "st.shared", "st.shared", "st.shared", "stmatrix.x1", "stmatrix.x2", "stmatrix.x4"};
constexpr int UNROLL = 16, SMEM_WORDS = 16384, LOAD_WORDS = 8192, BLOCK_WORDS = 2048, WARP_WORDS = 512;
__host__ __device__ constexpr int words_of(int access) { return 1 << access % 3; }  // of a thread, or matrices
__host__ __device__ constexpr bool is_matrix(int access) { return access % 6 >= 3; }
__host__ __device__ constexpr bool is_store(int access) { return access >= STORE4; }

// ---------------------------------------------------------------- host reference

// Word j of lane l, counted from the start of the access: vectors lie behind each other, matrices too (l / 4 is the row).
int word_at(int access, int lane, int j) { return is_matrix(access) ? 32 * j + lane : lane * words_of(access) + j; }

bool sums_right(int access, const std::vector<uint32_t>& in, const std::vector<uint32_t>& got, int warps, int steps) {
  for (int t = 0; t < 32 * warps; ++t) {
    uint32_t want = 0;
    for (int s = 0; s < steps; ++s)
      for (int u = 0; u < UNROLL; ++u)
        for (int j = 0; j < words_of(access); ++j)
          want += in[(t / 32 + s) % 4 * BLOCK_WORDS + u * 32 * words_of(access) + word_at(access, t % 32, j)];
    if (got[t] != want) return false;
  }
  return true;
}
bool stores_right(int access, const std::vector<uint32_t>& got, int warps, int steps) {
  for (int t = 0; t < 32 * warps; ++t)
    for (int slot = 0; slot < 4; ++slot)
      for (int j = 0; j < words_of(access); ++j)
        if (got[t / 32 * WARP_WORDS + slot * 128 + word_at(access, t % 32, j)] != hash32(4 * t + j) + steps - 1) return false;
  return true;
}

// ---------------------------------------------------------------- kernel

template <int ACCESS> __device__ __forceinline__ void load(uint32_t* r, uint32_t at) {
  if (ACCESS == LOAD4) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  if (ACCESS == LOAD8) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
  if (ACCESS == LOAD16)
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  if (ACCESS == LDMATRIX1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  if (ACCESS == LDMATRIX2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
  if (ACCESS == LDMATRIX4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
template <int ACCESS> __device__ __forceinline__ void store(uint32_t at, const uint32_t* r) {
  if (ACCESS == STORE4) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(r[0]) : "memory");
  if (ACCESS == STORE8) asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(r[0]), "r"(r[1]) : "memory");
  if (ACCESS == STORE16)
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
#if __CUDA_ARCH__ >= 900
  if (ACCESS == STMATRIX1)
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(at), "r"(r[0]) : "memory");
  if (ACCESS == STMATRIX2)
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(r[0]), "r"(r[1]) : "memory");
  if (ACCESS == STMATRIX4)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]),
                 "r"(r[3]) : "memory");
#endif
}

// out: sum of every thread (loads) or all of shared memory (stores)
template <int ACCESS>
__global__ void __launch_bounds__(1024) smem_kernel(const uint32_t* in, uint32_t* out, int steps, Elapsed* elapsed) {
  extern __shared__ __align__(1024) uint32_t smem[];
  __shared__ CtaWindow window;
  constexpr int WORDS = words_of(ACCESS);
  for (int i = threadIdx.x; i < SMEM_WORDS; i += blockDim.x) smem[i] = in[i];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // A lane's element, or the 16-byte row whose address it gives (lanes beyond the last matrix repeat rows).
  const uint32_t mine = is_matrix(ACCESS) ? lane % (8 * WORDS) * 16 : lane * WORDS * 4;
  const uint32_t base = smem_u32(smem) + mine + (is_store(ACCESS) ? warp * WARP_WORDS * 4 : 0);
  uint32_t sum = 0, value[4];
  for (int j = 0; j < 4; ++j) value[j] = hash32(4 * threadIdx.x + j);
  const long long t0 = window_open(window);
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    if (is_store(ACCESS)) {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) store<ACCESS>(base + (u + s) % 4 * 512, value);
#pragma unroll
      for (int j = 0; j < WORDS; ++j) ++value[j];
    } else {
      const uint32_t at = base + (warp + s) % 4 * (BLOCK_WORDS * 4);
      uint32_t r[UNROLL][4];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) load<ACCESS>(r[u], at + u * 128 * WORDS);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
#pragma unroll
        for (int j = 0; j < WORDS; ++j) sum += r[u][j];
    }
  }
  window_close(window, t0, elapsed);
  if (is_store(ACCESS))
    for (int i = threadIdx.x; i < SMEM_WORDS; i += blockDim.x) out[i] = smem[i];
  else
    out[threadIdx.x] = sum;
}

// ---------------------------------------------------------------- launcher

struct Buffers { uint32_t *in, *out; Elapsed* elapsed; };

template <int ACCESS> void measure(const Buffers& x, int repeats) {
  constexpr size_t SMEM = SMEM_WORDS * 4;
  auto kernel = smem_kernel<ACCESS>;
  allow_smem(kernel, SMEM);
  for (int warps : {4, 8, 16, 32}) {
    auto launch = [&](int steps) {
      kernel<<<1, 32 * warps, SMEM>>>(x.in, x.out, steps, x.elapsed);
      CHECK_LAUNCH();
    };
    for (int steps : {1, 7}) {
      poison(x.out, SMEM);
      launch(steps);
      auto got = to_host(x.out, SMEM_WORDS);
      require(is_store(ACCESS) ? stores_right(ACCESS, got, warps, steps)
                               : sums_right(ACCESS, to_host(x.in, LOAD_WORDS), got, warps, steps),
              std::string("smem_bandwidth: ") + INSTRUCTION[ACCESS] + ", " + std::to_string(words_of(ACCESS)) + " words");
    }
    const int steps = 400;
    Timing t = time_ctas([&] { launch(steps); }, x.elapsed, 1, repeats);
    double accesses = (double)steps * UNROLL * warps;
    Json j("smem_bandwidth");
    j.put("part", is_store(ACCESS) ? "store" : "load").put("instruction", INSTRUCTION[ACCESS]);
    j.put("bytes_per_thread", 4 * words_of(ACCESS)).put("warps", warps);
    j.put("bytes_per_cycle", accesses * 128 * words_of(ACCESS) / median(t.cycles));
    j.put("cycles_per_access", median(t.cycles) / accesses).put("repeats", repeats).put("spread", spread(t.cycles)).emit();
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9);
  Buffers x{device_alloc<uint32_t>(SMEM_WORDS), device_alloc<uint32_t>(SMEM_WORDS), device_alloc<Elapsed>(1)};
  fill_words(x.in, SMEM_WORDS * 4, 1);
  warm_up_clock(0.1);
  measure<LOAD4>(x, repeats);
  measure<LOAD8>(x, repeats);
  measure<LOAD16>(x, repeats);
  measure<LDMATRIX1>(x, repeats);
  measure<LDMATRIX2>(x, repeats);
  measure<LDMATRIX4>(x, repeats);
  measure<STORE4>(x, repeats);
  measure<STORE8>(x, repeats);
  measure<STORE16>(x, repeats);
  if (compute_capability() < 90) return 0;
  measure<STMATRIX1>(x, repeats);
  measure<STMATRIX2>(x, repeats);
  measure<STMATRIX4>(x, repeats);
  return 0;
}
