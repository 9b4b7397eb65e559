/* peer_access: kernels that load from, store to and signal through the memory of another GPU.
   Shapes     rate: 64 KiB..128 MiB of random words; latency: a chain of pointers, one a 128-byte line, 2 MiB; atomics: one
              word, or one a thread; pingpong: one flag a GPU
   Launch     rate: 1, 8, 32 CTAs or two an SM, block 512; latency, pingpong: one thread; atomics: one thread, or two CTAs an SM
   On chip    smem 0 B (a few bytes to add sums); registers as printed by ptxas (record .toml)
   Traffic    the size over the link; 16 bytes a thread and access, 8 of them in flight
   Work       one addition a word loaded                     Bound  link, latency
   Parts      rate: seconds a launch of several queued behind a spinning kernel; ways 2: the other GPU does the same at once
              (bytes_per_s: one way). latency: dependent loads (relaxed, system scope) of the peer's and of the own memory.
              atomic_latency: dependent atomicAdd_system; atomic_rate: without a result. pingpong: round trip of a flag, stored
              with release and polled with acquire at system scope; poll: the flag a GPU polls is in its own memory (local)
              or in the other's (remote)
   Checked    sums of the words loaded; every word stored, on the GPU that owns it; where the chain ends; counters; flags
   Model      link: alpha_s, beta_s_per_byte of direct accesses; CTAs that fill the link; cost of a signal
   Reference  CUDA C++ Programming Guide, "Peer-to-Peer Memory Access"; PTX ISA, "Memory consistency model"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v peer_access.cu -o peer_access
   Run        ./peer_access --repeats 7                        one JSON line a point (needs two GPUs) */
#include <numeric>
#include <random>

#include "../common/peer.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr size_t MOST = (size_t)128 << 20;
constexpr int LINES = 16384, UNROLL = 8, ADDS = 8;

// ---------------------------------------------------------------- kernels

__host__ __device__ inline uint32_t stored_word(size_t i, uint32_t seed) { return (uint32_t)i * 2654435761u + seed; }

__global__ void __launch_bounds__(512) load_all(const uint4* in, size_t vectors, u64* total) {
  u64 sum = 0;
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += UNROLL * stride) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = i + u * stride < vectors ? __ldcg(in + i + u * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
  }
  block_add(total, sum);
}
__global__ void __launch_bounds__(512) store_all(uint4* out, size_t vectors, uint32_t seed) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += stride)
    __stcg(out + i, make_uint4(stored_word(4 * i, seed), stored_word(4 * i + 1, seed), stored_word(4 * i + 2, seed), stored_word(4 * i + 3, seed)));
}
__global__ void wrong_words(const uint32_t* p, size_t words, uint32_t seed, u64* wrong) {
  u64 mine = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    mine += p[i] != stored_word(i, seed);
  if (mine) atomicAdd(wrong, mine);
}
// result: cycles, last address, nanoseconds of the same time.
__global__ void chase(u64 at, int steps, u64* result) {
  auto follow = [&](int n) {
#pragma unroll 16
    for (int i = 0; i < n; ++i) asm volatile("ld.relaxed.sys.global.u64 %0, [%0];" : "+l"(at)::"memory");
    if (at == 0) __trap();  // waits for the last address
  };
  follow(64);
  long long begin = cycles();
  u64 begin_ns = globaltimer_ns();
  follow(steps);
  result[2] = globaltimer_ns() - begin_ns;
  result[0] = cycles() - begin;
  result[1] = at;
}
__global__ void add_dependent(unsigned* counter, int steps, unsigned zero, u64* result) {  // zero: 0, unknown to the compiler
  unsigned old = 0;
  auto add = [&](int n) {
    for (int i = 0; i < n; ++i) {
      unsigned* next = counter + (old & zero);  // not known to be one address, or a warp's additions would be merged in code
      asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(next) : "memory");
    }
    if (old == 0xFFFFFFFFu) __trap();
  };
  add(1);
  long long begin = cycles();
  u64 begin_ns = globaltimer_ns();
  add(steps);
  result[2] = globaltimer_ns() - begin_ns;
  result[0] = cycles() - begin;
  result[1] = old;
}
__global__ void __launch_bounds__(512) add_many(unsigned* counters, int spread) {  // spread 0: all add to one word
  unsigned* mine = counters + (spread ? blockIdx.x * (size_t)blockDim.x + threadIdx.x : 0);
  for (int i = 0; i < ADDS; ++i) atomicAdd_system(mine, 1u);
}
__global__ void pingpong(uint32_t* poll, uint32_t* signal, int first, int trips, u64* result) {
  long long begin = 0;
  u64 begin_ns = 0;
  for (int trip = -8; trip < trips; ++trip) {  // the first eight are not timed
    uint32_t message = trip + 9, seen = 0;
    if (trip == 0) begin = cycles(), begin_ns = globaltimer_ns();
    if (first) asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(signal), "r"(message) : "memory");
    for (long long start = cycles(); seen != message;) {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(poll) : "memory");
      if (seen != message && cycles() - start > 4 * WAIT_LIMIT_CYCLES) __trap();
    }
    if (!first) asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(signal), "r"(message) : "memory");
  }
  result[2] = globaltimer_ns() - begin_ns;
  result[0] = cycles() - begin;
}

