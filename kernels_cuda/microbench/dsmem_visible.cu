/* dsmem_visible: cycles until what one CTA stores in another CTA's shared memory is seen there and answered.
   Shapes     one word in each CTA
   Launch     P = 2, 4, 8, 16 CTAs a cluster (16: non-portable), one CTA an SM, one cluster; block 32, one thread of rank 0
              and one of rank `distance` play, the other CTAs wait
   On chip    half of an SM's shared memory dynamic, so that one CTA fits; registers as printed by ptxas (record .toml)
   Traffic    4 B a message
   Work       none                                           Bound  latency
   Methods    release: st.release.cluster there, ld.acquire.cluster in a loop here; relaxed: the same without order;
              async: st.async there, mbarrier wait here; arrive: a plain store, then an arrival (release, cluster) on the
              mbarrier there, wait (acquire, cluster) here; barrier: a plain store, then the barrier of the cluster.
              One way, answered by the memory alone: store_fence: a store there and fence.acq_rel.cluster;
              store_load: a store there and a load of the same word
   Checked    every message carries a new number, and both sides check each one they see
   Model      dsmem: cost of an exchange between CTAs
   Reference  PTX ISA, "Memory consistency model", "st.async", "mbarrier"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dsmem_visible.cu -o dsmem_visible
   Run        ./dsmem_visible --repeats 11                     one JSON line a point; cycles are of a round trip */
#include "../common/cluster.cuh"
using namespace ts;

enum Method { RELEASE, RELAXED, ASYNC, ARRIVE, BARRIER, STORE_FENCE, STORE_LOAD, METHODS };
const char* const NAMES[] = {"release", "relaxed", "async", "arrive", "barrier", "store_fence", "store_load"};

template <int METHOD> __device__ __forceinline__ void send(uint32_t word_there, uint32_t bar_there, uint32_t value) {
  if (METHOD == RELEASE) asm volatile("st.release.cluster.shared::cluster.u32 [%0], %1;" ::"r"(word_there), "r"(value) : "memory");
  if (METHOD == RELAXED) asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(word_there), "r"(value) : "memory");
  if (METHOD == ASYNC) store_async(word_there, value, bar_there);
  if (METHOD == ARRIVE) {
    store_remote(word_there, value);
    mbar_arrive_cluster(bar_there);
  }
}
// The value of message number `message`.
template <int METHOD> __device__ __forceinline__ uint32_t receive(uint32_t word, uint32_t bar, uint32_t message) {
  uint32_t value = 0;
  if (METHOD == RELEASE || METHOD == RELAXED) {
    for (long long start = cycles(); value < message;) {
      if (METHOD == RELEASE) asm volatile("ld.acquire.cluster.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
      else asm volatile("ld.relaxed.cluster.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
      if (value < message && cycles() - start > WAIT_LIMIT_CYCLES) __trap();
    }
    return value;
  }
  mbar_wait_cluster(bar, (message - 1) & 1);
  value = load_local(word);
  if (METHOD == ASYNC) mbar_expect(bar, 4);  // the next message comes only after our answer
  return value;
}

template <int METHOD>
__global__ void __launch_bounds__(32) rounds(int distance, int trips, int* elapsed, int* wrong) {
  extern __shared__ uint32_t word[];
  __shared__ uint64_t bar;
  const int rank = cluster_rank();
  const bool first = rank == 0, second = rank == distance, plays = (first || second) && threadIdx.x == 0;
  const uint32_t other = first ? distance : 0, here = smem_u32(word), bar_here = smem_u32(&bar);
  const uint32_t there = at_rank(here, other), bar_there = at_rank(bar_here, other);
  if (threadIdx.x == 0) {
    word[0] = 0;
    mbar_init(bar_here, 1);
    mbar_init_fence();
    if (METHOD == ASYNC) mbar_expect(bar_here, 4);
  }
  __syncthreads();
  cluster_sync();
  long long begin = 0;
  for (int trip = -8; trip < trips; ++trip) {  // the first eight are not timed
    uint32_t message = trip + 9;               // 1, 2, ...
    if (METHOD == BARRIER) {                   // both ways: two barriers of the whole cluster
      if (trip == 0) begin = cycles();
      if (first && threadIdx.x == 0) store_remote(there, message);
      __syncwarp();
      cluster_sync();
      if (second && threadIdx.x == 0) {
        if (load_local(here) != message) atomicAdd(wrong, 1);
        store_remote(there, message);
      }
      __syncwarp();
      cluster_sync();
      if (first && threadIdx.x == 0 && load_local(here) != message) atomicAdd(wrong, 1);
      continue;
    }
    if (!plays) break;
    if (trip == 0) begin = cycles();
    if (METHOD == STORE_FENCE || METHOD == STORE_LOAD) {
      if (!first) break;
      if (METHOD == STORE_FENCE) {
        store_remote(there, message);
        fence_cluster();
      } else {  // weak accesses would let the compiler answer
        uint32_t got;
        asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(message) : "memory");
        asm volatile("ld.relaxed.cluster.shared::cluster.u32 %0, [%1];" : "=r"(got) : "r"(there) : "memory");
        if (got != message) atomicAdd(wrong, 1);
      }
    } else if (first) {
      send<METHOD>(there, bar_there, message);
      if (receive<METHOD>(here, bar_here, message) != message) atomicAdd(wrong, 1);
    } else {
      if (receive<METHOD>(here, bar_here, message) != message) atomicAdd(wrong, 1);
      send<METHOD>(there, bar_there, message);
    }
  }
  if (first && threadIdx.x == 0) elapsed[0] = (int)(cycles() - begin);
  __syncthreads();
  cluster_sync();
  if (second && threadIdx.x == 0 && word[0] != (uint32_t)trips + 8) atomicAdd(wrong, 1);
}

template <int METHOD> void measure(int cluster, int distance, int trips, int repeats, int* elapsed, int* wrong) {
  ClusterLaunch launch(1, cluster, 32, one_cta_smem());
  if (launch.most(rounds<METHOD>) == 0) return;
  std::vector<double> per_trip;
  for (int i = 0; i < repeats + 1; ++i) {
    CHECK(cudaMemset(wrong, 0, 4));
    poison(elapsed, 4);
    launch(rounds<METHOD>, distance, trips, elapsed, wrong);
    double t = to_host(elapsed, 1)[0];
    require(to_host(wrong, 1)[0] == 0 && t > 0, std::string("dsmem_visible: messages, ") + NAMES[METHOD]);
    if (i) per_trip.push_back(t / trips);
  }
  Json j("dsmem_visible");
  j.put("method", NAMES[METHOD]).put("cluster", cluster).put("distance", distance).put("trips", trips);
  j.put("cycles", median(per_trip)).put("spread", spread(per_trip)).put("repeats", repeats).emit();
}
template <int METHOD = 0> void measure_all(int cluster, int distance, int trips, int repeats, int* elapsed, int* wrong) {
  if constexpr (METHOD < METHODS) {
    measure<METHOD>(cluster, distance, trips, repeats, elapsed, wrong);
    measure_all<METHOD + 1>(cluster, distance, trips, repeats, elapsed, wrong);
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 11), trips = args.get("--trips", 200);
  if (capability() < 90) return skipped("dsmem_visible", "no clusters below compute capability 9.0"), 0;
  auto *elapsed = device_alloc<int>(1), *wrong = device_alloc<int>(1);
  warm_up_clock(0.1);
  for (int cluster : {2, 4, 8, 16})
    for (int distance = 1; distance < cluster; ++distance) measure_all(cluster, distance, trips, repeats, elapsed, wrong);
  return 0;
}
