/*
 * program.h - for the C programs of tests/sim: they are linked to the simulated libcuda.so.1, say what they found as
 * JSON lines on stdout, and end with 1 at the first call that answers something else than expected.
 */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H
#include "gen/abi/cuda_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(code, call)                                                                                             \
  do {                                                                                                                 \
    CUresult got_ = (call);                                                                                            \
    if (got_ != (CUresult)(code)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s: %d, expected %d\n", __FILE__, __LINE__, #call, (int)got_, (int)(code));              \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define CHECK(call) EXPECT(CUDA_SUCCESS, call)
#define TRUE(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static inline unsigned long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

/* A context on device 0, current. */
static inline CUcontext begin(void) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  return context;
}

/* A kernel that takes so many microseconds: the model file has rules for spin_10, spin_20, spin_100 and so on. */
static inline CUfunction spin(unsigned us) {
  char text[256];
  CUmodule module;
  CUfunction function;
  snprintf(text, sizeof text, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry spin_%u()\n{\nret;\n}\n",
           us);
  CHECK(cuModuleLoadData(&module, text));
  snprintf(text, sizeof text, "spin_%u", us);
  CHECK(cuModuleGetFunction(&function, module, text));
  return function;
}

static inline void launch(CUfunction function, CUstream stream) {
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

#endif
