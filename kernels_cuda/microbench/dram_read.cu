/* dram_read: every word of `bytes` is read once and added; a launch reads a window of a buffer far larger than L2.
   Shapes     in: `pool` bytes of random words; windows of 64 MiB..2 GiB rotate through it, so nothing read is in L2
   Launch     loads: grid SMs * ctas, block 512; bulk: grid SMs * ctas, block 256, ring of `stages` chunks
   On chip    loads: none; bulk: stages * chunk bytes dynamic; registers as printed by ptxas (record .toml)
   Traffic    4 B read per word from DRAM, one 8-byte atomic a CTA
   Work       one integer addition a word                     Bound  dram
   Checked    the sum of every launch against an order-independent checksum of the same window
   Model      dram.bandwidth_sustained_bytes_per_s (read): slope of seconds over bytes; intercept = launch + ramp
   Reference  McCalpin, STREAM (1995)
   Targets    sm_90a sm_100a sm_103a (sm_120a: rings of up to 192 KiB of shared memory; others: no bulk copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dram_read.cu -o dram_read
   Run        ./dram_read --pool_mib 8192 --replays 7          one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

template <int UNROLL>
__global__ void __launch_bounds__(512) read_loads(const uint4* in, size_t vectors, u64* total) {
  u64 sum = 0;
  size_t stride = (size_t)gridDim.x * blockDim.x;
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  for (; i + (UNROLL - 1) * stride < vectors; i += UNROLL * stride) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = __ldcs(in + i + u * stride);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
  }
  for (; i < vectors; i += stride) {
    uint4 v = __ldcs(in + i);
    sum += sum_words(v);
  }
  block_add(total, sum);
}

// Chunk c of CTA b is b + c * grid: the chip walks the window front to back.
__global__ void __launch_bounds__(256) read_bulk(const unsigned char* in, size_t bytes, int chunk, int stages, u64* total) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ uint64_t full[16];
  size_t chunks = bytes / chunk;
  size_t mine = blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  auto issue = [&](size_t c) {
    int s = (int)(c % stages);
    mbar_expect(smem_u32(&full[s]), chunk);
    bulk_load(smem_u32(smem + s * chunk), in + (blockIdx.x + c * gridDim.x) * (size_t)chunk, chunk, smem_u32(&full[s]));
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) mbar_init(smem_u32(&full[s]), 1);
    mbar_init_fence();
    for (size_t c = 0; c < (size_t)stages && c < mine; ++c) issue(c);
  }
  __syncthreads();
  u64 sum = 0;
  for (size_t c = 0; c < mine; ++c) {
    int s = (int)(c % stages);
    mbar_wait(smem_u32(&full[s]), (c / stages) & 1);
    const uint4* p = (const uint4*)(smem + s * chunk);
    for (int i = threadIdx.x; i < chunk / 16; i += blockDim.x) {
      uint4 v = p[i];
      sum += sum_words(v);
    }
    __syncthreads();  // the slot is free
    if (threadIdx.x == 0 && c + stages < mine) issue(c + stages);
  }
  block_add(total, sum);
}

struct Variant { const char* method; int ctas, unroll, chunk, stages; };

int main(int argc, char** argv) {
  Args args(argc, argv);
  size_t pool = (size_t)args.get("--pool_mib", 8192) << 20;
  int replays = args.get("--replays", 7), sms = sm_count();
  auto* in = device_alloc<unsigned char>(pool);
  auto* total = device_alloc<u64>(1);
  fill_words(in, pool, 1);
  allow_smem(read_bulk, 200 * 1024);
  u64 whole = checksum(in, pool);
  warm_up_clock();
  const Variant variants[] = {{"loads", 2, 4, 0, 0}, {"loads", 4, 4, 0, 0}, {"loads", 4, 8, 0, 0}, {"bulk", 1, 0, 16384, 6},
                              {"bulk", 1, 0, 16384, 12}, {"bulk", 1, 0, 32768, 6}, {"bulk", 2, 0, 16384, 6}, {"bulk", 4, 0, 8192, 6}};
  for (const Variant& v : variants) {
    for (size_t mib : {64, 128, 256, 512, 1024, 2048}) {
      size_t bytes = mib << 20, windows = pool / bytes;
      size_t next = 0;
      auto launch = [&](cudaStream_t stream) {
        const unsigned char* window = in + (next++ % windows) * bytes;
        if (v.method[0] == 'b')
          read_bulk<<<sms * v.ctas, 256, v.chunk * v.stages, stream>>>(window, bytes, v.chunk, v.stages, total);
        else if (v.unroll == 4)
          read_loads<4><<<sms * v.ctas, 512, 0, stream>>>((const uint4*)window, bytes / 16, total);
        else
          read_loads<8><<<sms * v.ctas, 512, 0, stream>>>((const uint4*)window, bytes / 16, total);
      };
      CHECK(cudaMemset(total, 0, 8));
      for (size_t w = 0; w < windows; ++w) launch(0);
      CHECK_LAUNCH();
      require(to_host(total, 1)[0] == whole, "dram_read: sum of all windows");
      auto t = time_graph(launch, (int)windows, replays, 1);
      Json j("dram_read");
      j.put("method", v.method).put("ctas_per_sm", v.ctas).put("unroll", v.unroll).put("chunk_bytes", v.chunk);
      j.put("stages", v.stages).put("bytes", bytes).put("seconds", median(t)).put("bytes_per_s", bytes / median(t));
      j.put("spread", spread(t)).emit();
    }
  }
  // Odd sizes: the sum must still be right when the window divides neither grid nor ring.
  size_t odd = (100 << 20) + 3 * 16384;
  CHECK(cudaMemset(total, 0, 8));
  read_loads<8><<<sms, 512>>>((const uint4*)in, odd / 16, total);
  require(to_host(total, 1)[0] == checksum(in, odd), "dram_read: loads, odd size");
  CHECK(cudaMemset(total, 0, 8));
  read_bulk<<<sms, 256, 5 * 16384>>>(in, odd, 16384, 5, total);
  require(to_host(total, 1)[0] == checksum(in, odd), "dram_read: bulk, odd size");
  return 0;
}
