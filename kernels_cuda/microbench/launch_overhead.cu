/* launch_overhead: seconds per node of a graph of equal small kernels, and per launch in a stream and between events.
   Shapes     none; the load_store kernel reads and writes one float a CTA
   Launch     grid 1..16896 CTAs, block 128..384, dynamic shared memory 0..200 KiB (decides CTAs an SM), cluster 1 or 2
   On chip    as said per point; registers as printed by ptxas (record .toml)
   Traffic    none (load_store: 4 B read, 4 B written a CTA)
   Work       none                                            Bound  launch, CTA start
   Checked    load_store: outputs poisoned, then out[i] = in[i] + 1 on the host, bit-exact
   Model      launch: gap between graph nodes, start of a CTA, cost of further waves of CTAs (slope over grid)
   Reference  none
   Targets    sm_90a sm_100a sm_103a (sm_120a: 200 KiB of shared memory; others: no clusters)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v launch_overhead.cu -o launch_overhead
   Run        ./launch_overhead --replays 15                   one JSON line a point */
#include <chrono>

#include "../common/tilesight.cuh"
using namespace ts;

struct Buffers { const float* in; float* out; };

__global__ void __launch_bounds__(384) empty(Buffers) {}
__global__ void __launch_bounds__(384) load_store(Buffers b) {
  if (threadIdx.x == 0) b.out[blockIdx.x] = b.in[blockIdx.x] + 1.0f;
}
// One CTA-wide barrier and a load that everybody needs: the least a tile kernel does before its loop.
__global__ void __launch_bounds__(384) load_barrier_store(Buffers b) {
  __shared__ float x;
  if (threadIdx.x == 0) x = b.in[blockIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) b.out[blockIdx.x] = x + 1.0f;
}
__global__ void __launch_bounds__(384, 1) many_registers(Buffers b) {  // 168 registers a thread, as a wgmma kernel
  float v[128];
  if (b.in == nullptr) {  // never
#pragma unroll
    for (int i = 0; i < 128; ++i) v[i] = b.out[i];
#pragma unroll
    for (int i = 0; i < 128; ++i) b.out[i * 7 + threadIdx.x] = v[127 - i] * v[i];
  }
}
using Kernel = void (*)(Buffers);
struct Named { const char* name; Kernel kernel; };

cudaLaunchConfig_t config_of(int grid, int block, int smem, int cluster, cudaLaunchAttribute* attribute, cudaStream_t stream) {
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim = {(unsigned)cluster, 1, 1};
  cudaLaunchConfig_t c{};
  c.gridDim = grid;
  c.blockDim = block;
  c.dynamicSmemBytes = smem;
  c.stream = stream;
  c.attrs = attribute;
  c.numAttrs = cluster > 1;
  return c;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int replays = args.get("--replays", 15), sms = sm_count(), most = sms * 128;
  auto* in = device_alloc<float>(most);
  auto* out = device_alloc<float>(most);
  Buffers b{in, out};
  fill_normal_f32(in, most, 9);
  for (Kernel k : {empty, load_store, load_barrier_store, many_registers}) allow_smem(k, 200 * 1024);
  for (Kernel k : {load_store, load_barrier_store}) {
    poison(out, most * sizeof(float));
    k<<<most, 128>>>(b);
    CHECK_LAUNCH();
    auto x = to_host(in, most), y = to_host(out, most);
    for (int i = 0; i < most; ++i) require(y[i] == x[i] + 1.0f, "launch_overhead: load_store");
  }
  warm_up_clock();

  auto launch = [&](Kernel kernel, int grid, int block, int smem, int cluster, cudaStream_t stream) {
    cudaLaunchAttribute attribute;
    auto config = config_of(grid, block, smem, cluster, &attribute, stream);
    CHECK(cudaLaunchKernelEx(&config, kernel, b));
  };
  auto emit = [&](const char* part, const char* name, int nodes, int grid, int block, int smem, int cluster, const std::vector<float>& t) {
    Json j("launch_overhead");
    j.put("part", part).put("kernel", name).put("nodes", nodes).put("grid", grid).put("block", block).put("smem_bytes", smem);
    j.put("cluster", cluster).put("seconds", median(t)).put("spread", spread(t)).emit();
  };
  auto graph = [&](const char* part, const char* name, Kernel k, int nodes, int grid, int block, int smem, int cluster) {
    emit(part, name, nodes, grid, block, smem, cluster,
         time_graph([&](cudaStream_t s) { launch(k, grid, block, smem, cluster, s); }, nodes, replays));
  };
  const Named kernels[] = {{"empty", empty}, {"load_store", load_store}, {"load_barrier_store", load_barrier_store}};

  for (int nodes : {1, 2, 5, 10, 50, 100, 200})  // slope over nodes: cost of a node; intercept: graph launch + events
    for (const Named& k : kernels) graph("nodes", k.name, k.kernel, nodes, sms, 128, 0, 1);
  for (const Named& k : kernels)
    for (int block : {128, 256, 384})
      for (int smem : {0, 64 * 1024, 200 * 1024})
        for (int grid : {1, sms, 2 * sms, 1000, 4 * sms, 8 * sms, 10000, 16 * sms, 32 * sms, 64 * sms})
          graph("grid", k.name, k.kernel, 100, grid, block, smem, 1);
  for (int block : {256, 384})
    for (int grid : {1, sms, 2 * sms, 4 * sms, 16 * sms}) graph("registers", "many_registers", many_registers, 100, grid, block, 200 * 1024, 1);
  for (const Named& k : kernels)
    for (int smem : {0, 200 * 1024})
      for (int grid : {2, sms, 2 * sms, 8 * sms, 32 * sms}) graph("cluster", k.name, k.kernel, 100, grid, 128, smem, 2);

  // Stream: 100 launches between two events; host: time to enqueue one. Events: one launch between two events.
  for (const Named& k : kernels)
    for (int smem : {0, 200 * 1024}) {
      auto t = time_launches([&] { for (int i = 0; i < 100; ++i) launch(k.kernel, sms, 128, smem, 1, 0); }, 3, replays);
      for (float& x : t) x /= 100;
      emit("stream", k.name, 100, sms, 128, smem, 1, t);
      emit("events", k.name, 1, sms, 128, smem, 1, time_launches([&] { launch(k.kernel, sms, 128, smem, 1, 0); }, 5, 4 * replays));
    }
  emit("events", "none", 0, 0, 0, 0, 1, time_launches([] {}, 5, 4 * replays));
  std::vector<float> host;
  for (int r = 0; r < replays; ++r) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) launch(empty, sms, 128, 0, 1, 0);
    host.push_back(std::chrono::duration<float>(std::chrono::steady_clock::now() - begin).count() / 100);
    CHECK(cudaDeviceSynchronize());
  }
  emit("host", "empty", 100, sms, 128, 0, 1, host);
  return 0;
}
