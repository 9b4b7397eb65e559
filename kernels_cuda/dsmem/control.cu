/* control: clusters that do no work: launch, residency and barriers of a clustered kernel, against CTAs without a cluster.
   Shapes     `rows` rows, one after the other by the same CTAs, or one a cluster
   Launch     P = 1, 2, 4, 8, 16; grid, block and dynamic shared memory as given, --smem bytes a CTA
   On chip    the given dynamic shared memory, not touched
   Traffic    none                                             Bound  latency
   Work       a row: `published` K barriers of the cluster (2 a stage); `fast` K / 2 exchanges of 4 floats by st.async;
              P = 1: K barriers of the CTA
   Checked    fast: the exchanged sums are those of all CTAs
   Model      tilesight/dsmem: control time, equation 9's T_ctrl = seconds - seconds of P = 1
   Reference  PTX ISA, "barrier.cluster", "st.async"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v control.cu -o control
   Run        ./control --rows 4096 --barriers 2 --smem 204800 --block 256       one JSON line a point */
#include "options.cuh"
#include "row_launch.cuh"
using namespace ts;

struct Four {
  float v[4];
  __device__ void merge(const Four& b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] += b.v[i];
  }
};

__global__ void __launch_bounds__(MOST_BLOCK) control_kernel(int rows, int cluster, int barriers, int protocol, int* wrong) {
  __shared__ Mailbox<Four> box;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) mbar_init(smem_u32(&box.arrived[s]), 1);
    mbar_init_fence();
  }
  __syncthreads();
  if (cluster > 1) cluster_sync();
  const int units = gridDim.x / cluster, rank = blockIdx.x % cluster;
  int turn = 0;
  for (int row = blockIdx.x / cluster; row < rows; row += units)
    for (int k = 0; k < barriers; k += protocol == FAST ? 2 : 1) {
      if (protocol == ALONE) {
        __syncthreads();
      } else if (protocol == PUBLISHED) {
        cluster_sync();
      } else {
        const Four sum = exchange(box, Four{{(float)rank, 1, 0, 0}}, turn++, cluster, rank, FAST, false);
        if (sum.v[1] != cluster) atomicAdd(wrong, 1);
        __syncthreads();  // as a row's reduction has: the slots have been read
      }
    }
  if (cluster > 1) cluster_sync();
}

int main(int argc, char** argv) {
  const Args args(argc, argv);
  check_options("control", args.words,
                {number("--rows", 1, MOST_INT), number("--barriers", 0, 1000000), number("--block", 32, MOST_BLOCK),
                 number("--repeats", 1, 1000000), numbers("--smem", 0, 232448), numbers("--cluster", 1, MOST_CLUSTER)});
  const int rows = args.get("--rows", 4096), barriers = args.get("--barriers", 2), block = args.get("--block", 256);
  const int repeats = args.get("--repeats", 7);
  if (block % 32) refuse("control: --block " + std::to_string(block) + "; give whole warps, multiples of 32");
  for (int cluster : args.list("--cluster", "1,2,4,8,16"))
    if (cluster & (cluster - 1)) refuse("control: --cluster " + std::to_string(cluster) + "; give 1, 2, 4, 8 or 16");
  if (capability() < 90) return skipped("control", "no clusters below compute capability 9.0"), 0;
  auto* wrong = device_alloc<int>(1);
  CHECK(cudaMemset(wrong, 0, 4));
  warm_up_clock(0.2);
  for (int smem : args.list("--smem", "204800,102400,51200,25600"))
    for (int one_shot : {0, 1})
      for (int cluster : args.list("--cluster", "1,2,4,8,16"))
        for (int protocol : {ALONE, PUBLISHED, FAST}) {
          if ((cluster == 1) != (protocol == ALONE)) continue;
          int active = 0;
          if (cluster > 1) {
            active = most_clusters(control_kernel, cluster, block, smem);
          } else {
            allow_smem(control_kernel, smem);
            CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&active, control_kernel, block, smem));
            active *= sm_count();
          }
          if (active == 0) continue;
          const int units = one_shot ? rows : std::min(rows, active);
          auto launch = [&](cudaStream_t stream) {
            ClusterLaunch(units, cluster, block, smem, stream)(control_kernel, rows, cluster, barriers, protocol, wrong);
          };
          const auto seconds = time_graph(launch, 50, repeats);
          require(to_host(wrong, 1)[0] == 0, "control: exchanged sums");
          Json j("control");
          j.put("protocol", PROTOCOLS[protocol]).put("cluster", cluster).put("rows", rows).put("barriers", barriers);
          j.put("smem_bytes", smem).put("block", block).put("grid", units * cluster).put("active_clusters", active);
          j.put("one_shot", one_shot).put("seconds", median(seconds)).put("spread", spread(seconds)).put("repeats", repeats).emit();
        }
  return 0;
}
