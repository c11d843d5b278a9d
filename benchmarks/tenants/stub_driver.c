/*
 * stub_driver.c - a driver whose launches, allocations and copies to the device do nothing, so that what is measured is
 * the hook alone. It is linked into the simulated driver before its own sources: whatever is not defined here is that
 * driver's, so attaching and contexts are the simulated device's own. Built and used by benchmarks/overhead.py only.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/prim.h"
#include "simgpu/constants.h"

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared_bytes, void *stream, void **parameters, void **extra);
PUBLIC int cuGraphLaunch(void *graph, void *stream);
PUBLIC int cuMemAlloc_v2(uint64_t *ret_pointer, size_t bytes);
PUBLIC int cuMemFree_v2(uint64_t pointer);
PUBLIC int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);

#ifdef STUB_PAID
static void pay(uint64_t cost_ns) {
  for (uint64_t begin_ns = vg_prim_now_ns(); vg_prim_now_ns() - begin_ns < cost_ns;) {
  }
}
#else
static void pay(uint64_t cost_ns) {
  (void)cost_ns;
}
#endif

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void *stream, void **parameters, void **extra) {
  __asm__ volatile("" ::"r"(function), "r"(gx), "r"(gy), "r"(gz), "r"(bx), "r"(by), "r"(bz), "r"(shared_bytes),
                   "r"(stream), "r"(parameters), "m"(extra));
  pay(SIM_LAUNCH_COST_NS);
  return 0;
}

int cuGraphLaunch(void *graph, void *stream) {
  __asm__ volatile("" ::"r"(graph), "r"(stream));
  pay(SIM_LAUNCH_COST_NS);
  return 0;
}

/* An address in the middle of nowhere, aligned as the driver aligns; every thread gets the same, and never uses it. */
int cuMemAlloc_v2(uint64_t *ret_pointer, size_t bytes) {
  static __thread char own; /* threads must not hand the same block out at the same time */
  *ret_pointer = 0x700000000000u + (((uint64_t)(uintptr_t)&own & 0xffffff000u) << 4) + (bytes >= 2097152 ? 0 : 512);
  return 0;
}

int cuMemFree_v2(uint64_t pointer) {
  __asm__ volatile("" ::"r"(pointer));
  return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  __asm__ volatile("" ::"r"(to), "r"(from), "r"(bytes), "r"(stream));
  return 0;
}

#ifdef STUB_EVENTS
/* Events that are complete at once. With STUB_PAID launches and recordings cost the calling thread what they cost over
 * the simulated driver, and a launch that was timed took half a microsecond; else they cost nothing, and it took next
 * to nothing. */
PUBLIC int cuEventCreate(void **ret_event, unsigned flags);
PUBLIC int cuEventDestroy_v2(void *event);
PUBLIC int cuEventRecord(void *event, void *stream);
PUBLIC int cuEventQuery(void *event);
PUBLIC int cuEventElapsedTime(float *ret_ms, void *begin, void *end);

static char timing_event, plain_event;

int cuEventCreate(void **ret_event, unsigned flags) {
  *ret_event = flags & 2 /* CU_EVENT_DISABLE_TIMING */ ? &plain_event : &timing_event;
  return 0;
}

int cuEventDestroy_v2(void *event) {
  (void)event;
  return 0;
}

int cuEventRecord(void *event, void *stream) {
  (void)stream;
  pay(event == &timing_event ? SIM_RECORD_TIMING_COST_NS : SIM_RECORD_COST_NS);
  return 0;
}

int cuEventQuery(void *event) {
  (void)event;
  return 0;
}

int cuEventElapsedTime(float *ret_ms, void *begin, void *end) {
  (void)begin;
  (void)end;
#ifdef STUB_PAID
  *ret_ms = 0.0005F;
#else
  *ret_ms = 0.000005F;
#endif
  return 0;
}
#endif
