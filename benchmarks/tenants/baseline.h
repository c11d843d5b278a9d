/*
 * baseline.h - two plain ways to share a device that the arbiter is compared with, inside the load program itself (see
 * benchmarks/sharing/plain.py for what they are). Called by load.c before every launch; without --baseline it costs a
 * comparison. One translation unit per program includes this.
 *
 *   fixed:BEGIN:END:PERIOD   launches only in [BEGIN, END) us of every PERIOD us of CLOCK_MONOTONIC
 *   rate:MILLI               launches while its bucket of device time holds something; MILLI/1000 of the device
 */
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H
#include "driver.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RATE_LOOP_NS = 120000000, RATE_SLEEP_NS = 10000000, NVML_SAMPLES_MAX = 128 };

struct nvml_sample { /* nvmlProcessUtilizationSample_t */
  unsigned pid;
  unsigned long long stamp_us;
  unsigned sm_percent, memory_percent, encoder_percent, decoder_percent;
};

enum baseline_kind { BASELINE_NONE, BASELINE_FIXED, BASELINE_RATE };

struct baseline {
  enum baseline_kind kind;
  uint64_t begin_ns, end_ns, period_ns; /* fixed */
  double limit_percent;                 /* rate: the rest as well */
  double refill_ns;                     /* device time that comes into the bucket every RATE_LOOP_NS; the loop's own */
  _Atomic int64_t bucket_ns;
  pthread_t loop;
};

static inline void sleep_ns(uint64_t ns) {
  struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &left, NULL); /* a signal may end it early: the caller looks again */
}

/* Takes --baseline's value apart. Returns whether it is valid. */
static inline int baseline_parse(struct baseline *baseline, const char *text) {
  unsigned long long begin_us, end_us, period_us;
  unsigned milli;
  char rest;
  if (sscanf(text, "fixed:%llu:%llu:%llu%c", &begin_us, &end_us, &period_us, &rest) == 3) {
    baseline->kind = BASELINE_FIXED;
    baseline->begin_ns = begin_us * 1000;
    baseline->end_ns = end_us * 1000;
    baseline->period_ns = period_us * 1000;
    return begin_us < end_us && end_us <= period_us;
  }
  if (sscanf(text, "rate:%u%c", &milli, &rest) != 1) return 0;
  baseline->kind = BASELINE_RATE;
  baseline->limit_percent = milli / 10.0;
  return milli > 0 && milli <= 1000;
}

/* ---- rate ---- */

struct nvml {
  int (*get_samples)(handle, struct nvml_sample *, unsigned *, unsigned long long);
  handle device;
};

static inline struct nvml nvml_open(void) {
  struct nvml nvml = {0};
  int (*init)(void) = NULL, (*device_of)(unsigned, handle *) = NULL;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library) {
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&device_of = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.get_samples = dlsym(library, "nvmlDeviceGetProcessUtilization");
  }
  if (!init || !device_of || !nvml.get_samples || init() || device_of(0, &nvml.device)) {
    fprintf(stderr, "baseline: rate needs NVML, and there is none\n");
    exit(3);
  }
  return nvml;
}

/* The newest sampled utilisation of this process, in percent; 0 when NVML has none. */
static inline double sampled_percent(const struct nvml *nvml) {
  struct nvml_sample samples[NVML_SAMPLES_MAX];
  unsigned count = NVML_SAMPLES_MAX;
  const struct nvml_sample *newest = NULL;
  if (nvml->get_samples(nvml->device, samples, &count, 0)) return 0;
  for (unsigned i = 0; i < count; i++)
    if (samples[i].pid == (unsigned)getpid() && (!newest || samples[i].stamp_us > newest->stamp_us))
      newest = &samples[i];
  return newest ? newest->sm_percent : 0;
}

/* An integrating controller: the refill moves by the difference between limit and sample; the bucket holds one refill.
 */
static inline void *rate_loop(void *argument) {
  struct baseline *baseline = argument;
  struct nvml nvml = nvml_open();
  for (;;) {
    sleep_ns(RATE_LOOP_NS);
    double step_ns = (baseline->limit_percent - sampled_percent(&nvml)) / 100 * RATE_LOOP_NS / 4;
    baseline->refill_ns += step_ns;
    if (baseline->refill_ns < 0) baseline->refill_ns = 0;
    if (baseline->refill_ns > RATE_LOOP_NS) baseline->refill_ns = RATE_LOOP_NS;
    int64_t room_ns = (int64_t)baseline->refill_ns - atomic_load(&baseline->bucket_ns);
    if (room_ns > 0)
      atomic_fetch_add(&baseline->bucket_ns, room_ns < baseline->refill_ns ? room_ns : (int64_t)baseline->refill_ns);
  }
  return NULL;
}

/* ---- both ---- */

/* To be called once, before the first launch. */
static inline void baseline_begin(struct baseline *baseline) {
  if (baseline->kind != BASELINE_RATE) return;
  baseline->refill_ns = baseline->limit_percent / 100 * RATE_LOOP_NS;
  if (pthread_create(&baseline->loop, NULL, rate_loop, baseline)) {
    fprintf(stderr, "baseline: no thread\n");
    exit(1);
  }
}

/* Waits until a launch that is thought to take cost_ns may go. Returns early when *stopped. */
static inline void baseline_wait(struct baseline *baseline, uint64_t cost_ns, const volatile sig_atomic_t *stopped) {
  if (baseline->kind == BASELINE_FIXED) {
    uint64_t at_ns;
    while (!*stopped && ((at_ns = now_ns() % baseline->period_ns) < baseline->begin_ns || at_ns >= baseline->end_ns))
      sleep_ns((baseline->begin_ns + baseline->period_ns - at_ns) % baseline->period_ns);
  } else if (baseline->kind == BASELINE_RATE) {
    while (!*stopped && atomic_load(&baseline->bucket_ns) < 0) sleep_ns(RATE_SLEEP_NS);
    atomic_fetch_sub(&baseline->bucket_ns, (int64_t)cost_ns);
  }
}

#endif
