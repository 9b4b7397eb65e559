/* lars_momentum: one step of LARS with momentum, each row a layer: lr = 0.001 |w| / (|g| + 1e-4 |w| + 1e-9),
   m' = 0.9 m + lr (g + 1e-4 w), w' = w - m'.
   Shapes     w, g, m, w', m': (rows, cols) row-major, all float or all bf16 (weights and momentum too); any rows >= 1,
              cols >= 1; out of place
   Launch     row_launch.cuh: cluster P = 2, 4, 8, 16, staged and reread; block <= 512, persistent or one row a CTA
   On chip    w, g and m of a slice in a ring of slots and in registers (see row_kernel.cuh)
   Traffic    20 B per element in float (w, g, m, w', m') from DRAM; reread: 28 B, m once
   Work       about 9 flop per element                         Bound  dram
   Exchange   one a row, 2 floats a CTA: sums of squares of w and g
   Checked    against a float64 loop on rows of normal numbers, with mean 1000 and of equal numbers: 2e-5 (mean 1000: 5e-4) of
              the row's root mean square, plus 2^-8 of a value in bf16                  Model  tilesight/dsmem
   Reference  You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks" (2017)
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v lars_momentum.cu -o lars_momentum
   Run        ./lars_momentum --rows 4096 --cols 65536       one JSON line a variant */
#include "row_main.cuh"
using namespace ts;

constexpr float RATE = 0.001f, DECAY = 1e-4f, MOMENTUM = 0.9f, LEAST = 1e-9f;

struct Squares {
  float w, g;
  __device__ void merge(const Squares& b) { w += b.w, g += b.g; }
};

struct LarsMomentum {
  static constexpr const char* NAME = "lars_momentum";
  static constexpr int INPUTS = 3, STATISTIC_INPUTS = 2, SHARED = 0, OUTPUTS = 2;  // w, g, m; w', m'
  static constexpr bool ROW_SCALAR = false, EXACT = false;
  template <class T> using Out = T;

  __host__ __device__ static float sample(int input, float normal, int kind) {
    if (input == 0) return kind == LARGE_MEAN ? 1000 + normal : kind == EQUAL ? 0.5f : normal;
    return input == 2 ? 0.01f * normal : normal;
  }
  static void reference(const Row& in, Row& out, double&, double&) {
    const auto &w = in[0], &g = in[1], &m = in[2];
    double ww = 0, gg = 0;
    for (size_t i = 0; i < w.size(); ++i) ww += w[i] * w[i], gg += g[i] * g[i];
    const double lr = RATE * std::sqrt(ww) / (std::sqrt(gg) + DECAY * std::sqrt(ww) + LEAST);
    for (size_t i = 0; i < w.size(); ++i) {
      out[1][i] = MOMENTUM * m[i] + lr * (g[i] + DECAY * w[i]);
      out[0][i] = w[i] - out[1][i];
    }
  }

  using Partial = Squares;
  struct Running {
    Squares p;
    template <int V> __device__ void start(const float (&)[3][V]) {}
    template <int V> __device__ void add(const float (&v)[3][V], int count) {
      float w[V], g[V];
#pragma unroll
      for (int e = 0; e < V; ++e) {
        w[e] = e < count ? v[0][e] * v[0][e] : 0;
        g[e] = e < count ? v[1][e] * v[1][e] : 0;
      }
      p.w += sum_of(w), p.g += sum_of(g);
    }
    __device__ Partial close() const { return p; }
  };
  struct Final { float rate; };
  __device__ static Final finish(const Partial& p, int) {
    const float w = sqrtf(p.w);
    return {RATE * w / (sqrtf(p.g) + DECAY * w + LEAST)};
  }
  template <int V> __device__ static void apply(const Final& f, const float (&v)[3][V], float (&out)[2][V]) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      out[1][e] = MOMENTUM * v[2][e] + f.rate * (v[1][e] + DECAY * v[0][e]);
      out[0][e] = v[0][e] - out[1][e];
    }
  }
  __device__ static float scalar(const Final&) { return 0; }
};

int main(int argc, char** argv) { return row_main<LarsMomentum>(argc, argv, 4096); }
