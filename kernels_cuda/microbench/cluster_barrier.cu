/* cluster_barrier: cycles of one barrier of all CTAs of a cluster (barrier.cluster arrive + wait), with nothing else to do.
   Shapes     none
   Launch     P = 1, 2, 4, 8, 16 CTAs a cluster (16: non-portable), one CTA an SM; one cluster or all that fit; block 128, 256
   On chip    half of an SM's shared memory dynamic, so that one CTA fits; registers as printed by ptxas (record .toml)
   Traffic    none when timed
   Work       none                                           Bound  latency
   Methods    release: arrive.release, wait.acquire, as cluster.sync() does; relaxed: arrive.relaxed, wait.acquire;
              store_release: release, with a 4-byte store a thread into the next CTA before each barrier; cta: __syncthreads
   Checked    in each of 100 rounds every CTA stores a new number into the next one's shared memory; after the barrier (with
              a fence before it when relaxed) everybody finds it
   Model      dsmem: cost of a cluster barrier by cluster size
   Reference  PTX ISA, "barrier.cluster"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v cluster_barrier.cu -o cluster_barrier
   Run        ./cluster_barrier --repeats 11                   one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;

enum Method { RELEASE, RELAXED, STORE_RELEASE, CTA };
const char* const NAMES[] = {"release", "relaxed", "store_release", "cta"};

template <int METHOD> __device__ __forceinline__ void barrier() {
  if (METHOD == CTA) {
    __syncthreads();
  } else {
    if (METHOD == RELAXED) cluster_arrive_relaxed();
    else cluster_arrive_release();
    cluster_wait_acquire();
  }
}

// CHECKED: counts what threads did not find. Otherwise elapsed: cycles of `rounds` barriers, by thread 0 of each CTA.
template <int METHOD, bool CHECKED>
__global__ void __launch_bounds__(256) barriers(int rounds, int cluster, int* elapsed, int* wrong) {
  extern __shared__ uint32_t slot[];  // one word a thread
  const uint32_t rank = cluster_rank(), own = smem_u32(slot + threadIdx.x), next = at_rank(own, (rank + 1) % cluster);
  const uint32_t before = (rank + cluster - 1) % cluster;
  store_local(own, 0);
  __syncthreads();
  cluster_sync();
  if (CHECKED) {
    for (int round = 0; round < rounds; ++round) {
      store_remote(next, (round << 16) + (rank << 12) + threadIdx.x);
      if (METHOD == RELAXED) fence_cluster();
      barrier<METHOD>();
      uint32_t got = slot[(threadIdx.x + 33) % blockDim.x];  // what a thread of another warp was sent
      if (got != (round << 16) + (before << 12) + (threadIdx.x + 33) % blockDim.x) atomicAdd(wrong, 1);
      barrier<METHOD>();
    }
  } else {
    long long begin = cycles();
    for (int round = 0; round < rounds; ++round) {
      if (METHOD == STORE_RELEASE) store_remote(next, round);
      barrier<METHOD>();
    }
    long long end = cycles();
    if (threadIdx.x == 0) elapsed[blockIdx.x] = (int)(end - begin);
  }
  __syncthreads();
  cluster_sync();  // nobody stores into a CTA that has gone
}

template <int METHOD>
void measure(int cluster, int warps, int rounds, int repeats, int* elapsed, int* wrong) {
  const size_t smem = one_cta_smem();
  const int most = std::min(most_clusters(barriers<METHOD, false>, cluster, 32 * warps, smem), sm_count() / cluster);
  if (most == 0) return;
  for (int clusters : {1, most}) {
    ClusterLaunch launch(clusters, cluster, 32 * warps, smem);
    CHECK(cudaMemset(wrong, 0, 4));
    launch(barriers<METHOD, true>, 100, cluster, elapsed, wrong);
    require(to_host(wrong, 1)[0] == 0, std::string("cluster_barrier: stores after the barrier, ") + NAMES[METHOD]);
    std::vector<double> per_barrier;
    std::vector<int> all;
    for (int i = 0; i < repeats + 1; ++i) {
      launch(barriers<METHOD, false>, rounds, cluster, elapsed, wrong);
      auto t = to_host(elapsed, clusters * cluster);
      if (i == 0) continue;
      per_barrier.push_back(median(t) / rounds);
      all.insert(all.end(), t.begin(), t.end());
    }
    Json j("cluster_barrier");
    j.put("method", NAMES[METHOD]).put("cluster", cluster).put("warps", warps).put("clusters", clusters);
    j.put("ctas", clusters * cluster).put("cycles", median(per_barrier)).put("cycles_p10", quantile(all, 0.1) / rounds);
    j.put("cycles_p90", quantile(all, 0.9) / rounds).put("spread", spread(per_barrier)).put("repeats", repeats).emit();
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 11), rounds = args.get("--rounds", 200);
  if (capability() < 90) return skipped("cluster_barrier", "no clusters below compute capability 9.0"), 0;
  auto* elapsed = device_alloc<int>(sm_count());
  auto* wrong = device_alloc<int>(1);
  warm_up_clock(0.1);
  for (int warps : {4, 8}) {
    measure<CTA>(1, warps, rounds, repeats, elapsed, wrong);
    for (int cluster : {1, 2, 4, 8, 16}) {
      measure<RELEASE>(cluster, warps, rounds, repeats, elapsed, wrong);
      measure<RELAXED>(cluster, warps, rounds, repeats, elapsed, wrong);
      measure<STORE_RELEASE>(cluster, warps, rounds, repeats, elapsed, wrong);
    }
  }
  return 0;
}
