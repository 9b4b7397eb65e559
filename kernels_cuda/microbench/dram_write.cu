/* dram_write: out[i] = hash of the vector index, with 16-byte stores, or bulk stores of a chunk in shared memory.
   Shapes     out: windows of 64 MiB..2 GiB that rotate through a pool far larger than L2
   Launch     stores: grid SMs * ctas, block 512; bulk: grid SMs * ctas, block 128, one chunk in shared memory
   On chip    stores: none; bulk: chunk bytes dynamic; registers as printed by ptxas (record .toml)
   Traffic    4 B written per word to DRAM; what a launch leaves dirty in L2 is evicted by the next one
   Work       one multiplication a vector                     Bound  dram
   Checked    outputs poisoned, then every word against its formula on the device, count of wrong words zero
   Model      dram.bandwidth_sustained_bytes_per_s (write): slope of seconds over bytes
   Reference  McCalpin, STREAM (1995)
   Targets    sm_90a sm_100a sm_103a (sm_120a: 128 KiB of shared memory; others: no bulk copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dram_write.cu -o dram_write
   Run        ./dram_write --pool_mib 8192 --replays 7         one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;

__host__ __device__ inline uint4 vector_at(size_t i) {
  uint32_t x = (uint32_t)i * 2654435761u;
  return make_uint4(x, x ^ 0x5bd1e995u, ~x, x + 77u);
}
// Wrong words of out, where vector i must be vector_at(i % period).
__global__ void count_wrong(const uint4* out, size_t vectors, size_t period, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 a = out[i], b = vector_at(i % period);
    if (a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w) atomicAdd(wrong, 1ull);
  }
}

template <int UNROLL>
__global__ void __launch_bounds__(512) write_stores(uint4* out, size_t vectors) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  for (; i + (UNROLL - 1) * stride < vectors; i += UNROLL * stride)
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) out[i + u * stride] = vector_at(i + u * stride);
  for (; i < vectors; i += stride) out[i] = vector_at(i);
}

__global__ void __launch_bounds__(128) write_bulk(unsigned char* out, size_t bytes, int chunk) {
  extern __shared__ __align__(128) unsigned char smem[];
  for (int i = threadIdx.x; i < chunk / 16; i += blockDim.x) ((uint4*)smem)[i] = vector_at(i);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x) return;
  for (size_t c = blockIdx.x; c < bytes / chunk; c += gridDim.x) {
    bulk_store(out + c * (size_t)chunk, smem_u32(smem), chunk);
    bulk_commit();
    bulk_wait_read<8>();
  }
  bulk_wait<0>();
}

struct Variant { const char* method; int ctas, unroll, chunk; };

int main(int argc, char** argv) {
  Args args(argc, argv);
  size_t pool = (size_t)args.get("--pool_mib", 8192) << 20;
  int replays = args.get("--replays", 7), sms = sm_count();
  auto* out = device_alloc<unsigned char>(pool);
  auto* wrong = device_alloc<unsigned long long>(1);
  allow_smem(write_bulk, 128 * 1024);
  warm_up_clock();
  const Variant variants[] = {{"stores", 2, 4, 0}, {"stores", 4, 4, 0}, {"stores", 4, 1, 0}, {"bulk", 1, 0, 16384}, {"bulk", 2, 0, 32768}};
  for (const Variant& v : variants) {
    auto run = [&](unsigned char* window, size_t bytes, cudaStream_t stream) {
      if (v.method[0] == 'b') write_bulk<<<sms * v.ctas, 128, v.chunk, stream>>>(window, bytes, v.chunk);
      else if (v.unroll == 4) write_stores<4><<<sms * v.ctas, 512, 0, stream>>>((uint4*)window, bytes / 16);
      else write_stores<1><<<sms * v.ctas, 512, 0, stream>>>((uint4*)window, bytes / 16);
    };
    for (size_t bytes : {(size_t)256 << 20, ((size_t)100 << 20) + 3 * 32768}) {
      poison(out, bytes);
      CHECK(cudaMemset(wrong, 0, 8));
      run(out, bytes, 0);
      size_t period = v.method[0] == 'b' ? v.chunk / 16 : bytes / 16;
      count_wrong<<<1056, 256>>>((const uint4*)out, bytes / 16, period, wrong);
      CHECK_LAUNCH();
      require(to_host(wrong, 1)[0] == 0, "dram_write: every word");
    }
    for (size_t mib : {64, 128, 256, 512, 1024, 2048}) {
      size_t bytes = mib << 20, windows = pool / bytes, next = 0;
      auto t = time_graph([&](cudaStream_t stream) { run(out + (next++ % windows) * bytes, bytes, stream); }, (int)windows, replays, 1);
      Json j("dram_write");
      j.put("method", v.method).put("ctas_per_sm", v.ctas).put("unroll", v.unroll).put("chunk_bytes", v.chunk);
      j.put("bytes", bytes).put("seconds", median(t)).put("bytes_per_s", bytes / median(t)).put("spread", spread(t)).emit();
    }
  }
  return 0;
}
