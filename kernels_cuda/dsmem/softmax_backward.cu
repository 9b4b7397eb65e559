/* softmax_backward: dz = p (dy - sum p dy) with p = softmax z, from the logits z.
   Shapes     z, dy, dz: (rows, cols) row-major, all float or all bf16; any rows >= 1, cols >= 1
   Launch     row_launch.cuh: cluster P = 2, 4, 8, 16, staged and reread; block <= 512, persistent or one row a CTA
   On chip    z and dy of a slice in a ring of slots and in registers (see row_kernel.cuh)
   Traffic    12 B per element in float (z, dy, dz) from DRAM; reread: 20 B
   Work       about 9 flop and 2.25 exponentials per element    Bound  dram
   Exchange   one a row, 3 floats a CTA: maximum, sum of exponentials and their product with dy, rescaled as the maximum grows
   Checked    against a float64 loop on rows of normal numbers, with mean 1000 and of equal numbers: 2e-5 (mean 1000: 5e-4) of
              the row's root mean square, plus 2^-8 of a value in bf16                  Model  tilesight/dsmem
   Reference  Milakov, Gimelshein, "Online Normalizer Calculation for Softmax" (2018)
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v softmax_backward.cu -o softmax_backward
   Run        ./softmax_backward --rows 4096 --cols 65536       one JSON line a variant */
#include <cfloat>

#include "row_main.cuh"
using namespace ts;

struct OnlineSoftmax {
  float most = -FLT_MAX, sum = 0, dot = 0;  // maximum; sums of exp(z - maximum) and of its product with dy
  __device__ void merge(const OnlineSoftmax& b) {
    const float top = fmaxf(most, b.most), here = __expf(most - top), there = __expf(b.most - top);
    sum = sum * here + b.sum * there;
    dot = dot * here + b.dot * there;
    most = top;
  }
};

struct SoftmaxBackward {
  static constexpr const char* NAME = "softmax_backward";
  static constexpr int INPUTS = 2, STATISTIC_INPUTS = 2, SHARED = 0, OUTPUTS = 1;  // z, dy; dz
  static constexpr bool ROW_SCALAR = false, EXACT = false;
  template <class T> using Out = T;

  __host__ __device__ static float sample(int input, float normal, int kind) {
    if (input == 0) return kind == LARGE_MEAN ? 1000 + 4 * normal : kind == EQUAL ? 3 : 2 * normal;
    return normal;
  }
  static void reference(const Row& in, Row& out, double&, double&) {
    const auto &z = in[0], &dy = in[1];
    const double most = *std::max_element(z.begin(), z.end());
    double sum = 0, dot = 0;
    for (size_t i = 0; i < z.size(); ++i) sum += std::exp(z[i] - most), dot += std::exp(z[i] - most) * dy[i];
    for (size_t i = 0; i < z.size(); ++i) out[0][i] = std::exp(z[i] - most) / sum * (dy[i] - dot / sum);
  }

  using Partial = OnlineSoftmax;
  struct Running {
    OnlineSoftmax p;
    template <int V> __device__ void start(const float (&)[2][V]) {}
    template <int V> __device__ void add(const float (&v)[2][V], int count) {
      float top = p.most, e[V], d[V];
#pragma unroll
      for (int i = 0; i < V; ++i) top = fmaxf(top, i < count ? v[0][i] : -FLT_MAX);
      const float here = __expf(p.most - top);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        e[i] = i < count ? __expf(v[0][i] - top) : 0;
        d[i] = i < count ? e[i] * v[1][i] : 0;
      }
      p.sum = p.sum * here + sum_of(e);
      p.dot = p.dot * here + sum_of(d);
      p.most = top;
    }
    __device__ Partial close() const { return p; }
  };
  struct Final { float most, scale, mean; };  // dz = exp(z - most) scale (dy - mean)
  __device__ static Final finish(const Partial& p, int) { return {p.most, 1 / p.sum, p.dot / p.sum}; }
  template <int V> __device__ static void apply(const Final& f, const float (&v)[2][V], float (&out)[1][V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = __expf(v[0][i] - f.most) * f.scale * (v[1][i] - f.mean);
  }
  __device__ static float scalar(const Final&) { return 0; }
};

int main(int argc, char** argv) { return row_main<SoftmaxBackward>(argc, argv, 4096); }
