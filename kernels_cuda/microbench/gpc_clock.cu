/* gpc_clock: the clock of every SM, and the bytes of L2 that every SM gets while all of them ask.
   Shapes     clock: wgmma: two m64n256 accumulators of an SM, A 128 x 128, B 256 x 128 bf16 in shared memory; mma: a warp has 2 x 4
              tiles of m16n8k16 bf16 in registers; fma: 8 chains a thread; chain: one chain of one warp. stream: every SM walks a
              region of its own of one set that stays in L2 (18.6 MiB), or 4 neighbours of a GPC walk one together (share 4)
   Launch     clock: one CTA an SM, block 512 (wgmma 256); stream: 1 or 2 CTAs an SM, block 128; no cluster; shared memory forces it
   On chip    wgmma 97 KiB of operands; stream: ring of 96 KiB an SM in 6 slots; registers as printed by ptxas (record .toml)
   Traffic    clock: none in the loop; stream: what arrives in 0.2 ms, from L2
   Work       wgmma 2 * 64 * 256 * 16 flop an instruction, mma 4096 a warp, fma 2 a lane; stream none when timed
   Bound      tensor and power, issue, latency; L2
   States     burst: 3 launches of 16 windows of 0.5 ms, after 0.5 s without work each; held: 4 launches of 4 windows of 20 ms,
              after one such launch
   Parts      sm: one line an SM, load and state: clock_hz (cycles over ns of the global timer, both read where the timer steps),
                  window_s: time of the work of a window, the same on all SMs, medians over windows
              gpc: one line a GPC: deviation: mean clock of its SMs over the mean of all, less 1, mean over windows; over_time: its
                  standard deviation over them
              window: one line a window: sd_between, relative standard deviation of GPC means weighted by SMs; sd_inside, of the
                  SMs of a GPC, pooled
              sd: medians over windows of these, one line a load and state
              stream: one line an SM: active: all, gpc (the others idle), cpc (one CPC at a time); bytes_per_cycle of its own clock,
                  bytes_per_us
   Places     gpc as sm_map.cuh finds it; groups of fewer than 4 SMs (TPCs that no cluster combines) are counted to the smallest
              other group (cluster_gpc keeps their own number); tpc: rank in the GPC by SM id; cpc = tpc % 3
   Checked    wgmma and mma against float64, fma and chain bit by bit against the host, over few steps; after each timed launch
              all SMs hold the same bits. stream: sum of what arrived against plain loads of the same addresses
   Model      spread of tiles along k; rate of lookups of the chip and of a GPC
   Reference  PTX ISA, %clock64, %globaltimer, "cp.async", "wgmma"
   Targets    sm_90a sm_100a sm_103a (others: GPCs are found from clusters, and the ring needs shared memory of that size)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v gpc_clock.cu -o gpc_clock
   Run        ./gpc_clock --repeats 5                           one JSON line a point; without wgmma on sm_100a, sm_103a */
#include <chrono>
#include <thread>

#include "../common/mma.cuh"
#include "../common/sm_map.cuh"
#include "../common/wgmma_types.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int THREADS = 512, WARPS = THREADS / 32, TM = 2, TN = 4, CHAINS = 8, UNROLL = 8;
constexpr int VALUES = TM * TN * 4;  // results of a thread: accumulators, or chains and zeros
constexpr int WG_THREADS = 256, WG_VALUES = 128, RESTART = 64;
constexpr int MOST_WINDOWS = 16, CHECK_WINDOWS = 2, CHECK_STEPS = 3;
constexpr float FMA_A = 0.998f, FMA_B = 0.0017f;
enum Load { WGMMA, MMA, FMA, CHAIN };
constexpr const char* LOAD_NAMES[] = {"wgmma", "mma", "fma", "chain"};
struct State { const char* name; int launches, windows; double window_ms, pause_s; bool settled; };
constexpr State STATES[] = {{"burst", 3, 16, 0.5, 0.5, false}, {"held", 4, 4, 20.0, 0.0, true}};
using Mma = Bf16K16;

constexpr int STREAM_THREADS = 128, SLOTS = 6, RING_BYTES = 96 * 1024, REGION_BYTES = 9 * RING_BYTES / SLOTS;  // of an SM
constexpr int SM_SMEM_BYTES = 224 * 1024, MOST_COPIES = 8;

