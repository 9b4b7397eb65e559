/* pearson_backward: gradients of the correlation rho of x and y for an upstream gradient of 1:
   dx = (yc - rho sqrt(syy / sxx) xc) / sqrt(sxx syy), dy alike, with xc = x - mean, sxx = sum xc^2; a zero variance gives zeros.
   Shapes     x, y, dx, dy: (rows, cols) row-major, all float or all bf16; any rows >= 1, cols >= 1
   Launch     row_launch.cuh: cluster P = 2, 4, 8, 16, staged and reread; block <= 512, persistent or one row a CTA
   On chip    x and y of a slice in a ring of slots and in registers (see row_kernel.cuh)
   Traffic    16 B per element in float (x, y, dx, dy) from DRAM; reread: 24 B
   Work       about 17 flop per element                        Bound  dram
   Exchange   one a row, 6 floats a CTA: means, variances and covariance merge in one pass
   Checked    against a float64 loop on rows of normal numbers, with mean 1000 and of equal numbers: 2e-5 (mean 1000: 5e-4) of
              the row's root mean square, plus 2^-8 of a value in bf16                  Model  tilesight/dsmem
   Reference  Chan, Golub, LeVeque (1979); Schubert, Gertz, "Numerically Stable Parallel Computation of (Co-)Variance" (2018)
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v pearson_backward.cu -o pearson_backward
   Run        ./pearson_backward --rows 4096 --cols 65536       one JSON line a variant */
#include "row_main.cuh"
using namespace ts;

struct CoMoments {
  float n, x, y, xx, yy, xy;  // count, means, centred sums of products
  __device__ void merge(const CoMoments& b) {
    const float sum = n + b.n, share = n > 0 ? __fdividef(b.n, sum) : 1, dx = b.x - x, dy = b.y - y;
    const float to_x = dx * share, to_y = dy * share;
    xx += b.xx + dx * to_x * n;
    yy += b.yy + dy * to_y * n;
    xy += b.xy + dx * to_y * n;
    x += to_x;
    y += to_y;
    n = sum;
  }
};

struct PearsonBackward {
  static constexpr const char* NAME = "pearson_backward";
  static constexpr int INPUTS = 2, STATISTIC_INPUTS = 2, SHARED = 0, OUTPUTS = 2;  // x, y; dx, dy
  static constexpr bool ROW_SCALAR = false, EXACT = false;
  template <class T> using Out = T;

  __host__ __device__ static float sample(int input, float normal, int kind) {
    if (kind == EQUAL && input == 0) return 3;
    return (kind == LARGE_MEAN ? 1000 : 0) + normal + (input == 1 ? 0.25f : 0);
  }
  static void reference(const Row& in, Row& out, double&, double&) {
    const auto &x = in[0], &y = in[1];
    const size_t n = x.size();
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < n; ++i) mx += x[i] / n, my += y[i] / n;
    for (size_t i = 0; i < n; ++i) {
      const double a = x[i] - mx, b = y[i] - my;
      xx += a * a, yy += b * b, xy += a * b;
    }
    const bool flat = n == 1 || *std::min_element(x.begin(), x.end()) == *std::max_element(x.begin(), x.end()) ||
                      *std::min_element(y.begin(), y.end()) == *std::max_element(y.begin(), y.end());
    for (size_t i = 0; i < n; ++i) {
      const double a = x[i] - mx, b = y[i] - my, s = std::sqrt(xx * yy);
      out[0][i] = flat ? 0 : (b - xy / xx * a) / s;
      out[1][i] = flat ? 0 : (a - xy / yy * b) / s;
    }
  }

  using Partial = CoMoments;
  struct Running {
    float shift_x, shift_y, n, x, y, xx, yy, xy;
    template <int V> __device__ void start(const float (&v)[2][V]) { shift_x = v[0][0], shift_y = v[1][0]; }
    template <int V> __device__ void add(const float (&v)[2][V], int count) {
      float a[V], b[V], aa[V], bb[V], ab[V];
#pragma unroll
      for (int e = 0; e < V; ++e) {
        a[e] = e < count ? v[0][e] - shift_x : 0, b[e] = e < count ? v[1][e] - shift_y : 0;
        aa[e] = a[e] * a[e], bb[e] = b[e] * b[e], ab[e] = a[e] * b[e];
      }
      n += count;
      x += sum_of(a), y += sum_of(b), xx += sum_of(aa), yy += sum_of(bb), xy += sum_of(ab);
    }
    __device__ Partial close() const {
      const float a = n > 0 ? x / n : 0, b = n > 0 ? y / n : 0;
      return {n, shift_x + a, shift_y + b, fmaxf(xx - x * a, 0), fmaxf(yy - y * b, 0), xy - x * b};
    }
  };
  struct Final { float x, y, scale, by_x, by_y; };
  __device__ static Final finish(const Partial& p, int) {
    if (!(p.xx > 0 && p.yy > 0)) return {p.x, p.y, 0, 0, 0};
    const float scale = rsqrtf(p.xx) * rsqrtf(p.yy);
    return {p.x, p.y, scale, p.xy / p.xx * scale, p.xy / p.yy * scale};
  }
  template <int V> __device__ static void apply(const Final& f, const float (&v)[2][V], float (&out)[2][V]) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const float a = v[0][e] - f.x, b = v[1][e] - f.y;
      out[0][e] = f.scale * b - f.by_x * a;
      out[1][e] = f.scale * a - f.by_y * b;
    }
  }
  __device__ static float scalar(const Final&) { return 0; }
};

int main(int argc, char** argv) { return row_main<PearsonBackward>(argc, argv, 4096); }
