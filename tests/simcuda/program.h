/*
 * program.h - for the C programs of tests/simcuda: they are linked to the simulated driver and to libraries of the
 * simulated device, and declare what they use of them, as no header of NVIDIA's is here. They end with 1 at the first
 * thing that is not so.
 */
#ifndef SIMCUDA_PROGRAM_H
#define SIMCUDA_PROGRAM_H
#include "gen/abi/cuda_abi.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(code, call)                                                                                             \
  do {                                                                                                                 \
    int got_ = (int)(call);                                                                                            \
    if (got_ != (code)) {                                                                                              \
      fprintf(stderr, "%s:%d: %s: %d, expected %d\n", __FILE__, __LINE__, #call, got_, (code));                        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define CHECK(call) EXPECT(0, call)
#define TRUE(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static CUcontext context;
static CUstream stream;
static CUevent events[2];
static CUfunction spin;

/* A context on device 0 with a stream. */
static inline void begin(void) {
  static const char image[] =
      ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry spin_10000()\n{\nret;\n}\n";
  CUmodule module;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 2; i++) CHECK(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
  CHECK(cuModuleLoadData(&module, image));
  CHECK(cuModuleGetFunction(&spin, module, "spin_10000"));
}

/* Work that is put into the stream between these two: how long the device takes for it. A kernel of 10 ms goes ahead,
 * so that the host is done with all of it before it begins. */
static inline void begin_work(void) {
  CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CHECK(cuEventRecord(events[0], stream));
}

static inline double end_work_us(void) {
  float elapsed_ms;
  CHECK(cuEventRecord(events[1], stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventElapsedTime_v2(&elapsed_ms, events[0], events[1]));
  return elapsed_ms * 1e3;
}

static inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr memory;
  CHECK(cuMemAlloc_v2(&memory, bytes));
  return memory;
}

/* Whether the values are within 5 percent, and 3 us, of each other. */
static inline bool is_about(double value, double wanted) {
  double distance = value > wanted ? value - wanted : wanted - value;
  if (distance <= 0.05 * wanted + 3) return true;
  fprintf(stderr, "%g instead of %g\n", value, wanted);
  return false;
}

#endif