// ---------------------------------------------------------------- host reference

float chain_after(float x, int operations) {
  for (int i = 0; i < operations; ++i) x = std::fma(x, FMA_A, FMA_B);
  return x;
}
float start_of(int thread, int chain) { return 0.5f + hash32(thread * CHAINS + chain) * (0.5f / 4294967296.0f); }

__global__ void reference_sum(const unsigned char* in, int parts, int slot_bytes, int slots, u64* total) {
  u64 sum = 0;
  const unsigned char* mine = in + (size_t)blockIdx.x * (REGION_BYTES / parts);
  for (int i = 0; i < slots; ++i)
    for (int b = threadIdx.x * 16; b < slot_bytes; b += STREAM_THREADS * 16)
      sum += sum_words(*(const uint4*)(mine + (size_t)i * slot_bytes % (REGION_BYTES / parts) + b));
  block_add(total, sum);
}

// ---------------------------------------------------------------- kernels

struct Stamp { long long cycle; u64 ns; };

// Where the global timer steps: error of a reading is that of the loop, not the step.
__device__ __forceinline__ Stamp read_at_step() {
  const u64 before = globaltimer_ns();
  Stamp s;
  do {
    s.ns = globaltimer_ns();
    s.cycle = cycles();
  } while (s.ns == before);
  return s;
}

// stamps: windows + 1 a CTA; out: VALUES of each thread of each CTA; a, b: tiles of WARPS warps
template <Load LOAD>
__global__ void __launch_bounds__(THREADS, 1)
busy(const uint32_t* a, const uint32_t* b, const float* start, int windows, int steps, float* out, Stamp* stamps, int* sm_of_cta) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t fa[TM][Mma::A], fb[TN][Mma::B];
  float acc[TM][TN][4] = {}, x[CHAINS] = {};
  if (LOAD == MMA) {
#pragma unroll
    for (int i = 0; i < TM; ++i) load_a<Mma>(fa[i], a + (warp * TM + i) * Mma::M * Mma::WORDS, lane);
#pragma unroll
    for (int j = 0; j < TN; ++j) load_b<Mma>(fb[j], b + (warp * TN + j) * 8 * Mma::WORDS, lane);
  } else {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = start[threadIdx.x * CHAINS + c];
  }
  Stamp* mine = stamps + blockIdx.x * (windows + 1);
  __syncthreads();
  if (threadIdx.x == 0) mine[0] = read_at_step(), sm_of_cta[blockIdx.x] = smid();
#pragma unroll 1
  for (int w = 1; w <= windows; ++w) {
    if (LOAD != CHAIN || warp == 0)
#pragma unroll 1
      for (int s = 0; s < steps; ++s) {
        if (LOAD == MMA) {
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) Mma::mma(acc[i][j], fa[i], fb[j]);
        } else {
#pragma unroll
          for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < (LOAD == FMA ? CHAINS : 1); ++c)
              asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[c]) : "f"(FMA_A), "f"(FMA_B));
        }
      }
    __syncthreads();
    if (threadIdx.x == 0) mine[w] = read_at_step();
  }
  float* to = out + (size_t)blockIdx.x * VALUES * THREADS + threadIdx.x;
#pragma unroll
  for (int i = 0; i < VALUES; ++i) to[i * THREADS] = LOAD == MMA ? (&acc[0][0][0])[i] : i < CHAINS ? x[i % CHAINS] : 0;
}

// a: 128 rows, b: 256 rows of 256 bytes; a step is 4 instructions of each warpgroup over 128 of the bytes, in turn
__global__ void __launch_bounds__(WG_THREADS, 1)
busy_wgmma(const uint32_t* a, const uint32_t* b, int windows, int steps, float* out, Stamp* stamps, int* sm_of_cta) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
  unsigned char *tile_a = align_1024(raw), *tile_b = tile_a + 2 * 128 * 128;
  for (int i = threadIdx.x; i < 128 * 64; i += WG_THREADS)
    *(uint32_t*)(tile_a + i % 64 / 32 * 16384 + swizzled<128>(i / 64 * 128 + i % 32 * 4)) = a[i];
  for (int i = threadIdx.x; i < 256 * 64; i += WG_THREADS)
    *(uint32_t*)(tile_b + i % 64 / 32 * 32768 + swizzled<128>(i / 64 * 128 + i % 32 * 4)) = b[i];
  float acc[WG_VALUES];
