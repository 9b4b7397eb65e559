/* dram_mix: R vectors read for W written, R:W from 1:0 over 7:1 .. 1:3 to 0:1: what a mix of reads and writes costs.
   Shapes     in: R streams of `vectors` 16-byte vectors, then out: W streams; windows of 1 and 2 GiB in all rotate through a
              pool far larger than L2
   Launch     grid SMs * 2, block 512
   On chip    smem 0 B (a few words for the sum of 1:0); registers as printed by ptxas (record .toml)
   Traffic    16 R B read + 16 W B written per vector, all DRAM; what a launch leaves dirty the next one evicts
   Work       R - 1 exclusive ors a word                     Bound  dram
   Checked    outputs poisoned, then every vector recomputed by a one-vector-a-thread loop, bit-exact, at sizes that do and do
              not divide the grid; 1:0 by an order-independent checksum
   Model      dram.bandwidth_* at each share of reads: marginal_bytes_per_s = slope of seconds over bytes, 1 to 2 GiB
   Reference  McCalpin, STREAM (1995)
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dram_mix.cu -o dram_mix
   Run        ./dram_mix --pool_mib 8192 --replays 9           one JSON line a point */
#include "../common/memory.cuh"
using namespace ts;

__device__ __forceinline__ void mix_in(uint4& a, uint4 b) { a.x ^= b.x; a.y ^= b.y; a.z ^= b.z; a.w ^= b.w; }
__device__ __forceinline__ uint4 vector_at(size_t i) {
  uint32_t x = (uint32_t)i * 2654435761u;
  return make_uint4(x, x ^ 0x5bd1e995u, ~x, x + 77u);
}
// What stream w gets when the reads of a vector give a.
__device__ __forceinline__ uint4 output(uint4 a, int w) { return make_uint4(a.x ^ (w * 0x9E3779B9u), a.y, a.z + w, a.w); }

__global__ void count_wrong(const uint4* in, const uint4* out, int reads, int writes, size_t vectors, u64* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 a = reads ? make_uint4(0, 0, 0, 0) : vector_at(i);
    for (int r = 0; r < reads; ++r) mix_in(a, in[i + r * vectors]);
    for (int w = 0; w < writes; ++w) {
      uint4 want = output(a, w), got = out[i + w * vectors];
      if (want.x != got.x || want.y != got.y || want.z != got.z || want.w != got.w) atomicAdd(wrong, 1ull);
    }
  }
}

template <int READS, int WRITES, int UNROLL>
__global__ void __launch_bounds__(512, 2) mix(const uint4* in, uint4* out, size_t vectors, u64* total) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  u64 sum = 0;
  auto finish = [&](uint4 a, size_t at) {
#pragma unroll
    for (int w = 0; w < WRITES; ++w) out[at + w * vectors] = output(a, w);
    if (WRITES == 0) sum += sum_words(a);
  };
  for (; i + (UNROLL - 1) * stride < vectors; i += UNROLL * stride) {
    uint4 v[UNROLL][READS ? READS : 1];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (READS == 0) v[u][0] = vector_at(i + u * stride);
#pragma unroll
      for (int r = 0; r < READS; ++r) v[u][r] = __ldcs(in + i + u * stride + r * vectors);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
      for (int r = 1; r < READS; ++r) mix_in(v[u][0], v[u][r]);
      finish(v[u][0], i + u * stride);
    }
  }
  for (; i < vectors; i += stride) {
    uint4 a = READS ? __ldcs(in + i) : vector_at(i);
    for (int r = 1; r < READS; ++r) mix_in(a, __ldcs(in + i + r * vectors));
    finish(a, i);
  }
  if (WRITES == 0) block_add(total, sum);
}

struct Pool { unsigned char* at; size_t bytes; u64* counters; };

template <int READS, int WRITES, int UNROLL>
void measure(const Pool& pool, int replays) {
  const int sms = sm_count();
  auto run = [&](uint4* at, size_t vectors, cudaStream_t stream) {
    mix<READS, WRITES, UNROLL><<<sms * 2, 512, 0, stream>>>(at, at + READS * vectors, vectors, pool.counters);
  };
  const size_t divides = (size_t)sms * 2 * 512 * UNROLL * 8, odd = (((size_t)96 << 20) / 16 / (READS + WRITES)) + 37;
  for (size_t vectors : {divides, odd}) {
    auto* at = (uint4*)pool.at;
    CHECK(cudaMemset(pool.counters, 0, 16));
    if (WRITES) poison(at + READS * vectors, WRITES * vectors * 16);
    run(at, vectors, 0);
    count_wrong<<<1056, 256>>>(at, at + READS * vectors, READS, WRITES, vectors, pool.counters + 1);
    CHECK_LAUNCH();
    auto seen = to_host(pool.counters, 2);
    require(seen[1] == 0, "dram_mix: every vector");
    if (WRITES == 0) require(seen[0] == checksum(at, vectors * 16) && seen[0] != 0, "dram_mix: sum");
  }
  double seconds_before = 0, bytes_before = 0;
  for (size_t mib : {1024, 2048}) {
    size_t vectors = (mib << 20) / 16 / (READS + WRITES), bytes = vectors * 16 * (READS + WRITES);
    size_t windows = pool.bytes / bytes, next = 0;
    auto t = time_graph([&](cudaStream_t s) { run((uint4*)(pool.at + (next++ % windows) * bytes), vectors, s); }, (int)windows,
                        replays, 1);
    Json j("dram_mix");
    j.put("reads", READS).put("writes", WRITES).put("bytes", bytes).put("seconds", median(t)).put("bytes_per_s", bytes / median(t));
    if (bytes_before > 0) j.put("marginal_bytes_per_s", (bytes - bytes_before) / (median(t) - seconds_before));
    j.put("spread", spread(t)).put("repeats", replays).emit();
    seconds_before = median(t);
    bytes_before = (double)bytes;
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  Pool pool{nullptr, (size_t)args.get("--pool_mib", 8192) << 20, device_alloc<u64>(2)};
  int replays = args.get("--replays", 9);
  require(pool.bytes >= (size_t)4096 << 20, "dram_mix: --pool_mib of at least 4096, two windows of 2 GiB");
  pool.at = device_alloc<unsigned char>(pool.bytes);
  fill_words(pool.at, pool.bytes, 6);
  warm_up_clock(0.1);
  measure<1, 0, 8>(pool, replays);
  measure<7, 1, 1>(pool, replays);
  measure<3, 1, 2>(pool, replays);
  measure<2, 1, 4>(pool, replays);
  measure<1, 1, 8>(pool, replays);
  measure<1, 2, 4>(pool, replays);
  measure<1, 3, 4>(pool, replays);
  measure<0, 1, 4>(pool, replays);
  return 0;
}
