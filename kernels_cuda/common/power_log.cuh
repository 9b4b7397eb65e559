/* power_log.cuh: power, energy and clocks of the GPU, read through NVML by a host thread while kernels run.
   The library is opened at run time (no header, no link). Nothing is set, only read.
   Units      W, J, Hz; host seconds of the steady clock
   Reference  NVML API: nvmlDeviceGetFieldValues (185 average, 186 instant power; scope 0 GPU, 2 memory) */
#pragma once
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "tilesight.cuh"

namespace ts {

inline double host_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline void sleep_s(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

struct PowerSample { double host_s, power_w, power_average_w, memory_power_w, energy_j, sm_clock_hz, temperature_c; unsigned long long reasons; };

class PowerLog {
  struct FieldValue { unsigned field, scope; long long timestamp, latency_us; int type, status; union { double d; unsigned ui; unsigned long long ull; } value; };
  void *lib_ = nullptr, *device_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::mutex lock_;
  std::vector<PowerSample> samples_;
  template <class F> F symbol(const char* name) { return lib_ ? (F)dlsym(lib_, name) : nullptr; }

  double field_w(unsigned field, unsigned scope) {
    static auto get = symbol<int (*)(void*, int, FieldValue*)>("nvmlDeviceGetFieldValues");
    FieldValue v = {};
    v.field = field, v.scope = scope;
    if (!get || get(device_, 1, &v) != 0 || v.status != 0) return NAN;
    return (v.type == 0 ? v.value.d : v.type == 1 ? v.value.ui : (double)v.value.ull) * 1e-3;
  }
  PowerSample read() {
    static auto energy = symbol<int (*)(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    static auto clock = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    static auto heat = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetTemperature");
    static auto why = symbol<int (*)(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
    PowerSample s = {host_s(), field_w(186, 0), field_w(185, 0), field_w(186, 2), NAN, NAN, NAN, 0};
    unsigned long long mj = 0;
    unsigned mhz = 0, celsius = 0;
    if (energy && energy(device_, &mj) == 0) s.energy_j = mj * 1e-3;
    if (clock && clock(device_, 1, &mhz) == 0) s.sm_clock_hz = mhz * 1e6;
    if (heat && heat(device_, 0, &celsius) == 0) s.temperature_c = celsius;
    if (why) why(device_, &s.reasons);
    return s;
  }

 public:
  explicit PowerLog(double period_s = 5e-3) {
    lib_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    auto init = symbol<int (*)()>("nvmlInit_v2");
    auto handle = symbol<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    if (!init || init() != 0 || !handle || handle(0, &device_) != 0) {
      std::fprintf(stderr, "power_log: NVML is absent; power columns stay empty\n");
      return;
    }
    thread_ = std::thread([this, period_s] {
      while (!stop_) {
        PowerSample s = read();
        { std::lock_guard<std::mutex> hold(lock_); samples_.push_back(s); }
        sleep_s(period_s);
      }
    });
  }
  ~PowerLog() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::vector<PowerSample> between(double from_s, double to_s) {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<PowerSample> out;
    for (const PowerSample& s : samples_)
      if (s.host_s >= from_s && s.host_s <= to_s) out.push_back(s);
    return out;
  }
  template <class F> double median_of(double from_s, double to_s, F value) {
    std::vector<double> v;
    for (const PowerSample& s : between(from_s, to_s))
      if (std::isfinite(value(s))) v.push_back(value(s));
    return median(v);
  }
  // Counted energy over counted time inside the window: whole updates of the counter only.
  double mean_power_w(double from_s, double to_s) {
    auto v = between(from_s, to_s);
    std::vector<size_t> steps;
    for (size_t i = 1; i < v.size(); ++i)
      if (v[i].energy_j > v[i - 1].energy_j) steps.push_back(i);
    if (steps.size() < 2) return NAN;
    const PowerSample &a = v[steps.front()], &b = v[steps.back()];
    return (b.energy_j - a.energy_j) / (b.host_s - a.host_s);
  }
};

// NVML columns of a run that lasted from `from_s` to `to_s`, its second half taken as steady.
inline void put_power(Json& j, PowerLog& log, double idle_from_s, double from_s, double to_s) {
  double half_s = from_s + 0.5 * (to_s - from_s);
  j.put("idle_power_w", log.median_of(idle_from_s, from_s, [](const PowerSample& s) { return s.power_w; }));
  j.put("power_w", log.median_of(half_s, to_s, [](const PowerSample& s) { return s.power_w; }));
  j.put("power_average_w", log.median_of(to_s - 0.05, to_s, [](const PowerSample& s) { return s.power_average_w; }));
  j.put("memory_power_w", log.median_of(half_s, to_s, [](const PowerSample& s) { return s.memory_power_w; }));
  j.put("energy_rate_w", log.mean_power_w(half_s, to_s));
  j.put("nvml_clock_hz", log.median_of(half_s, to_s, [](const PowerSample& s) { return s.sm_clock_hz; }));
  j.put("temperature_c", log.median_of(half_s, to_s, [](const PowerSample& s) { return s.temperature_c; }));
  unsigned long long reasons = 0;
  for (const PowerSample& s : log.between(from_s, to_s)) reasons |= s.reasons;
  j.put("clock_event_reasons", (long long)reasons);
}

}  // namespace ts
