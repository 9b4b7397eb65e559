/* device_limits: what the driver says of the GPU, how many clusters it holds, and which SMs form clusters together.
   Shapes     none
   Launch     cluster_sms: grid 132 SMs * 8 rounded to clusters of 2..16 CTAs, block 128, cluster in x
   On chip    smem 0 B static, 200 KiB dynamic (one CTA an SM); registers per thread as printed by ptxas (record .toml)
   Traffic    none                                            Work  none             Bound  none
   Checked    every CTA wrote its SM id; groups of SMs add up to the SM count
   Model      hardware_profiles: sm_count, sm.*, l2.capacity_bytes, gpc.max_active_clusters, gpc.sms_per_gpc
   Reference  CUDA Runtime API, cudaDeviceGetAttribute and cudaOccupancyMaxActiveClusters
   Targets    sm_90a sm_100a sm_103a (sm_120a: 200 KiB of shared memory a CTA; others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v device_limits.cu -o device_limits
   Run        ./device_limits                                 JSON lines: limits, one a cluster size, one a group of SMs */
#include <algorithm>
#include <map>
#include <numeric>

#include "../common/tilesight.cuh"
using namespace ts;

constexpr int SMEM_BYTES = 200 * 1024;

__global__ void __launch_bounds__(128) cluster_sms(int* sm_of_cta) {
  if (threadIdx.x != 0) return;
  sm_of_cta[blockIdx.x] = smid();
  for (long long start = clock64(); clock64() - start < 20000;) {  // stay, so that all SMs are needed
  }
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

struct ClusterLaunch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute shape[1];
  ClusterLaunch(int ctas, int cluster) {
    config.gridDim = ctas;
    config.blockDim = 128;
    config.dynamicSmemBytes = SMEM_BYTES;
    shape[0].id = cudaLaunchAttributeClusterDimension;
    shape[0].val.clusterDim.x = cluster;
    shape[0].val.clusterDim.y = shape[0].val.clusterDim.z = 1;
    config.attrs = shape;
    config.numAttrs = 1;
  }
};

// Clusters of this many CTAs that the GPU holds at once with one CTA an SM; 0 where the size is not supported.
int most_clusters(int cluster) {
  ClusterLaunch launch(cluster, cluster);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, cluster_sms, &launch.config) == cudaSuccess) return clusters;
  cudaGetLastError();
  return 0;
}

struct Groups {  // disjoint sets of SM ids
  std::vector<int> parent;
  explicit Groups(int n) : parent(n) { std::iota(parent.begin(), parent.end(), 0); }
  int find(int a) { return parent[a] == a ? a : parent[a] = find(parent[a]); }
  void join(int a, int b) { parent[std::max(find(a), find(b))] = std::min(find(a), find(b)); }
};

// SMs that were seen in one cluster belong to one GPC; clusters of several sizes and many rounds tie each GPC together.
void join_by_launches(Groups& groups, int cluster, int sms) {
  int ctas = sms * 8 / cluster * cluster;
  int* sm_of_cta = nullptr;
  CHECK(cudaMalloc(&sm_of_cta, ctas * sizeof(int)));
  for (int round = 0; round < 20; ++round) {
    CHECK(cudaMemset(sm_of_cta, 0xFF, ctas * sizeof(int)));
    ClusterLaunch launch(ctas, cluster);
    CHECK(cudaLaunchKernelEx(&launch.config, cluster_sms, sm_of_cta));
    std::vector<int> seen(ctas);
    CHECK(cudaMemcpy(seen.data(), sm_of_cta, ctas * sizeof(int), cudaMemcpyDeviceToHost));
    for (int cta = 0; cta < ctas; ++cta) {
      require(seen[cta] >= 0 && seen[cta] < sms, "a CTA wrote no SM id");
      groups.join(seen[cta / cluster * cluster], seen[cta]);
    }
  }
  CHECK(cudaFree(sm_of_cta));
}

int main() {
  const int sms = sm_count();
  allow_smem(cluster_sms, SMEM_BYTES);
  CHECK(cudaFuncSetAttribute(cluster_sms, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));

  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  Json("device_limits")
      .put("what", "limits")
      .put("sms", sms)
      .put("clock_hz", 1e3 * attribute(cudaDevAttrClockRate))
      .put("threads_per_sm", attribute(cudaDevAttrMaxThreadsPerMultiProcessor))
      .put("ctas_per_sm", attribute(cudaDevAttrMaxBlocksPerMultiprocessor))
      .put("warp_threads", attribute(cudaDevAttrWarpSize))
      .put("registers_per_sm", attribute(cudaDevAttrMaxRegistersPerMultiprocessor))
      .put("smem_per_sm_bytes", attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor))
      .put("smem_per_cta_bytes", attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
      .put("smem_reserved_per_cta_bytes", attribute(cudaDevAttrReservedSharedMemoryPerBlock))
      .put("l2_bytes", attribute(cudaDevAttrL2CacheSize))
      .put("dram_bytes", properties.totalGlobalMem)
      .put("dram_bus_bits", attribute(cudaDevAttrGlobalMemoryBusWidth))
      .put("dram_clock_hz", 1e3 * attribute(cudaDevAttrMemoryClockRate))
      .emit();

  Groups groups(sms);
  for (int cluster : {2, 4, 6, 8, 10, 12, 14, 16}) {
    const int clusters = most_clusters(cluster);
    Json("device_limits").put("what", "clusters").put("cluster_ctas", cluster).put("clusters", clusters).emit();
    if (clusters > 0) join_by_launches(groups, cluster, sms);
  }
  std::map<int, int> size_of;
  for (int sm = 0; sm < sms; ++sm) ++size_of[groups.find(sm)];
  int total = 0;
  for (auto [first, size] : size_of) {
    Json("device_limits").put("what", "group").put("first_sm", first).put("group_sms", size).emit();
    total += size;
  }
  require(total == sms, "groups of SMs do not add up");
  return 0;
}