#pragma unroll
  for (int i = 0; i < WG_VALUES; ++i) wgmma_zero(acc[i]);
  const uint64_t desc_a = wgmma_desc_128b(smem_u32(tile_a) + wg * 8192), desc_b = wgmma_desc_128b(smem_u32(tile_b));
  Stamp* mine = stamps + blockIdx.x * (windows + 1);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) mine[0] = read_at_step(), sm_of_cta[blockIdx.x] = smid();
#pragma unroll 1
  for (int w = 1; w <= windows; ++w) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WgmmaOf<WgBf16, 256>::from_smem(acc, desc_a + s % 2 * (16384 >> 4) + 2 * k, desc_b + s % 2 * (32768 >> 4) + 2 * k,
                                        k > 0 || s % RESTART != 0);
      wgmma_commit();
      wgmma_wait<1>();
    }
    wgmma_wait<0>();
    __syncthreads();
    if (threadIdx.x == 0) mine[w] = read_at_step();
  }
  float* to = out + (size_t)blockIdx.x * WG_VALUES * WG_THREADS + threadIdx.x;
#pragma unroll
  for (int i = 0; i < WG_VALUES; ++i) to[i * WG_THREADS] = acc[i];
#endif
}

struct Streamed { u64 bytes, cycles; long long clock_cycles, clock_ns; int sm; };  // of a CTA; cycles: summed over threads

// SUM: `rounds` rings of each CTA, summed; else as many as arrive in `duration` cycles. ctas: CTAs an SM.
template <bool SUM>
__global__ void __launch_bounds__(STREAM_THREADS)
stream(const unsigned char* in, const int* region_of_sm, int ctas, int rounds, int duration, int all, int* on_sm, int* arrived,
       Streamed* streamed, u64* total) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ int part;
  const int region = region_of_sm[smid()], slot_bytes = RING_BYTES / SLOTS / ctas, copies = slot_bytes / (STREAM_THREADS * 16);
  if (region < 0) {  // stay until all CTAs have started, so that none of them takes the place of another
    for (long long start = cycles(); cycles() - start < 60000;) {}
    return;
  }
  if (threadIdx.x == 0) {
    part = atomicAdd(&on_sm[smid()], 1);
    atomicAdd(arrived, 1);
    for (long long start = cycles(); *(volatile int*)arrived < all;)
      if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
  }
  __syncthreads();
  const uint32_t own = REGION_BYTES / ctas;
  const unsigned char* mine = in + (size_t)(region * ctas + part) * own + threadIdx.x * 16;
  const uint32_t dst = smem_u32(smem) + threadIdx.x * 16;
  uint32_t at = 0;
  auto issue = [&](int slot) {
#pragma unroll
    for (int i = 0; i < MOST_COPIES; ++i)
      if (i < copies) cp_async16(dst + slot * slot_bytes + i * STREAM_THREADS * 16, mine + at + i * STREAM_THREADS * 16);
    cp_async_commit();
    at += slot_bytes;
    if (at >= own) at = 0;
  };
  const u64 ns = globaltimer_ns();
  const long long begin = cycles();
  for (int i = 0; i < SLOTS - 1; ++i) issue(i);
  u64 sum = 0;
  int done = 0;
  long long now = begin;
  for (; SUM ? done < rounds : now - begin < duration; ++done) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      issue((slot + SLOTS - 1) % SLOTS);
      cp_async_wait<SLOTS - 1>();
      if (SUM)  // a thread reads what it copied itself
        for (int i = 0; i < copies; ++i) sum += sum_words(*(const uint4*)(smem + slot * slot_bytes + (i * STREAM_THREADS + threadIdx.x) * 16));
    }
    now = cycles();
  }
  const u64 ns_end = globaltimer_ns();
  cp_async_wait<0>();
  atomicAdd(&streamed[blockIdx.x].bytes, (u64)done * SLOTS * copies * 16);
  atomicAdd(&streamed[blockIdx.x].cycles, (u64)(now - begin));
  if (threadIdx.x == 0) {
    streamed[blockIdx.x].sm = smid();
    streamed[blockIdx.x].clock_cycles = now - begin;
    streamed[blockIdx.x].clock_ns = ns_end - ns;
  }
  if (SUM) block_add(total, sum);
}

