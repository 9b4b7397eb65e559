/* dram_copy: out[i] = in0[i] ^ ... ^ in(R-1)[i], R vectors read for one written: R = 1 is the copy, 8 nearly a read.
   Shapes     in: R streams of `vectors` 16-byte vectors; out: one; all contiguous in a pool far larger than L2
   Launch     grid SMs * ctas, block 512
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    16 R B read + 16 B written per vector, all DRAM; windows rotate, so nothing read is in L2
   Work       R - 1 exclusive ors a word                     Bound  dram
   Checked    outputs poisoned, then every vector recomputed by a one-vector-a-thread loop, bit-exact
   Model      dram.bandwidth_sustained_bytes_per_s (mixed): slope of seconds over total bytes at each share of writes
   Reference  McCalpin, STREAM (1995)
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dram_copy.cu -o dram_copy
   Run        ./dram_copy --pool_mib 8192 --replays 7          one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;

__device__ __forceinline__ void mix(uint4& a, uint4 b) { a.x ^= b.x; a.y ^= b.y; a.z ^= b.z; a.w ^= b.w; }

template <int READS>
__global__ void count_wrong(const uint4* in, const uint4* out, size_t vectors, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 a = make_uint4(0, 0, 0, 0), b = out[i];
    for (int r = 0; r < READS; ++r) mix(a, in[i + r * vectors]);
    if (a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w) atomicAdd(wrong, 1ull);
  }
}

template <int READS, int UNROLL>
__global__ void __launch_bounds__(512) copy(const uint4* in, uint4* out, size_t vectors) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  for (; i + (UNROLL - 1) * stride < vectors; i += UNROLL * stride) {
    uint4 v[UNROLL][READS];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int r = 0; r < READS; ++r) v[u][r] = __ldcs(in + i + u * stride + r * vectors);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
      for (int r = 1; r < READS; ++r) mix(v[u][0], v[u][r]);
      out[i + u * stride] = v[u][0];
    }
  }
  for (; i < vectors; i += stride) {
    uint4 a = in[i];
    for (int r = 1; r < READS; ++r) mix(a, in[i + r * vectors]);
    out[i] = a;
  }
}

template <int READS, int UNROLL>
void measure(unsigned char* pool, size_t pool_bytes, int ctas, int replays, unsigned long long* wrong) {
  int sms = sm_count();
  size_t odd = (((size_t)64 << 20) / 16 / READS) + 37;
  auto* at = (uint4*)pool;
  poison(at + READS * odd, odd * 16);
  CHECK(cudaMemset(wrong, 0, 8));
  copy<READS, UNROLL><<<sms * ctas, 512>>>(at, at + READS * odd, odd);
  count_wrong<READS><<<1056, 256>>>(at, at + READS * odd, odd, wrong);
  CHECK_LAUNCH();
  require(to_host(wrong, 1)[0] == 0, "dram_copy: every vector");
  for (size_t mib : {64, 128, 256, 512, 1024, 2048}) {
    size_t vectors = (mib << 20) / 16 / (READS + 1), bytes = vectors * 16 * (READS + 1);
    size_t windows = pool_bytes / bytes, next = 0;
    auto launch = [&](cudaStream_t stream) {
      auto* in = (uint4*)(pool + (next++ % windows) * bytes);
      copy<READS, UNROLL><<<sms * ctas, 512, 0, stream>>>(in, in + READS * vectors, vectors);
    };
    auto t = time_graph(launch, (int)windows, replays, 1);
    Json j("dram_copy");
    j.put("reads_per_write", READS).put("ctas_per_sm", ctas).put("unroll", UNROLL).put("bytes", bytes);
    j.put("seconds", median(t)).put("bytes_per_s", bytes / median(t)).put("spread", spread(t)).emit();
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  size_t pool_bytes = (size_t)args.get("--pool_mib", 8192) << 20;
  int replays = args.get("--replays", 7);
  auto* pool = device_alloc<unsigned char>(pool_bytes);
  auto* wrong = device_alloc<unsigned long long>(1);
  fill_words(pool, pool_bytes, 2);
  warm_up_clock();
  measure<1, 1>(pool, pool_bytes, 4, replays, wrong);
  measure<1, 4>(pool, pool_bytes, 4, replays, wrong);
  measure<1, 8>(pool, pool_bytes, 2, replays, wrong);
  measure<2, 4>(pool, pool_bytes, 2, replays, wrong);
  measure<4, 2>(pool, pool_bytes, 2, replays, wrong);
  measure<8, 1>(pool, pool_bytes, 2, replays, wrong);
  return 0;
}
