/* l2_lookup_rate: how many bytes a cycle the whole L2 answers, and how much merging of equal requests adds.
   Shapes     in: a set of `set` bytes that stays in L2 (16 to 20 MiB, kept in both partitions); CTAs in groups of `group` launch
              neighbours; a group walks its own region of set / groups bytes again and again ("private": no two groups ever
              ask for the same line), or the whole set in its own order ("permuted"). group = all: everybody the same bytes
   Launch     grid SMs * ctas (1, 2, 4, 8 an SM, forced by shared memory), block 256, no cluster
   On chip    96 KiB / ctas of ring in 6 slots, padded so that exactly `ctas` fit; registers as printed by ptxas (record .toml)
   Traffic    `steps` slots a CTA, from L2; no DRAM after the warm-up launch
   Work       none when timed                                Bound  l2 lookups (many SMs), SM port (few)
   Checked    with SUM = true the words that arrived in shared memory against a loop of plain loads over the same
              addresses; timed launches then count only cycles and wait for the same completions
   Columns    asked_bytes: of one timed launch; launches: of kernels lookup_*, the last of a point is timed (for Nsight Compute)
   Model      l2.lookup_bytes_per_cycle (group = 1, all SMs), merging (group > 1), SM fill ceiling (few SMs)
   Reference  PTX ISA, "cp.async", "cp.async.bulk"
   Targets    sm_90a sm_100a sm_103a (sm_120a: 224 KiB of shared memory; others: no bulk copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_lookup_rate.cu -o l2_lookup_rate
   Run        ./l2_lookup_rate --repeats 7                     one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int SM_SMEM_BYTES = 224 * 1024;
constexpr int MOST_COPIES = 8;
constexpr int SLOTS = 6, THREADS = 128, RING_BYTES = 96 * 1024;  // ring of one SM: smaller than an SM's private region

struct Walk {
  size_t set;      // bytes
  int group;       // CTAs that walk together
  int permuted;    // 0: own region, slot after slot; 1: whole set in an order of its own
  int slot_bytes;  // bytes of one step
  int steps;
};

// Where a CTA reads: offset() now, then advance().
struct Cursor {
  uint32_t begin, length, at, stride;
  __device__ Cursor(const Walk& w, int cta, int ctas) {
    uint32_t groups = (ctas + w.group - 1) / w.group, id = cta / w.group, slots = (uint32_t)(w.set / w.slot_bytes);
    uint32_t own = slots / groups;
    begin = w.permuted ? 0 : id * own * w.slot_bytes;
    length = (w.permuted ? slots : own) * w.slot_bytes;
    at = w.permuted ? hash32(id + 1000) % slots * w.slot_bytes : 0;
    stride = w.permuted ? (2 * (hash32(id) % (slots / 2)) + 1) * w.slot_bytes : w.slot_bytes;  // odd: each slot once
  }
  __device__ size_t offset() const { return begin + at; }
  __device__ void advance() {
    at += stride;
    if (at >= length) at -= length;
  }
};

__global__ void reference_sum(const unsigned char* in, Walk w, u64* total) {
  u64 sum = 0;
  Cursor c(w, blockIdx.x, gridDim.x);
  for (int i = 0; i < w.steps; ++i, c.advance())
    for (int b = threadIdx.x * 16; b < w.slot_bytes; b += THREADS * 16) sum += sum_words(*(const uint4*)(in + c.offset() + b));
  block_add(total, sum);
}

struct Stamp { long long cycles_begin, cycles_end; u64 ns_begin, ns_end; uint32_t sm; };

// Empty statements that claim to change their operand: it stays in a register instead of being computed in the loop.
__device__ __forceinline__ void pin(int& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void pin(uint32_t& x) { asm volatile("" : "+r"(x)); }

template <bool SUM>
__global__ void __launch_bounds__(THREADS) lookup_cp_async(const unsigned char* in, Walk w, Stamp* stamps, u64* total) {
  extern __shared__ __align__(128) unsigned char smem[];
  Cursor c(w, blockIdx.x, gridDim.x);
  const unsigned char* mine = in + threadIdx.x * 16;
  uint32_t dst = smem_u32(smem) + threadIdx.x * 16;
  int bytes = w.slot_bytes, copies = bytes / (THREADS * 16), rounds = w.steps / SLOTS;
  pin(dst), pin(bytes), pin(copies);
  auto issue = [&](int slot) {
    const unsigned char* src = mine + c.offset();
#pragma unroll
    for (int i = 0; i < MOST_COPIES; ++i)
      if (i < copies) cp_async16(dst + slot * bytes + i * THREADS * 16, src + i * THREADS * 16);
    cp_async_commit();
    c.advance();
  };
  Stamp s{cycles(), 0, globaltimer_ns(), 0, smid()};
  for (int i = 0; i < SLOTS - 1; ++i) issue(i);
  u64 sum = 0;
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      issue((slot + SLOTS - 1) % SLOTS);
      cp_async_wait<SLOTS - 1>();
      if (SUM)  // a thread reads what it copied itself
        for (int i = 0; i < copies; ++i) sum += sum_words(*(const uint4*)(smem + slot * bytes + (i * THREADS + threadIdx.x) * 16));
    }
  __syncthreads();
  s.cycles_end = cycles();
  s.ns_end = globaltimer_ns();
  cp_async_wait<0>();
  if (threadIdx.x == 0) stamps[blockIdx.x] = s;
  if (SUM) block_add(total, sum);
}

template <bool SUM>
__global__ void __launch_bounds__(THREADS) lookup_bulk(const unsigned char* in, Walk w, Stamp* stamps, u64* total) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ uint64_t full[SLOTS];
  Cursor c(w, blockIdx.x, gridDim.x);
  uint32_t dst = smem_u32(smem), bar = smem_u32(full);
  int bytes = w.slot_bytes, rounds = w.steps / SLOTS;
  pin(dst), pin(bar), pin(bytes);
  auto issue = [&](int slot) {  // one thread
    mbar_expect(bar + slot * 8, bytes);
    bulk_load(dst + slot * bytes, in + c.offset(), bytes, bar + slot * 8);
    c.advance();
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < SLOTS; ++i) mbar_init(bar + i * 8, 1);
    mbar_init_fence();
  }
  __syncthreads();
  Stamp s{cycles(), 0, globaltimer_ns(), 0, smid()};
  if (threadIdx.x == 0)
    for (int i = 0; i < SLOTS; ++i) issue(i);
  u64 sum = 0;
  if (SUM || threadIdx.x == 0)
    for (int round = 0; round < rounds; ++round)
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        mbar_wait(bar + slot * 8, round & 1);
        if (SUM) {
          for (int b = threadIdx.x * 16; b < bytes; b += THREADS * 16) sum += sum_words(*(const uint4*)(smem + slot * bytes + b));
          __syncthreads();
        }
        if (threadIdx.x == 0) issue(slot);  // one ring further than what is counted
      }
  if (threadIdx.x == 0) {
    s.cycles_end = cycles();
    s.ns_end = globaltimer_ns();
    stamps[blockIdx.x] = s;
    for (int i = 0; i < SLOTS; ++i) mbar_wait(bar + i * 8, rounds & 1);
  }
  if (SUM) block_add(total, sum);
}

struct Rate { double chip_bytes_per_cycle, chip_bytes_per_s, clock_hz; int sms; };

// Chip rate = sum over SMs of bytes / (last end - first begin on that SM); wall rate from the global timer.
Rate rate_of(const std::vector<Stamp>& stamps, double bytes_per_cta) {
  struct Sm { long long begin = 0, end = 0; double bytes = 0; };
  std::vector<Sm> sms(1024);
  u64 first = ~0ull, last = 0;
  for (const Stamp& s : stamps) {
    Sm& m = sms[s.sm];
    m.begin = m.bytes == 0 ? s.cycles_begin : std::min(m.begin, s.cycles_begin);
    m.end = std::max(m.end, s.cycles_end);
    m.bytes += bytes_per_cta;
    first = std::min(first, s.ns_begin);
    last = std::max(last, s.ns_end);
  }
  Rate r{0, stamps.size() * bytes_per_cta / ((last - first) * 1e-9), 0, 0};
  for (const Sm& m : sms)
    if (m.bytes > 0) {
      r.chip_bytes_per_cycle += m.bytes / (m.end - m.begin);
      ++r.sms;
    }
  const Stamp& s = stamps[0];
  r.clock_hz = (s.cycles_end - s.cycles_begin) / ((s.ns_end - s.ns_begin) * 1e-9);
  return r;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int repeats = args.get("--repeats", 7), sms = sm_count();
  size_t bytes_per_sm = (size_t)args.get("--mib_per_sm", 6) << 20;
  auto* in = device_alloc<unsigned char>(64 << 20);
  auto* total = device_alloc<u64>(1);
  auto* stamps = device_alloc<Stamp>(sms * 8);
  fill_words(in, 64 << 20, 3);
  for (auto kernel : {lookup_cp_async<false>, lookup_cp_async<true>, lookup_bulk<false>, lookup_bulk<true>}) allow_smem(kernel, SM_SMEM_BYTES);
  warm_up_clock();

  auto measure = [&](const char* method, int active, int ctas, Walk w) {
    bool bulk = method[0] == 'b';
    int grid = active * ctas;
    w.slot_bytes = RING_BYTES / SLOTS / ctas;
    size_t smem = std::max<size_t>(w.slot_bytes * SLOTS, (size_t)SM_SMEM_BYTES / ctas - 2048);  // exactly `ctas` an SM
    auto launch = [&](bool sum) {
      if (bulk && sum) lookup_bulk<true><<<grid, THREADS, smem>>>(in, w, stamps, total);
      else if (bulk) lookup_bulk<false><<<grid, THREADS, smem>>>(in, w, stamps, total);
      else if (sum) lookup_cp_async<true><<<grid, THREADS, smem>>>(in, w, stamps, total);
      else lookup_cp_async<false><<<grid, THREADS, smem>>>(in, w, stamps, total);
      CHECK_LAUNCH();
    };
    w.steps = 3 * SLOTS;  // check
    CHECK(cudaMemset(total, 0, 8));
    reference_sum<<<grid, THREADS>>>(in, w, total);
    u64 expected = to_host(total, 1)[0];
    CHECK(cudaMemset(total, 0, 8));
    launch(true);
    require(to_host(total, 1)[0] == expected && expected != 0, std::string("l2_lookup_rate: sum, ") + method);
    w.steps = (int)(bytes_per_sm / ctas / w.slot_bytes) / SLOTS * SLOTS;
    std::vector<double> per_cycle, per_s, clock;
    int used = 0;
    for (int i = 0; i < repeats + 2; ++i) {
      launch(false);
      Rate r = rate_of(to_host(stamps, grid), (double)w.steps * w.slot_bytes);
      if (i < 2) continue;
      per_cycle.push_back(r.chip_bytes_per_cycle);
      per_s.push_back(r.chip_bytes_per_s);
      clock.push_back(r.clock_hz);
      used = r.sms;
    }
    Json j("l2_lookup_rate");
    j.put("method", method).put("walk", w.permuted ? "permuted" : "private").put("set_bytes", w.set).put("group", w.group);
    j.put("active_sms", used).put("ctas_per_sm", ctas).put("slot_bytes", w.slot_bytes).put("steps", w.steps);
    j.put("bytes_per_cycle", median(per_cycle)).put("bytes_per_cycle_per_sm", median(per_cycle) / used);
    j.put("bytes_per_s", median(per_s)).put("clock_hz", median(clock)).put("spread", spread(per_cycle));
    // what Nsight Compute sees of the last launch: copies run ahead of what is counted
    j.put("asked_bytes", (size_t)w.slot_bytes * (w.steps + (bulk ? SLOTS : SLOTS - 1)) * grid).put("launches", repeats + 3).emit();
  };

  const size_t mib = 1 << 20, set = 20 * mib;
  for (const char* method : {"cp_async", "bulk"}) {
    for (int ctas : {1, 2, 4, 8}) {
      measure(method, sms, ctas, {set, 1, 0, 0, 0});
      measure(method, sms, ctas, {16 * mib, 1, 1, 0, 0});
    }
    for (size_t other : {16 * mib, 24 * mib, 28 * mib, 32 * mib, 48 * mib}) measure(method, sms, 1, {other, 1, 0, 0, 0});
    for (int ctas : {1, 2, 4})
      for (int group : {2, 4, 8, 16, 33, sms * ctas}) measure(method, sms, ctas, {set, group, 0, 0, 0});
    for (int active : {1, 2, 8, 16, 33, 66, 99, 120}) measure(method, active, 1, {set, 1, 0, 0, 0});
  }
  return 0;
}
