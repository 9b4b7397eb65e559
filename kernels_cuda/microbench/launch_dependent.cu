/* launch_dependent: time between a kernel and the kernel that needs its result, by what connects the two.
   Shapes     one word a CTA, passed from kernel to kernel
   Launch     1 CTA or one an SM, block 128, no cluster
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    4 B read and written a CTA and kernel
   Work       none                                           Bound  launch
   How        stream: back to back in one stream; events: two streams in turn, event record and wait between; graph: captured.
              All work is queued behind a spinning kernel, so that the host is not in the time
   Trigger    plain: ordinary dependence. Programmatic (sm_90 and newer), griddepcontrol.wait before the word is read:
              never: no trigger; first: triggers as its first instruction; after_wait: right after its own wait;
              last: after its store. flag: as first, but waits for a flag in memory (release, acquire) instead
   Parts      chain: seconds a kernel of 100; gap: less the cycles that each spins once it has its word. pair: two kernels
              whose CTAs read the clock of the same SM: cycles from the store of the first to the first instruction of the
              second (start), to the end of its wait (go) and until it has the word (value)
   Checked    each word counts the kernels of a chain; a pair passes a new word each time
   Model      launch: graph_gap_s, dependent_kernel_s
   Reference  CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v launch_dependent.cu -o launch_dependent
   Run        ./launch_dependent --repeats 9                   one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;

enum Trigger { PLAIN, NEVER, FIRST, AFTER_WAIT, LAST, FLAG };
const char* const TRIGGERS[] = {"plain", "never", "first", "after_wait", "last", "flag"};
struct Stamp { int sm; uint32_t got; long long store, start, go, value; };

__device__ __forceinline__ void trigger_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_primary() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ void spin(long long limit) {
  for (long long start = cycles(); limit > 0 && cycles() - start < limit;) {}
}

// ---------------------------------------------------------------- chain

__global__ void __launch_bounds__(128) add_one(uint32_t* word, long long work, int trigger) {
  if (trigger == FIRST) trigger_dependents();
  if (trigger != PLAIN) wait_for_primary();
  if (trigger == AFTER_WAIT) trigger_dependents();
  if (threadIdx.x == 0) {
    uint32_t x = __ldcg(word + blockIdx.x);
    if (x == 0xFFFFFFFFu) __trap();  // never: the time until the word is there belongs to the gap
    spin(work);
    __stcg(word + blockIdx.x, x + 1);
  }
  if (trigger == LAST) {
    __syncthreads();
    trigger_dependents();
  }
}

// ---------------------------------------------------------------- pair

__global__ void __launch_bounds__(128) give(uint32_t* word, uint32_t* flag, Stamp* stamps, uint32_t value, long long work, int trigger) {
  if (trigger == FIRST || trigger == FLAG) trigger_dependents();
  if (threadIdx.x == 0) {
    spin(work);
    stamps[blockIdx.x].sm = smid();
    __stcg(word + blockIdx.x, value);
    stamps[blockIdx.x].store = cycles();
    if (trigger == FLAG) asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(flag + blockIdx.x), "r"(value) : "memory");
  }
  if (trigger == LAST) {
    __syncthreads();
    trigger_dependents();
  }
}
__global__ void __launch_bounds__(128) take(const uint32_t* word, const uint32_t* flag, Stamp* stamps, uint32_t value, int trigger) {
  long long start = cycles();
  if (trigger == FLAG) {
    uint32_t seen = 0;
    while (seen != value) {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(flag + blockIdx.x) : "memory");
      if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
    }
  } else if (trigger != PLAIN) {
    wait_for_primary();
  }
  long long go = cycles();
  uint32_t got = __ldcg(word + blockIdx.x);
  asm volatile("" ::"r"(got) : "memory");
  if (got == 0xFFFFFFFFu) spin(100);  // the next reading of the clock needs the word
  long long read = cycles();
  if (threadIdx.x == 0) stamps[blockIdx.x] = {(int)smid(), got, 0, start, go, read};
}

// Cycles and nanoseconds of a millisecond: the SM clock.
__global__ void read_clock(double* hz) {
  long long begin = cycles();
  unsigned long long begin_ns = globaltimer_ns();
  spin(2000000);
  *hz = (double)(cycles() - begin) / (double)(globaltimer_ns() - begin_ns) * 1e9;
}

// ---------------------------------------------------------------- host

struct Queue {  // two streams, and events to pass from one to the other
  cudaStream_t s[2];
  std::vector<cudaEvent_t> links;
  cudaEvent_t a, b;
  Queue() : links(256) {
    for (auto& x : s) CHECK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    for (auto& e : links) CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
  }
};
template <class... P, class... A>
void launch(void (*kernel)(P...), int grid, bool programmatic, cudaStream_t stream, A... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = 128;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

void measure_chain(Queue& q, const std::string& how, int trigger, int grid, int work, int nodes, int repeats, double clock_hz) {
  auto* word = device_alloc<uint32_t>(grid);
  int launches = 0;  // the first of a chain has nothing to depend on
  auto run = [&](cudaStream_t stream) {
    launch(add_one, grid, trigger != PLAIN && launches++ % nodes > 0, stream, word, (long long)work, trigger);
  };
  CHECK(cudaMemset(word, 0, grid * 4));
  std::vector<float> t;
  if (how == "graph") {
    t = time_graph(run, nodes, repeats, 1);
  } else {
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < repeats + 1; ++i) {
      spin_kernel<<<1, 32, 0, q.s[0]>>>(how == "events" ? 8000000ll : 4000000ll);
      CHECK(cudaEventRecord(q.a, q.s[0]));
      for (int k = 0; k < nodes; ++k) {
        cudaStream_t here = how == "events" ? q.s[k % 2] : q.s[0];
        if (k && how == "events") CHECK(cudaStreamWaitEvent(here, q.links[k - 1], 0));
        run(here);
        if (how == "events") CHECK(cudaEventRecord(q.links[k], here));
      }
      if (how == "events") CHECK(cudaStreamWaitEvent(q.s[0], q.links[nodes - 1], 0));
      CHECK(cudaEventRecord(q.b, q.s[0]));
      CHECK(cudaEventSynchronize(q.b));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, q.a, q.b));
      if (i) t.push_back(ms * 1e-3f / nodes);
    }
  }
  for (uint32_t x : to_host(word, grid)) require(x == (uint32_t)(nodes * (repeats + 1)), "launch_dependent: kernels of the chain");
  Json j("launch_dependent");
  j.put("part", "chain").put("how", how).put("trigger", TRIGGERS[trigger]).put("grid", grid).put("work_cycles", work).put("nodes", nodes);
  j.put("seconds", median(t)).put("gap_seconds", median(t) - work / clock_hz).put("clock_hz", clock_hz).put("spread", spread(t));
  j.put("repeats", repeats).emit();
  CHECK(cudaFree(word));
}

void measure_pair(Queue& q, const std::string& how, int trigger, int grid, int repeats) {
  auto *word = device_alloc<uint32_t>(grid), *flag = device_alloc<uint32_t>(grid);
  auto *first = device_alloc<Stamp>(grid), *second = device_alloc<Stamp>(grid);
  poison(word, grid * 4);
  CHECK(cudaMemset(flag, 0, grid * 4));
  CHECK(cudaDeviceSynchronize());
  std::vector<double> start, go, value;
  int same_sm = 0;
  for (int i = 0; i < repeats + 2; ++i) {
    uint32_t number = 1000 + i;
    auto enqueue = [&](cudaStream_t from, cudaStream_t to) {
      launch(give, grid, false, from, word, flag, first, number, 20000ll, trigger);
      if (from != to) {
        CHECK(cudaEventRecord(q.links[0], from));
        CHECK(cudaStreamWaitEvent(to, q.links[0], 0));
      }
      launch(take, grid, trigger != PLAIN, to, (const uint32_t*)word, (const uint32_t*)flag, second, number, trigger);
    };
    cudaGraph_t graph;
    cudaGraphExec_t exec = nullptr;
    if (how == "graph") {
      CHECK(cudaStreamBeginCapture(q.s[0], cudaStreamCaptureModeThreadLocal));
      enqueue(q.s[0], q.s[0]);
      CHECK(cudaStreamEndCapture(q.s[0], &graph));
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphUpload(exec, q.s[0]));
    }
    spin_kernel<<<1, 32, 0, q.s[0]>>>(600000ll);
    if (exec) CHECK(cudaGraphLaunch(exec, q.s[0]));
    else enqueue(q.s[0], how == "events" ? q.s[1] : q.s[0]);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    if (exec) {
      CHECK(cudaGraphExecDestroy(exec));
      CHECK(cudaGraphDestroy(graph));
    }
    auto a = to_host(first, grid), b = to_host(second, grid);
    std::vector<long long> to_start, to_go, to_value;
    for (const Stamp& y : b) {
      require(y.got == number, "launch_dependent: word of the pair");
      for (const Stamp& x : a)
        if (x.sm == y.sm) to_start.push_back(y.start - x.store), to_go.push_back(y.go - x.store), to_value.push_back(y.value - x.store);
    }
    if (i < 2 || to_start.empty()) continue;
    same_sm += (int)to_start.size();
    start.push_back(median(to_start)), go.push_back(median(to_go)), value.push_back(median(to_value));
  }
  Json j("launch_dependent");
  j.put("part", "pair").put("how", how).put("trigger", TRIGGERS[trigger]).put("grid", grid);
  j.put("same_sm_share", (double)same_sm / ((double)grid * repeats)).put("cycles_to_start", median(start)).put("cycles_to_go", median(go));
  j.put("cycles_to_value", median(value)).put("spread", value.empty() ? 0.0 : spread(value)).put("repeats", (int)value.size()).emit();
  for (void* p : {(void*)word, (void*)flag, (void*)first, (void*)second}) CHECK(cudaFree(p));
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  const bool hopper = capability() >= 90;
  auto* hz = device_alloc<double>(1);
  warm_up_clock(0.1);
  read_clock<<<1, 1>>>(hz);
  CHECK_LAUNCH();
  const double clock_hz = to_host(hz, 1)[0];
  require(clock_hz > 1e8 && clock_hz < 1e10, "launch_dependent: clock");
  Queue q;
  for (int grid : {1, sms}) {
    for (const char* how : {"stream", "events", "graph"})
      for (int trigger : {PLAIN, NEVER, FIRST, AFTER_WAIT, LAST}) {
        if (trigger != PLAIN && (!hopper || how[0] == 'e')) continue;
        for (int work : {0, 4000}) measure_chain(q, how, trigger, grid, work, 100, repeats, clock_hz);
      }
    for (const char* how : {"stream", "events", "graph"})
      for (int trigger : {PLAIN, NEVER, FIRST, LAST, FLAG}) {
        if (trigger != PLAIN && (!hopper || how[0] == 'e')) continue;
        measure_pair(q, how, trigger, grid, 2 * repeats);
      }
  }
  return 0;
}
