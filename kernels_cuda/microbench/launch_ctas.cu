/* launch_ctas: what each further CTA of a launch costs, by its threads, shared memory and cluster.
   Shapes     none
   Launch     1, 4, 16, 64 waves of empty CTAs (a wave: all that are resident at once), graphs of 4 launches; cta: block
              32..1024; cluster: block 128, clusters of 1 (an ordinary launch), 2, 4, 8 CTAs
   On chip    0 or 100 KiB dynamic shared memory; registers as printed by ptxas (record .toml)
   Traffic    none when timed
   Work       none                                           Bound  launch
   Parts      cta, cluster: seconds a launch; cta_slope, cluster_slope: seconds a CTA between the fewest and the most waves, and
              the same as cycles of each SM
   Checked    every CTA adds one to a counter
   Model      launch: cost of a CTA; overlap of waves
   Reference  none
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v launch_ctas.cu -o launch_ctas
   Run        ./launch_ctas --repeats 9                        one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;

__global__ void __launch_bounds__(1024) nothing(int* count) {
  if (count != nullptr && threadIdx.x == 0) atomicAdd(count, 1);
}
// Cycles and nanoseconds of a millisecond: the SM clock.
__global__ void read_clock(double* hz) {
  long long begin = cycles();
  unsigned long long begin_ns = globaltimer_ns();
  while (cycles() - begin < 2000000) {}
  *hz = (double)(cycles() - begin) / (double)(globaltimer_ns() - begin_ns) * 1e9;
}

void measure_ctas(const char* part, int block, size_t smem, int cluster, const std::vector<int>& waves, int repeats, double clock_hz) {
  const int sms = sm_count();
  int ctas_per_sm = 0;
  allow_smem(nothing, smem);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas_per_sm, nothing, block, smem));
  auto enqueue = [&](int ctas, int* count, cudaStream_t stream) {
    ClusterLaunch l(ctas / cluster, cluster, block, smem, stream);
    l.config.numAttrs = cluster > 1 ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&l.config, nothing, count));
  };
  std::vector<int> grids;
  std::vector<std::vector<float>> times;
  for (int wave : waves) {
    int ctas = (wave * sms * ctas_per_sm + cluster - 1) / cluster * cluster;
    auto* count = device_alloc<int>(1);
    CHECK(cudaMemset(count, 0, 4));
    enqueue(ctas, count, 0);
    require(to_host(count, 1)[0] == ctas, "launch_ctas: every CTA ran");
    CHECK(cudaFree(count));
    grids.push_back(ctas);
    times.push_back(time_graph([&](cudaStream_t s) { enqueue(ctas, nullptr, s); }, 4, repeats, 1));
    Json j("launch_ctas");
    j.put("part", part).put("block", block).put("smem_bytes", smem).put("cluster", cluster).put("ctas_per_sm", ctas_per_sm);
    j.put("waves", wave).put("grid", ctas).put("seconds", median(times.back())).put("spread", spread(times.back())).put("repeats", repeats).emit();
  }
  std::vector<double> slope;  // between the first and the last number of waves
  for (int r = 0; r < repeats; ++r) slope.push_back(((double)times.back()[r] - times.front()[r]) / (grids.back() - grids.front()));
  Json j("launch_ctas");
  j.put("part", (std::string(part) + "_slope").c_str()).put("block", block).put("smem_bytes", smem).put("cluster", cluster);
  j.put("ctas_per_sm", ctas_per_sm).put("seconds_per_cta", median(slope)).put("cycles_per_cta_and_sm", median(slope) * clock_hz * sms);
  j.put("clock_hz", clock_hz).put("spread", spread(slope)).put("repeats", repeats).emit();
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9);
  auto* hz = device_alloc<double>(1);
  warm_up_clock(0.1);
  read_clock<<<1, 1>>>(hz);
  CHECK_LAUNCH();
  const double clock_hz = to_host(hz, 1)[0];
  require(clock_hz > 1e8 && clock_hz < 1e10, "launch_ctas: clock");
  const size_t large = std::min<size_t>(100 * 1024, most_smem());
  for (int block : {32, 64, 128, 256, 512, 1024})
    for (size_t smem : {(size_t)0, large}) measure_ctas("cta", block, smem, 1, {1, 4, 16, 64}, repeats, clock_hz);
  for (int cluster : {1, 2, 4, 8})
    for (size_t smem : {(size_t)0, large})
      if (capability() >= 90) measure_ctas("cluster", 128, smem, cluster, {1, 4, 16, 64}, repeats, clock_hz);
  return 0;
}
