/* launch_reduction: the second kernel of a split product: out[i] = bf16(sum over s of partial[s][i]) right after the kernel
   that wrote the partial sums.
   Shapes     partial: (split, elements) float, split = 2, 4, 8; out: (elements) bf16; elements = 16 Ki .. 16 Mi
   Launch     write: grid SMs * 4, block 256; reduce: grid ceil(elements / 1024), block 256, 4 elements a thread
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    write: 4 B split elements; reduce: 4 B split elements read (from L2 while it holds them) + 2 B elements written
   Work       split - 1 additions an element                  Bound  launch, l2, dram
   Checked    out poisoned, then every element against the same sum recomputed from its formula, bit-exact
   Model      split products: T_reduce = launch + bytes / rate; pairs minus the writer alone
   Reference  none
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v launch_reduction.cu -o launch_reduction
   Run        ./launch_reduction --replays 15                  one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;

__host__ __device__ inline float partial_at(size_t i) { return (float)(uint32_t)((i * 2654435761ull) >> 7 & 0xFFF) - 2047.0f; }

__global__ void __launch_bounds__(256) write_partials(float4* partial, size_t vectors) {
  for (size_t v = blockIdx.x * (size_t)blockDim.x + threadIdx.x; v < vectors; v += (size_t)gridDim.x * blockDim.x)
    partial[v] = make_float4(partial_at(4 * v), partial_at(4 * v + 1), partial_at(4 * v + 2), partial_at(4 * v + 3));
}
template <int SPLIT>
__global__ void __launch_bounds__(256) reduce(const float4* partial, uint2* out, size_t vectors) {
  size_t v = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (v >= vectors) return;
  float4 x[SPLIT];
#pragma unroll
  for (int s = 0; s < SPLIT; ++s) x[s] = partial[s * vectors + v];
#pragma unroll
  for (int s = 1; s < SPLIT; ++s) x[0].x += x[s].x, x[0].y += x[s].y, x[0].z += x[s].z, x[0].w += x[s].w;
  __nv_bfloat162 a = __floats2bfloat162_rn(x[0].x, x[0].y), b = __floats2bfloat162_rn(x[0].z, x[0].w);
  out[v] = make_uint2(*(uint32_t*)&a, *(uint32_t*)&b);
}
__global__ void tiny(float* p) {
  if (threadIdx.x == 0) p[0] = 1.0f;
}
__global__ void count_wrong(const __nv_bfloat16* out, size_t elements, int split, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < elements; i += (size_t)gridDim.x * blockDim.x) {
    float x = 0;
    for (int s = 0; s < split; ++s) x += partial_at(s * elements + i);
    if (!(__bfloat162float(out[i]) == __bfloat162float(__float2bfloat16(x)))) atomicAdd(wrong, 1ull);
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int replays = args.get("--replays", 15), sms = sm_count();
  size_t most = (size_t)16 << 20;
  auto* partial = device_alloc<float>(8 * most);
  auto* out = device_alloc<__nv_bfloat16>(most);
  auto* wrong = device_alloc<unsigned long long>(1);
  auto* scrap = device_alloc<float>(32);
  warm_up_clock();
  for (int split : {2, 4, 8})
    for (size_t elements = 16 << 10; elements <= most; elements *= 4) {
      size_t vectors = elements / 4;
      auto write = [&](cudaStream_t s) { write_partials<<<sms * 4, 256, 0, s>>>((float4*)partial, split * vectors); };
      auto second = [&](cudaStream_t s) {
        int grid = (int)((vectors + 255) / 256);
        if (split == 2) reduce<2><<<grid, 256, 0, s>>>((const float4*)partial, (uint2*)out, vectors);
        if (split == 4) reduce<4><<<grid, 256, 0, s>>>((const float4*)partial, (uint2*)out, vectors);
        if (split == 8) reduce<8><<<grid, 256, 0, s>>>((const float4*)partial, (uint2*)out, vectors);
      };
      poison(out, elements * 2);
      poison(partial, split * elements * 4);
      CHECK(cudaMemset(wrong, 0, 8));
      write(0);
      second(0);
      count_wrong<<<1056, 256>>>(out, elements, split, wrong);
      CHECK_LAUNCH();
      require(to_host(wrong, 1)[0] == 0, "launch_reduction: every element");
      auto alone = time_graph(write, 40, replays);
      auto with_tiny = time_graph([&](cudaStream_t s) { write(s); tiny<<<1, 32, 0, s>>>(scrap); }, 40, replays);
      auto pair = time_graph([&](cudaStream_t s) { write(s); second(s); }, 40, replays);
      auto only = time_graph(second, 40, replays);
      Json j("launch_reduction");
      j.put("split", split).put("elements", elements).put("partial_bytes", split * elements * 4).put("out_bytes", elements * 2);
      j.put("seconds_write", median(alone)).put("seconds_write_tiny", median(with_tiny)).put("seconds_pair", median(pair));
      j.put("seconds_reduce_repeated", median(only)).put("seconds_second", median(pair) - median(alone)).put("spread", spread(pair)).emit();
    }
  return 0;
}
