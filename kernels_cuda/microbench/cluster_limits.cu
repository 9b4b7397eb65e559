/* cluster_limits: how many clusters of 1..16 CTAs are resident at once, by shared memory and threads of a CTA.
   Shapes     none
   Launch     limits: none, the driver is asked; checked: as many clusters as it says, and one more, with the most shared
              memory a CTA can have, block 128 (sizes above 8: non-portable)
   On chip    0..227 KiB dynamic shared memory, no static; registers as printed by ptxas (record .toml)
   Traffic    none                                            Work  none             Bound  none
   Parts      limits: cudaOccupancyMaxActiveClusters; 0 where the GPU does not take the shape. checked: CTAs count themselves
              and wait for each other; met 1: all of them were there before the time-out; least_seen: what the CTA that saw
              the fewest had counted when it left
   Checked    what the driver says: that many clusters must meet (the kernel traps after about a second otherwise)
   Model      hardware_profiles: gpc.max_active_clusters
   Reference  CUDA Runtime API, cudaOccupancyMaxActiveClusters
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v cluster_limits.cu -o cluster_limits
   Run        ./cluster_limits                                 one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;

// seen: per CTA, the count when it left. limit_cycles 0: waits as long as a wait may take, then traps.
__global__ void __launch_bounds__(256) meet(int* arrived, int total, long long limit_cycles, int* seen) {
  if (threadIdx.x) return;
  atomicAdd(arrived, 1);
  int count = 0;
  for (long long start = cycles(); (count = *(volatile int*)arrived) < total;) {
    long long waited = cycles() - start;
    if (limit_cycles ? waited > limit_cycles : waited > WAIT_LIMIT_CYCLES) {
      if (!limit_cycles) __trap();
      break;
    }
  }
  seen[blockIdx.x] = count;
}

int main() {
  if (capability() < 90) return skipped("cluster_limits", "no clusters below compute capability 9.0"), 0;
  const int sms = sm_count();
  std::vector<size_t> sizes;
  for (int kib : {0, 16, 32, 64, 100, 113, 160, 200, 227})
    if ((size_t)kib * 1024 <= most_smem()) sizes.push_back((size_t)kib * 1024);
  if (sizes.back() < most_smem()) sizes.push_back(most_smem());

  for (int block : {128, 256})
    for (size_t smem : sizes) {
      int ctas_per_sm = 0;
      allow_smem(meet, smem);
      CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas_per_sm, meet, block, smem));
      for (int cluster = 1; cluster <= 16; ++cluster) {
        int clusters = most_clusters(meet, cluster, block, smem);
        Json j("cluster_limits");
        j.put("part", "limits").put("cluster", cluster).put("smem_bytes", smem).put("block", block).put("ctas_per_sm", ctas_per_sm);
        j.put("sms", sms).put("clusters", clusters).put("ctas", clusters * cluster);
        j.put("share_of_slots", (double)clusters * cluster / (sms * std::max(ctas_per_sm, 1))).put("spread", 0).put("repeats", 1).emit();
      }
    }

  auto* arrived = device_alloc<int>(1);
  auto* seen = device_alloc<int>(4 * sms + 64);
  const size_t smem = most_smem();
  for (int cluster : {2, 4, 8, 16}) {
    const int most = most_clusters(meet, cluster, 128, smem);
    if (most == 0) continue;
    for (int more : {0, 1}) {
      const int clusters = most + more, ctas = clusters * cluster, repeats = 3;
      int met = 0, least = ctas;
      for (int i = 0; i < repeats; ++i) {
        CHECK(cudaMemset(arrived, 0, 4));
        poison(seen, ctas * sizeof(int));
        ClusterLaunch launch(clusters, cluster, 128, smem);
        launch(meet, arrived, ctas, more ? 4000000ll : 0ll, seen);
        auto s = to_host(seen, ctas);
        int fewest = *std::min_element(s.begin(), s.end());
        require(fewest >= 1, "cluster_limits: every CTA counted");
        met += fewest == ctas;
        least = std::min(least, fewest);
      }
      require(more || met == repeats, "cluster_limits: as many clusters as the driver says meet");
      Json j("cluster_limits");
      j.put("part", "checked").put("cluster", cluster).put("smem_bytes", smem).put("block", 128).put("ctas_per_sm", 1).put("sms", sms);
      j.put("clusters", clusters).put("ctas", ctas).put("more", more).put("met", met == repeats ? 1 : 0).put("least_seen", least);
      j.put("spread", 0).put("repeats", repeats).emit();
    }
  }
  return 0;
}