// ---------------------------------------------------------------- places

struct Place { int cluster_gpc, gpc, gpc_sms, tpc, cpc; };

std::vector<Place> places(int sms, int* buffer) {
  const SmMap map = find_sm_map(sms, true, buffer);
  int smallest = -1;
  for (int sm = 0; sm < sms; ++sm)
    if (map.gpc_sms[sm] >= 4 && (smallest < 0 || map.gpc_sms[sm] < map.gpc_sms[smallest])) smallest = sm;
  require(smallest >= 0, "gpc_clock: groups of SMs");
  std::vector<Place> place(sms);
  std::map<int, std::map<int, int>> rank;  // gpc -> tpc -> number
  std::map<int, int> size;
  for (int sm = 0; sm < sms; ++sm) {
    int gpc = map.gpc_sms[sm] >= 4 ? map.gpc[sm] : map.gpc[smallest];
    int tpc = rank[gpc].emplace(map.tpc[sm], (int)rank[gpc].size()).first->second;
    place[sm] = {map.gpc[sm], gpc, 0, tpc, tpc % 3};
    ++size[gpc];
  }
  for (Place& p : place) p.gpc_sms = size[p.gpc];
  return place;
}

Json& put_place(Json& j, const Place& p) {
  return j.put("cluster_gpc", p.cluster_gpc).put("gpc", p.gpc).put("gpc_sms", p.gpc_sms).put("tpc", p.tpc).put("cpc", p.cpc);
}

// ---------------------------------------------------------------- clock

double mean(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0) / v.size(); }
double sd(const std::vector<double>& v) {
  double m = mean(v), s = 0;
  for (double x : v) s += (x - m) * (x - m);
  return std::sqrt(s / v.size());
}

