/* weighted_standardisation_backward: W = sum w, mu = sum w x / W, r = rsqrt(sum w (x - mu)^2 / W + 1e-5), y = (x - mu) r,
   dx = r (g - (w / W) (sum g + y sum g y)); w > 0.
   Shapes     x, w, g, dx: (rows, cols) row-major, all float or all bf16; any rows >= 1, cols >= 1
   Launch     row_launch.cuh: cluster P = 2, 4, 8, 16, staged and reread; block <= 512, persistent or one row a CTA
   On chip    x, w and g of a slice in a ring of slots and in registers (see row_kernel.cuh)
   Traffic    16 B per element in float (x, w, g, dx) from DRAM; reread: 28 B
   Work       about 18 flop per element                        Bound  dram
   Exchange   one a row, 5 floats a CTA: W, mu, variance, sum g and sum g (x - mu) merge in one pass
   Checked    against a float64 loop on rows of normal numbers, with mean 1000 and of equal numbers: 2e-5 (mean 1000: 5e-4) of
              the row's root mean square, plus 2^-8 of a value in bf16                  Model  tilesight/dsmem
   Reference  West, "Updating Mean and Variance Estimates" (1979), for weights
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v weighted_standardisation_backward.cu -o weighted_standardisation_backward
   Run        ./weighted_standardisation_backward --rows 4096 --cols 65536       one JSON line a variant */
#include "moments.cuh"
#include "row_main.cuh"
using namespace ts;

struct WeightedStandardisationBackward {
  static constexpr const char* NAME = "weighted_standardisation_backward";
  static constexpr int INPUTS = 3, STATISTIC_INPUTS = 3, SHARED = 0, OUTPUTS = 1;  // x, w, g; dx
  static constexpr bool ROW_SCALAR = false, EXACT = false;
  template <class T> using Out = T;

  __host__ __device__ static float sample(int input, float normal, int kind) {
    if (input == 0) return kind == LARGE_MEAN ? 1000 + normal : kind == EQUAL ? 3 : normal;
    return input == 1 ? 0.1f + fabsf(normal) : normal;
  }
  static void reference(const Row& in, Row& out, double&, double& size) {
    const auto &x = in[0], &w = in[1], &g = in[2];
    const size_t n = x.size();
    double all = 0, mean = 0, var = 0, gs = 0, gy = 0;
    for (double v : w) all += v;
    for (size_t i = 0; i < n; ++i) mean += w[i] * x[i] / all;
    for (size_t i = 0; i < n; ++i) var += w[i] * (x[i] - mean) * (x[i] - mean) / all;
    const double r = 1 / std::sqrt(var + 1e-5);
    for (size_t i = 0; i < n; ++i) gs += g[i], gy += g[i] * (x[i] - mean) * r;
    for (size_t i = 0; i < n; ++i) size += std::fabs(r * g[i]) / n;
    for (size_t i = 0; i < n; ++i) out[0][i] = r * (g[i] - w[i] / all * (gs + (x[i] - mean) * r * gy));
  }

  using Partial = Moments;
  using Final = Gradient;
  struct Running {
    ShiftedMoments sums;
    template <int V> __device__ void start(const float (&v)[3][V]) { sums.start(v[0][0]); }
    template <int V> __device__ void add(const float (&v)[3][V], int count) { sums.add(v[0], v[1], v[2], count); }
    __device__ Partial close() const { return sums.close(); }
  };
  __device__ static Final finish(const Partial& p, int) { return Gradient::of(p); }
  template <int V> __device__ static void apply(const Final& f, const float (&v)[3][V], float (&out)[1][V]) {
#pragma unroll
    for (int e = 0; e < V; ++e) out[0][e] = f.r * v[2][e] - v[1][e] * (f.a + f.b * (v[0][e] - f.mean));
  }
  __device__ static float scalar(const Final&) { return 0; }
};

int main(int argc, char** argv) { return row_main<WeightedStandardisationBackward>(argc, argv, 4096); }
