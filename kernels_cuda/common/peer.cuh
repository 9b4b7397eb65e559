/* peer.cuh: two GPUs of one host: their buffers and streams, direct access, and timing of work on one or both of them.
   Units      seconds of one run, by events of the first GPU's stream
   Build      header only
   Reference  CUDA C++ Programming Guide, "Multi-Device System" */
#pragma once
#include "tilesight.cuh"

namespace ts {

struct Gpu {
  int id, sms;
  unsigned char *data, *scratch;  // random words; what the other GPU writes
  unsigned long long* result;     // eight words
  cudaStream_t stream;
  cudaEvent_t done;
};
inline uint64_t data_seed(const Gpu& g) { return 100 + g.id; }  // data word i is hash32(i + (seed << 40))

inline Gpu open_gpu(int id, size_t bytes) {
  CHECK(cudaSetDevice(id));
  Gpu g{id, 0, device_alloc<unsigned char>(bytes), device_alloc<unsigned char>(bytes), device_alloc<unsigned long long>(8), nullptr, nullptr};
  CHECK(cudaDeviceGetAttribute(&g.sms, cudaDevAttrMultiProcessorCount, id));
  CHECK(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&g.done, cudaEventDisableTiming));
  fill_words(g.data, bytes, data_seed(g));
  warm_up_clock(0.05);
  return g;
}
// Lets both kernels and copies of a and b reach the other's memory; false where the machine can't.
inline bool enable_peers(int a, int b) {
  int there = 0, back = 0;
  CHECK(cudaDeviceCanAccessPeer(&there, a, b));
  CHECK(cudaDeviceCanAccessPeer(&back, b, a));
  if (!there || !back) return false;
  for (auto [x, y] : {std::pair{a, b}, {b, a}}) {
    CHECK(cudaSetDevice(x));
    cudaError_t e = cudaDeviceEnablePeerAccess(y, 0);
    if (e != cudaErrorPeerAccessAlreadyEnabled) CHECK(e);
    cudaGetLastError();
  }
  return true;
}
inline void sync_both(const Gpu& a, const Gpu& b) {  // a is current afterwards
  for (const Gpu* g : {&b, &a}) {
    CHECK(cudaSetDevice(g->id));
    CHECK(cudaDeviceSynchronize());
  }
}

// Seconds of one of `runs` calls of work(a, b), which enqueues on a.stream; with `both`, as many of work(b, a) go on at the
// same time. spin_cycles: length of a kernel in front, behind which everything is queued before it is timed.
template <class F>
std::vector<float> time_runs(const Gpu& a, const Gpu& b, bool both, int runs, int repeats, long long spin_cycles, F work) {
  CHECK(cudaSetDevice(a.id));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> out;
  for (int i = 0; i < repeats + 1; ++i) {
    if (spin_cycles) spin_kernel<<<1, 32, 0, a.stream>>>(spin_cycles);
    CHECK(cudaEventRecord(begin, a.stream));
    for (int k = 0; k < runs; ++k) work(a, b);
    if (both) {
      CHECK(cudaSetDevice(b.id));
      CHECK(cudaStreamWaitEvent(b.stream, begin, 0));
      for (int k = 0; k < runs; ++k) work(b, a);
      CHECK(cudaEventRecord(b.done, b.stream));
      CHECK(cudaSetDevice(a.id));
      CHECK(cudaStreamWaitEvent(a.stream, b.done, 0));
    }
    CHECK(cudaEventRecord(end, a.stream));
    CHECK_LAUNCH();
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i) out.push_back(ms * 1e-3f / runs);
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  return out;
}

}  // namespace ts
