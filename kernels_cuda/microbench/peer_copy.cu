/* peer_copy: cudaMemcpyPeerAsync between two GPUs, by size, one way and both ways at once.
   Shapes     4 KiB..1 GiB of random words, sizes times 4
   Launch     the driver's copies; pairs: every ordered pair of GPUs, with more than 4 GPUs 0 with each other and neighbours
   On chip    none of ours
   Traffic    the size, read from one GPU's memory and written to the other's
   Work       none                                           Bound  latency when small, link when large
   Parts      stream: seconds a copy of several queued behind a spinning kernel, so that the host is not in the time;
              single: one copy between two events. ways 2: as many copies back at the same time (bytes_per_s: one way)
   Checked    destination poisoned; then every word against its formula
   Model      link: alpha_s, beta_s_per_byte of copies (T = alpha + n beta)
   Reference  Hockney, Parallel Computing 20 (1994); CUDA Runtime API, cudaMemcpyPeerAsync
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v peer_copy.cu -o peer_copy
   Run        ./peer_copy --repeats 9                          one JSON line a point (needs two GPUs) */
#include "../common/peer.cuh"
using namespace ts;

constexpr size_t MOST = (size_t)1 << 30;

__global__ void count_wrong(const uint32_t* p, size_t words, uint64_t seed, unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    mine += p[i] != hash32(i + (seed << 40));
  if (mine) atomicAdd(wrong, mine);
}

void check_copy(const Gpu& from, const Gpu& to, size_t bytes) {
  CHECK(cudaSetDevice(to.id));
  CHECK(cudaMemset(to.result, 0, 8));
  count_wrong<<<1056, 256>>>((const uint32_t*)to.scratch, bytes / 4, data_seed(from), to.result);
  CHECK_LAUNCH();
  require(to_host(to.result, 1)[0] == 0, "peer_copy: contents");
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9);
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  if (count < 2) return Json("peer_copy").put("part", "skipped").put("reason", "one GPU").emit(), 0;
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back(open_gpu(i, MOST));
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (a != b && (count <= 4 || a == 0 || b == (a + 1) % count)) pairs.push_back({a, b});
  for (auto [i, j] : pairs) {
    const Gpu &a = gpus[i], &b = gpus[j];
    const bool access = enable_peers(a.id, b.id);
    for (size_t bytes = 4096; bytes <= MOST; bytes *= 4)
      for (bool both : {false, true}) {
        if (both && i > j) continue;
        for (const Gpu* g : {&a, &b}) {
          CHECK(cudaSetDevice(g->id));
          poison(g->scratch, bytes);
        }
        sync_both(a, b);
        auto copy = [&](const Gpu& x, const Gpu& y) { CHECK(cudaMemcpyPeerAsync(y.scratch, y.id, x.data, x.id, bytes, x.stream)); };
        const int copies = bytes <= (1 << 20) ? 20 : bytes <= (64 << 20) ? 5 : 1;
        auto t = time_runs(a, b, both, copies, repeats, 2000000, copy);
        check_copy(a, b, bytes);
        if (both) check_copy(b, a, bytes);
        for (bool single : {false, true}) {
          if (single && (both || bytes > (1 << 20))) continue;
          if (single) t = time_runs(a, b, false, 1, repeats, 0, copy);
          Json j("peer_copy");
          j.put("part", single ? "single" : "stream").put("from", a.id).put("to", b.id).put("peer_access", access ? 1 : 0);
          j.put("ways", both ? 2 : 1).put("bytes", bytes).put("copies", single ? 1 : copies).put("seconds", median(t));
          j.put("bytes_per_s", bytes / median(t)).put("spread", spread(t)).put("repeats", repeats).emit();
        }
      }
  }
  return 0;
}