// ---------------------------------------------------------------- host

Json line(const char* part, const Gpu& a, const Gpu& b) {
  Json j("peer_access");
  j.put("part", part).put("gpu", a.id).put("memory_of", b.id);
  return j;
}

void rates(const Gpu& a, const Gpu& b, int repeats) {
  for (bool load : {true, false})
    for (int ctas : {1, 8, 32, 2 * a.sms})
      for (size_t bytes : {(size_t)64 << 10, (size_t)1 << 20, (size_t)16 << 20, MOST})
        for (bool both : {false, true}) {
          if (bytes > ((size_t)ctas << 24) || (both && a.id > b.id)) continue;
          const uint32_t seed = (uint32_t)(7 * ctas + bytes + both);
          auto run = [&](const Gpu& x, const Gpu& y) {
            if (load) load_all<<<ctas, 512, 0, x.stream>>>((const uint4*)y.data, bytes / 16, x.result);
            else store_all<<<ctas, 512, 0, x.stream>>>((uint4*)y.scratch, bytes / 16, seed + x.id);
          };
          for (const Gpu* g : {&b, &a}) {
            CHECK(cudaSetDevice(g->id));
            CHECK(cudaMemset(g->result, 0, 16));
            poison(g->scratch, bytes);
          }
          sync_both(a, b);
          const int runs = bytes <= (1 << 20) ? 10 : 2;
          auto t = time_runs(a, b, both, runs, repeats, 1000000, run);
          sync_both(a, b);
          for (auto [x, y] : {std::pair{&a, &b}, {&b, &a}}) {  // x used the memory of y
            if (x == &b && !both) continue;
            CHECK(cudaSetDevice(y->id));
            if (load) {
              require(to_host(x->result, 1)[0] == checksum(y->data, bytes) * (u64)(runs * (repeats + 1)), "peer_access: sum of loads");
            } else {
              wrong_words<<<1056, 256>>>((const uint32_t*)y->scratch, bytes / 4, seed + x->id, y->result + 1);
              require(to_host(y->result + 1, 1)[0] == 0, "peer_access: words stored");
            }
          }
          CHECK(cudaSetDevice(a.id));
          Json j = line("rate", a, b);
          j.put("operation", load ? "load" : "store").put("ways", both ? 2 : 1).put("ctas", ctas).put("bytes", bytes);
          j.put("seconds", median(t)).put("bytes_per_s", bytes / median(t)).put("spread", spread(t)).put("repeats", repeats).emit();
        }
}

