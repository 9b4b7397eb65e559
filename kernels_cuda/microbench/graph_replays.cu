/* graph_replays: what a graph pays beside its nodes when its replays follow each other between two events.
   Shapes     out: one word a CTA
   Launch     graphs of 1..50 nodes, each grid = SMs, block 128, busy for 0, 2, 5, 10, 20 or 50 us; 6 or 60 replays
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    4 B written a CTA
   Work       none                                            Bound  launch
   States     busy   6 replays before the first event keep the GPU busy while the host enqueues what is timed
              idle   the GPU waits for the first timed replay
   Checked    every node counted its CTAs: the sum after all replays is exact
   Model      launch.graph_replay_s: seconds = nodes * node + replay + event / replays, the slope over 1 / nodes
   Reference  none
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a graph_replays.cu -o graph_replays
   Run        ./graph_replays                                 one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;

__global__ void __launch_bounds__(128) stay(unsigned* counts, unsigned ns) {
  unsigned long long begin = globaltimer_ns();
  long long start = cycles();
  if (threadIdx.x == 0) atomicAdd(counts + blockIdx.x, 1u);
  if (ns == 0) return;
  while (cycles() - start < ns * 2ll && globaltimer_ns() - begin < 1000000ull) {}
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 15), sms = sm_count();
  auto* counts = device_alloc<unsigned>(sms);
  warm_up_clock(0.1);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  for (unsigned ns : {0u, 2000u, 5000u, 10000u, 20000u, 50000u})
    for (int nodes : {1, 2, 3, 4, 5, 10, 50}) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < nodes; ++i) stay<<<sms, 128, 0, stream>>>(counts, ns);
      CHECK(cudaStreamEndCapture(stream, &graph));
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      for (int replays : {6, 60})
        for (bool busy : {true, false}) {
          CHECK(cudaMemset(counts, 0, sms * 4));
          CHECK(cudaDeviceSynchronize());
          std::vector<float> t;
          for (int r = 0; r < repeats + 2; ++r) {
            for (int i = 0; i < 6; ++i) CHECK(cudaGraphLaunch(exec, stream));
            if (!busy) CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaEventRecord(a, stream));
            for (int i = 0; i < replays; ++i) CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaEventRecord(b, stream));
            CHECK(cudaEventSynchronize(b));
            float ms = 0;
            CHECK(cudaEventElapsedTime(&ms, a, b));
            if (r >= 2) t.push_back(ms * 1e-3f / replays);
          }
          auto seen = to_host(counts, sms);
          for (int s = 0; s < sms; ++s)
            require(seen[s] == (unsigned)(repeats + 2) * (6 + replays) * nodes, "graph_replays: every node ran once a replay");
          Json j("graph_replays");
          j.put("state", busy ? "busy" : "idle").put("busy_ns", (int)ns).put("nodes", nodes).put("replays", replays);
          j.put("seconds_per_replay", median(t)).put("seconds_per_node", median(t) / nodes);
          j.put("repeats", repeats).put("spread", spread(t)).emit();
        }
      CHECK(cudaGraphExecDestroy(exec));
      CHECK(cudaGraphDestroy(graph));
    }
  return 0;
}
