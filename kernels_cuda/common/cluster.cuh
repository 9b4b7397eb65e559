/* cluster.cuh: launches of clusters, and what CTAs of one cluster do with each other's shared memory.
   Host       ClusterLaunch (any cluster size that the GPU takes), how many clusters fit at once, the shared memory that
              leaves one CTA an SM
   Device     addresses in another CTA (mapa), loads and stores there, st.async, remote arrivals, barriers, polling
   Waits      as in tilesight.cuh: they trap after WAIT_LIMIT_CYCLES. barrier.cluster itself has no time-out
   Build      header only; device functions need sm_90 or newer (rank, barrier and multicast are in wgmma.cuh)
   Reference  PTX ISA, "mapa", "barrier.cluster", "st.async"; CUDA C++ Programming Guide, "Distributed Shared Memory" */
#pragma once
#include <utility>

#include "wgmma.cuh"

namespace ts {

// ---------------------------------------------------------------- host: what the GPU is

inline int device_attribute(cudaDeviceAttr which, int device = 0) {
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}
inline int capability() {  // 90 for compute capability 9.0
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) + device_attribute(cudaDevAttrComputeCapabilityMinor);
}
// Dynamic shared memory of which no two CTAs fit on an SM.
inline size_t one_cta_smem() { return device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / 2; }
inline size_t most_smem() { return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }
inline void skipped(const char* bench, const char* reason) {
  Json(bench).put("part", "skipped").put("reason", reason).emit();
}

// ---------------------------------------------------------------- host: launches

// `clusters` clusters of `cluster` CTAs in x. Sizes above 8 need the non-portable attribute, which is set here.
struct ClusterLaunch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute shape{};
  ClusterLaunch(int clusters, int cluster, int block, size_t smem, cudaStream_t stream = 0) {
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = cluster;
    shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
    config.gridDim = clusters * cluster;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = stream;
    config.attrs = &shape;
    config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;  // config points into this object
  template <class... P, class... A>
  void operator()(void (*kernel)(P...), A&&... args) const {
    prepare(kernel);
    CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...));
  }
  // Clusters of this shape that are resident at once; 0 where the GPU does not take them.
  template <class K> int most(K kernel) const {
    prepare(kernel);
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
    cudaGetLastError();
    return 0;
  }

 private:
  template <class K> void prepare(K kernel) const {
    allow_smem(kernel, config.dynamicSmemBytes);
    // Where this is not supported, the launch or the question after it fails.
    if (shape.val.clusterDim.x > 8 && cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
      cudaGetLastError();
  }
};
template <class K> int most_clusters(K kernel, int cluster, int block, size_t smem) {
  return ClusterLaunch(1, cluster, block, smem).most(kernel);
}

// ---------------------------------------------------------------- device: registers

// An empty statement that claims to change x: x is computed before it, in a register, and not again later.
__device__ __forceinline__ void pin(int& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void pin(uint32_t& x) { asm volatile("" : "+r"(x)); }
template <class... T> __device__ __forceinline__ void pin_all(T&... x) { (pin(x), ...); }

// ---------------------------------------------------------------- device: barrier of the cluster, in two halves

__device__ __forceinline__ void cluster_arrive_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait_acquire() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

// ---------------------------------------------------------------- device: another CTA's shared memory

// The same shared address in CTA `rank`, in the window shared::cluster.
__device__ __forceinline__ uint32_t at_rank(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ uint32_t load_remote(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_local(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ void store_remote(uint32_t at, uint32_t v) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
__device__ __forceinline__ void store_local(uint32_t at, uint32_t v) {
  asm volatile("st.shared::cta.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
// ld.shared::cluster is compiled to a generic load that forms the upper half of the address anew; here it is kept.
__device__ __forceinline__ uint64_t generic_at_rank(uint32_t address, uint32_t rank) {
  uint64_t p;
  asm volatile("cvta.shared::cluster.u64 %0, %1;" : "=l"(p) : "l"((uint64_t)at_rank(address, rank)));
  return p;
}
__device__ __forceinline__ uint32_t load_generic(uint32_t low, uint32_t high) {
  uint32_t v;
  asm volatile("{\n.reg .b64 p;\nmov.b64 p, {%1, %2};\nld.u32 %0, [p];\n}" : "=r"(v) : "r"(low), "r"(high) : "memory");
  return v;
}
__device__ __forceinline__ void store_generic(uint32_t low, uint32_t high, uint32_t v) {
  asm volatile("{\n.reg .b64 p;\nmov.b64 p, {%0, %1};\nst.u32 [p], %2;\n}" ::"r"(low), "r"(high), "r"(v) : "memory");
}
// Stores and counts its bytes off the mbarrier `bar`, both in the same CTA.
__device__ __forceinline__ void store_async(uint32_t at, uint32_t v, uint32_t bar) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(at), "r"(v), "r"(bar) : "memory");
}

// ---------------------------------------------------------------- device: signals between CTAs of a cluster

// Addresses of barriers elsewhere are from at_rank. The plain arrival is the one that pipelines of copies use; the one that
// releases at cluster scope is compiled to a memory barrier of GPU scope before the arrival.
__device__ __forceinline__ void mbar_arrive_remote(uint32_t bar_there) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar_there) : "memory");
}
__device__ __forceinline__ void mbar_arrive_cluster(uint32_t bar_there) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar_there) : "memory");
}
// mbar_wait that also sees what other CTAs wrote before they arrived.
__device__ __forceinline__ void mbar_wait_cluster(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  for (long long start = cycles(); !done;) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    if (!done && cycles() - start > WAIT_LIMIT_CYCLES) __trap();
  }
}

}  // namespace ts