void latencies(const Gpu& a, const Gpu& b, const Gpu& memory, int repeats, bool atomics) {
  const int steps = 2048;
  std::vector<int> order(LINES);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<u64> chain(LINES * 16, 0);
  for (int i = 0; i < LINES; ++i) chain[order[i] * 16] = (u64)(memory.scratch + (size_t)order[(i + 1) % LINES] * 128);
  CHECK(cudaSetDevice(memory.id));
  CHECK(cudaMemcpy(memory.scratch, chain.data(), chain.size() * 8, cudaMemcpyHostToDevice));
  sync_both(a, b);
  auto measure = [&](const char* part, auto launch, u64 want, u64 step) {
    std::vector<double> t, hz;
    for (int i = 0; i < repeats + 1; ++i) {
      launch(i);
      CHECK_LAUNCH();
      CHECK(cudaStreamSynchronize(a.stream));
      auto r = to_host(a.result, 3);
      require(r[1] == want + step * i, std::string("peer_access: ") + part);
      if (i) t.push_back((double)r[0] / steps), hz.push_back(1e9 * r[0] / r[2]);
    }
    Json j = line(part, a, memory);
    j.put("steps", steps).put("cycles", median(t)).put("seconds", median(t) / median(hz)).put("clock_hz", median(hz));
    j.put("spread", spread(t)).put("repeats", repeats).emit();
  };
  u64 last = (u64)(memory.scratch + (size_t)order[(64 + steps) % LINES] * 128);
  measure("latency", [&](int) { chase<<<1, 1, 0, a.stream>>>((u64)(memory.scratch + (size_t)order[0] * 128), steps, a.result); }, last, 0);
  if (!atomics) return;
  auto* counters = (unsigned*)memory.scratch;
  const int ctas = 2 * a.sms, threads = ctas * 512;
  auto clear = [&] {
    CHECK(cudaSetDevice(memory.id));
    CHECK(cudaMemset(counters, 0, threads * 4));
    sync_both(a, b);
  };
  clear();
  measure("atomic_latency", [&](int) { add_dependent<<<1, 1, 0, a.stream>>>(counters, steps, 0u, a.result); }, (u64)steps, (u64)steps + 1);
  for (int spread_out : {1, 0}) {
    clear();
    auto add = [&](const Gpu& x, const Gpu&) { add_many<<<ctas, 512, 0, x.stream>>>(counters, spread_out); };
    auto t = time_runs(a, b, false, 2, repeats, 1000000, add);
    sync_both(a, b);
    auto c = to_host(counters, threads);
    const unsigned each = ADDS * 2 * (repeats + 1);
    for (int i = 0; i < threads; ++i) require(c[i] == (spread_out ? each : i ? 0 : each * threads), "peer_access: counters");
    Json j = line("atomic_rate", a, memory);
    j.put("words", spread_out ? threads : 1).put("ctas", ctas).put("operations", threads * ADDS).put("seconds", median(t));
    j.put("operations_per_s", (double)threads * ADDS / median(t)).put("spread", spread(t)).put("repeats", repeats).emit();
  }
}

void pingpongs(const Gpu& a, const Gpu& b, int repeats) {
  const int trips = 200;
  for (bool local : {true, false}) {
    auto *flag_a = (uint32_t*)a.scratch, *flag_b = (uint32_t*)b.scratch;  // a polls one of them, b the other
    if (!local) std::swap(flag_a, flag_b);
    std::vector<double> t, hz;
    for (int i = 0; i < repeats + 1; ++i) {
      for (const Gpu* g : {&a, &b}) {
        CHECK(cudaSetDevice(g->id));
        CHECK(cudaMemset(g->scratch, 0, 4));
      }
      sync_both(a, b);
      CHECK(cudaSetDevice(b.id));
      pingpong<<<1, 1, 0, b.stream>>>(flag_b, flag_a, 0, trips, b.result);
      CHECK_LAUNCH();
      CHECK(cudaSetDevice(a.id));
      pingpong<<<1, 1, 0, a.stream>>>(flag_a, flag_b, 1, trips, a.result);
      CHECK_LAUNCH();
      sync_both(a, b);
      require(to_host(flag_a, 1)[0] == trips + 8 && to_host(flag_b, 1)[0] == trips + 8, "peer_access: flags");
      auto r = to_host(a.result, 3);
      if (i) t.push_back((double)r[0] / trips), hz.push_back(1e9 * r[0] / r[2]);
    }
    Json j = line("pingpong", a, b);
    j.put("poll", local ? "local" : "remote").put("steps", trips).put("cycles", median(t)).put("seconds", median(t) / median(hz));
    j.put("clock_hz", median(hz)).put("spread", spread(t)).put("repeats", repeats).emit();
  }
}

void skip(const char* reason) { Json("peer_access").put("part", "skipped").put("reason", reason).emit(); }

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 7);
  int count = 0, atomics = 0;
  CHECK(cudaGetDeviceCount(&count));
  if (count < 2) return skip("one GPU"), 0;
  if (!enable_peers(0, 1)) return skip("GPUs 0 and 1 have no peer access"), 0;
  CHECK(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, 0, 1));
  Gpu a = open_gpu(0, MOST), b = open_gpu(1, MOST);
  for (auto [x, y] : {std::pair{&a, &b}, {&b, &a}}) {
    rates(*x, *y, repeats);
    latencies(*x, *y, *y, repeats, atomics);
    latencies(*x, *y, *x, repeats, true);
    pingpongs(*x, *y, repeats);
  }
  return 0;
}