template <Load LOAD> struct ClockBench {
  static constexpr int K = LOAD == WGMMA ? 128 : Mma::K, ROWS_A = LOAD == WGMMA ? 128 : WARPS * TM * Mma::M;
  static constexpr int ROWS_B = LOAD == WGMMA ? 256 : WARPS * TN * 8;
  static constexpr size_t RESULTS = LOAD == WGMMA ? WG_VALUES * WG_THREADS : VALUES * THREADS;  // of a CTA
  int sms;
  uint32_t *a, *b;
  float *start, *out;
  Stamp* stamps;
  int* sm_of_cta;
  std::vector<double> value_a, value_b;

  ClockBench(int sms_, int* buffer) : sms(sms_), sm_of_cta(buffer) {
    Operand oa = random_operand("bf16", (size_t)ROWS_A * K, 1), ob = random_operand("bf16", (size_t)ROWS_B * K, 2);
    a = upload<uint32_t>(oa.raw), b = upload<uint32_t>(ob.raw);
    value_a = oa.value, value_b = ob.value;
    std::vector<float> x(THREADS * CHAINS);
    for (int i = 0; i < THREADS * CHAINS; ++i) x[i] = start_of(i / CHAINS, i % CHAINS);
    start = device_alloc<float>(x.size());
    CHECK(cudaMemcpy(start, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    out = device_alloc<float>(sms * RESULTS);
    stamps = device_alloc<Stamp>(sms * (MOST_WINDOWS + 1));
    if constexpr (LOAD == WGMMA) allow_smem(busy_wgmma, one_cta_smem());
    else allow_smem(busy<LOAD>, one_cta_smem());
  }
  std::vector<Stamp> launch(int windows, int steps) {
    if constexpr (LOAD == WGMMA) busy_wgmma<<<sms, WG_THREADS, one_cta_smem()>>>(a, b, windows, steps, out, stamps, sm_of_cta);
    else busy<LOAD><<<sms, THREADS, one_cta_smem()>>>(a, b, start, windows, steps, out, stamps, sm_of_cta);
    CHECK_LAUNCH();
    return to_host(stamps, sms * (windows + 1));
  }
  std::vector<float> results() {  // of one CTA, after all were found equal
    auto all = to_host(out, sms * RESULTS);
    for (int cta = 1; cta < sms; ++cta)
      require(std::memcmp(&all[0], &all[cta * RESULTS], RESULTS * sizeof(float)) == 0, std::string("gpc_clock: SMs differ, ") + LOAD_NAMES[LOAD]);
    return {all.begin(), all.begin() + RESULTS};
  }
  void check() {
    poison(out, sms * RESULTS * sizeof(float));
    launch(CHECK_WINDOWS, LOAD == WGMMA ? 2 : CHECK_STEPS);
    auto got = results();
    const int times = CHECK_WINDOWS * CHECK_STEPS;
    if (LOAD == FMA || LOAD == CHAIN) {
      for (int t = 0; t < (LOAD == FMA ? THREADS : 32); ++t)
        for (int c = 0; c < (LOAD == FMA ? CHAINS : 1); ++c)
          require(got[c * THREADS + t] == chain_after(start_of(t, c), times * UNROLL), "gpc_clock: chain");
      return;
    }
    std::vector<double> have, want;
    if (LOAD == WGMMA) {  // two steps are the whole product, and each window restarts
      auto d = product(value_a.data(), value_b.data(), 128, 256, K);
      for (int t = 0; t < WG_THREADS; ++t)
        for (int i = 0; i < WG_VALUES; ++i) {
          have.push_back(got[i * WG_THREADS + t]);
          want.push_back(d[(t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2)) * 256 + 8 * (i / 4) + 2 * (t % 4) + i % 2]);
        }
    } else {
      for (int w = 0; w < WARPS; ++w)
        for (int i = 0; i < TM; ++i)
          for (int j = 0; j < TN; ++j) {
            auto d = product(&value_a[(size_t)(w * TM + i) * Mma::M * K], &value_b[(size_t)(w * TN + j) * 8 * K], Mma::M, 8, K);
            for (int lane = 0; lane < 32; ++lane)
              for (int r = 0; r < 4; ++r) {
                have.push_back(got[((i * TN + j) * 4 + r) * THREADS + w * 32 + lane]);
                want.push_back(times * d[(lane / 4 + 8 * (r / 2)) * 8 + 2 * (lane % 4) + r % 2]);
              }
          }
    }
    double e = relative_error(have, want);
    require(e < tolerance("bf16", "fp32"), std::string("gpc_clock: ") + LOAD_NAMES[LOAD] + ", relative error " + std::to_string(e));
  }

  void run(const std::vector<Place>& place) {
    check();
    const auto trial = launch(2, 2048);
    const double step_ns = (double)(trial[2].ns - trial[1].ns) / 2048;
    for (const State& state : STATES) run_state(place, state, (int)(state.window_ms * 1e6 / step_ns) / RESTART * RESTART);
    for (void* p : {(void*)a, (void*)b, (void*)start, (void*)out, (void*)stamps}) CHECK(cudaFree(p));
  }

  Json row(const char* part, const State& state) {
    Json j("gpc_clock");
    j.put("part", part).put("load", LOAD_NAMES[LOAD]).put("state", state.name);
    return j;
  }

  void run_state(const std::vector<Place>& place, const State& state, int steps) {
    if (state.settled) launch(state.windows, steps);
    std::vector<std::vector<double>> hz(sms), seconds(sms);  // of each SM, all windows
    std::map<int, std::vector<double>> deviation;            // of each GPC, all windows
    std::map<int, int> gpc_sms;
    std::vector<double> between, inside, chip_hz;
    for (int l = 0; l < state.launches; ++l) {
      std::this_thread::sleep_for(std::chrono::duration<double>(state.pause_s));
      auto stamp = launch(state.windows, steps);
      auto sm_of = to_host(sm_of_cta, sms);
      results();
      for (int w = 0; w < state.windows; ++w) {
        std::map<int, std::vector<double>> of_gpc;
        std::vector<double> all;
        for (int cta = 0; cta < sms; ++cta) {
          const Stamp* s = &stamp[cta * (state.windows + 1) + w];
          double clock = (s[1].cycle - s[0].cycle) * 1e9 / (s[1].ns - s[0].ns);
          hz[sm_of[cta]].push_back(clock);
          seconds[sm_of[cta]].push_back((s[1].ns - s[0].ns) * 1e-9);
          of_gpc[place[sm_of[cta]].gpc].push_back(clock);
          all.push_back(clock);
        }
        double chip = mean(all), inner = 0, outer = 0;
        for (auto& [gpc, clocks] : of_gpc) {
          double d = mean(clocks) / chip - 1;
          deviation[gpc].push_back(d);
          gpc_sms[gpc] = (int)clocks.size();
          outer += clocks.size() * d * d / sms;
          inner += clocks.size() * std::pow(sd(clocks) / chip, 2) / sms;
        }
        between.push_back(std::sqrt(outer)), inside.push_back(std::sqrt(inner)), chip_hz.push_back(chip);
        Json j = row("window", state);
        j.put("launch", l).put("window", w).put("clock_hz", chip).put("sd_between", between.back()).put("sd_inside", inside.back());
        j.put("spread", spread(all)).put("repeats", 1).emit();
      }
    }
    const int repeats = state.launches * state.windows;
    for (auto& [gpc, d] : deviation) {
      Json j = row("gpc", state);
      j.put("gpc", gpc).put("gpc_sms", gpc_sms[gpc]).put("deviation", mean(d)).put("over_time", sd(d)).put("spread", quantile(d, 0.9) - quantile(d, 0.1));
      j.put("repeats", repeats).emit();
    }
    for (int sm = 0; sm < sms; ++sm) {
      require((int)hz[sm].size() == repeats, "gpc_clock: one CTA an SM");
      Json j = row("sm", state);
      put_place(j.put("sm", sm), place[sm]).put("clock_hz", median(hz[sm])).put("window_s", median(seconds[sm]));
      j.put("spread", spread(hz[sm])).put("repeats", repeats).emit();
    }
    Json j = row("sd", state);
    j.put("clock_hz", median(chip_hz)).put("sd_between", median(between)).put("sd_inside", median(inside));
    j.put("spread", spread(between)).put("repeats", repeats).emit();
  }
};

// ---------------------------------------------------------------- stream

struct Rates { std::vector<double> per_cycle, per_us, spread; };  // one entry an SM; 0 where idle

struct StreamBench {
  int sms, repeats;
  std::vector<Place> place;
  unsigned char* in;
  int *region_of_sm, *on_sm, *arrived;
  Streamed* streamed;
  u64* total;

  StreamBench(int sms_, int repeats_, std::vector<Place> place_) : sms(sms_), repeats(repeats_), place(std::move(place_)) {
    in = device_alloc<unsigned char>((size_t)sms * REGION_BYTES);
    fill_words(in, (size_t)sms * REGION_BYTES, 3);
    region_of_sm = device_alloc<int>(sms);
    on_sm = device_alloc<int>(sms + 1);
    arrived = on_sm + sms;
    streamed = device_alloc<Streamed>(2 * sms);
    total = device_alloc<u64>(1);
    allow_smem(stream<false>, SM_SMEM_BYTES);
    allow_smem(stream<true>, SM_SMEM_BYTES);
  }

  // region: of each SM, -1 idle
  Rates run(const std::vector<int>& region, int ctas, int times, bool checked) {
    const int all = ctas * (int)std::count_if(region.begin(), region.end(), [](int r) { return r >= 0; });
    const size_t smem = (size_t)SM_SMEM_BYTES / ctas - 2048;  // exactly `ctas` an SM
    CHECK(cudaMemcpy(region_of_sm, region.data(), sms * sizeof(int), cudaMemcpyHostToDevice));
    auto launch = [&](bool sum, int rounds, int duration) {
      CHECK(cudaMemset(on_sm, 0, (sms + 1) * sizeof(int)));
      CHECK(cudaMemset(streamed, 0, 2 * sms * sizeof(Streamed)));
      if (sum) stream<true><<<sms * ctas, STREAM_THREADS, smem>>>(in, region_of_sm, ctas, rounds, duration, all, on_sm, arrived, streamed, total);
      else stream<false><<<sms * ctas, STREAM_THREADS, smem>>>(in, region_of_sm, ctas, rounds, duration, all, on_sm, arrived, streamed, total);
      CHECK_LAUNCH();
    };
    if (checked) {
      const int rounds = 3, slot_bytes = RING_BYTES / SLOTS / ctas;
      std::vector<u64> want_of(sms, 0);
      u64 want = 0;
      for (int sm = 0; sm < sms; ++sm)
        if (region[sm] >= 0) {
          CHECK(cudaMemset(total, 0, sizeof(u64)));
          reference_sum<<<ctas, STREAM_THREADS>>>(in + (size_t)region[sm] * REGION_BYTES, ctas, slot_bytes, rounds * SLOTS, total);
          CHECK_LAUNCH();
          want += to_host(total, 1)[0];
        }
      CHECK(cudaMemset(total, 0, sizeof(u64)));
      launch(true, rounds, 0);
      require(to_host(total, 1)[0] == want && want != 0, "gpc_clock: sum of what arrived");
    }
    std::vector<std::vector<double>> per_cycle(sms), per_us(sms);
    for (int r = 0; r <= times; ++r) {
      launch(false, 0, 400000);
      std::vector<double> cycle(sms, 0), us(sms, 0);
      for (const Streamed& s : to_host(streamed, sms * ctas))
        if (s.bytes > 0) {
          double rate = s.bytes / ((double)s.cycles / STREAM_THREADS);
          cycle[s.sm] += rate;
          us[s.sm] += rate * s.clock_cycles / s.clock_ns * 1e3;
        }
      for (int sm = 0; sm < sms && r > 0; ++sm) per_cycle[sm].push_back(cycle[sm]), per_us[sm].push_back(us[sm]);
    }
    Rates rates;
    for (int sm = 0; sm < sms; ++sm) {
      rates.per_cycle.push_back(median(per_cycle[sm]));
      rates.per_us.push_back(median(per_us[sm]));
      rates.spread.push_back(region[sm] < 0 ? 0 : spread(per_cycle[sm]));
    }
    return rates;
  }

  // Regions of the SMs that `chosen` takes: own, or one for each `share` SMs next to each other in a GPC.
  template <class F> std::vector<int> regions(int share, F chosen) {
    std::vector<int> region(sms, -1);
    std::map<int, int> taken;                    // SMs of a GPC so far
    std::map<std::pair<int, int>, int> number;   // of a group in a GPC
    for (int sm = 0; sm < sms; ++sm) {
      if (!chosen(place[sm])) continue;
      const std::pair<int, int> group(place[sm].gpc, taken[place[sm].gpc]++ / share);
      region[sm] = number.emplace(group, (int)number.size()).first->second;
    }
    return region;
  }

  void emit(const char* active, int ctas, int share, const Rates& r, const std::vector<int>& region) {
    for (int sm = 0; sm < sms; ++sm) {
      if (region[sm] < 0) continue;
      Json j("gpc_clock");
      put_place(j.put("part", "stream").put("active", active).put("ctas_per_sm", ctas).put("share", share).put("sm", sm), place[sm]);
      j.put("bytes_per_cycle", r.per_cycle[sm]).put("bytes_per_us", r.per_us[sm]).put("spread", r.spread[sm]).put("repeats", repeats).emit();
    }
  }

  void run_all() {
    int gpcs = 0;
    for (const Place& p : place) gpcs = std::max(gpcs, p.gpc + 1);
    auto of_everything = [&](int share, int ctas) {
      auto region = regions(share, [](const Place&) { return true; });
      emit("all", ctas, share, run(region, ctas, repeats, true), region);
    };
    for (int share : {1, 4})
      for (int ctas : {1, 2}) of_everything(share, ctas);
    for (int gpc = 0; gpc < gpcs; ++gpc) {
      auto region = regions(1, [=](const Place& p) { return p.gpc == gpc; });
      if (std::count(region.begin(), region.end(), -1) == sms) continue;
      emit("gpc", 1, 1, run(region, 1, repeats, true), region);
      for (int cpc = 0; cpc < 3; ++cpc) {
        auto part = regions(1, [=](const Place& p) { return p.gpc == gpc && p.cpc == cpc; });
        emit("cpc", 1, 1, run(part, 1, repeats, false), part);
      }
    }
  }
};

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int sms = sm_count(), repeats = args.get("--repeats", 5);
  auto* buffer = device_alloc<int>(8 * sms + 64);
  warm_up_clock(0.1);
  const auto place = places(sms, buffer);
  ClockBench<CHAIN>(sms, buffer).run(place);
  ClockBench<FMA>(sms, buffer).run(place);
  ClockBench<MMA>(sms, buffer).run(place);
  if (capability() / 10 == 9) ClockBench<WGMMA>(sms, buffer).run(place);
  StreamBench(sms, repeats, place).run_all();
  return 0;
}
