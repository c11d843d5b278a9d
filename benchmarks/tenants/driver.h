/*
 * driver.h - the few driver entry points that the benchmark programs use, with prototypes of our own: no toolkit is
 * needed to build them. Found by dlopen("libcuda.so.1") and dlsym, as the CUDA runtime finds them, so that a preloaded
 * hook is met the usual way. One translation unit per program includes this.
 */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *handle;
typedef uint64_t device_pointer;

struct launch_config { /* of a launch with attributes: the driver's CUlaunchConfig */
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  handle stream;
  void *attributes;
  unsigned attribute_count;
};

#define DRIVER_FUNCTIONS(X)                                                                                            \
  X(cuInit, cuInit, (unsigned))                                                                                        \
  X(cuDeviceGet, cuDeviceGet, (int *, int))                                                                            \
  X(cuDeviceGetName, cuDeviceGetName, (char *, int, int))                                                              \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                                                     \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int))                                                            \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (handle *, int))                                               \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                                    \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (handle))                                                                        \
  X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                        \
  X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                                               \
  X(cuMemAlloc, cuMemAlloc_v2, (device_pointer *, size_t))                                                             \
  X(cuMemFree, cuMemFree_v2, (device_pointer))                                                                         \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, device_pointer, size_t))                                                   \
  X(cuMemsetD8, cuMemsetD8_v2, (device_pointer, unsigned char, size_t))                                                \
  X(cuModuleLoadData, cuModuleLoadData, (handle *, const void *))                                                      \
  X(cuModuleGetFunction, cuModuleGetFunction, (handle *, handle, const char *))                                        \
  X(cuLaunchKernel, cuLaunchKernel,                                                                                    \
    (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **))          \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,                                                              \
    (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **))                   \
  X(cuLaunchKernelEx, cuLaunchKernelEx, (const struct launch_config *, handle, void **, void **))                      \
  X(cuStreamCreate, cuStreamCreate, (handle *, unsigned))                                                              \
  X(cuStreamSynchronize, cuStreamSynchronize, (handle))                                                                \
  X(cuStreamQuery, cuStreamQuery, (handle))                                                                            \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (handle, int))                                                      \
  X(cuStreamEndCapture, cuStreamEndCapture, (handle, handle *))                                                        \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long))                  \
  X(cuGraphLaunch, cuGraphLaunch, (handle, handle))                                                                    \
  X(cuEventCreate, cuEventCreate, (handle *, unsigned))                                                                \
  X(cuEventRecord, cuEventRecord, (handle, handle))                                                                    \
  X(cuEventQuery, cuEventQuery, (handle))                                                                              \
  X(cuEventSynchronize, cuEventSynchronize, (handle))                                                                  \
  X(cuEventElapsedTime, cuEventElapsedTime, (float *, handle, handle))                                                 \
  X(cuGetProcAddress, cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))

enum {
  ATTRIBUTE_SM_COUNT = 16,
  EVENT_BLOCKING_SYNC = 1,
  EVENT_DISABLE_TIMING = 2,
  STREAM_NON_BLOCKING = 1,
  CAPTURE_GLOBAL = 0,
  CAPTURE_THREAD_LOCAL = 1
};
enum { CODE_SUCCESS = 0, CODE_OUT_OF_MEMORY = 2, CODE_NOT_READY = 600 };

struct driver {
  void *library;
#define X(member, symbol, parameters) int(*member) parameters;
  DRIVER_FUNCTIONS(X)
#undef X
};

/* Ends the program with one line when a driver call fails. */
#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    int code_ = (call);                                                                                                \
    if (code_ != CODE_SUCCESS) {                                                                                       \
      fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, code_);                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void driver_open(struct driver *driver, const char *path) {
  driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!driver->library) {
    fprintf(stderr, "no driver: %s\n", dlerror());
    exit(3);
  }
#define X(member, symbol, parameters)                                                                                  \
  *(void **)&driver->member = dlsym(driver->library, #symbol);                                                         \
  if (!driver->member) {                                                                                               \
    fprintf(stderr, "the driver has no %s\n", #symbol);                                                                \
    exit(3);                                                                                                           \
  }
  DRIVER_FUNCTIONS(X)
#undef X
}

/*
 * A kernel that does a fixed amount of work: every thread runs a chain of dependent multiply-adds, `rounds` times. On
 * the simulated device its time comes from the model file, by its name.
 */
static const char SPIN_PTX[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry %s(.param .u64 rounds, .param .u64 sink)\n{\n"
    " .reg .pred %%p<3>;\n .reg .f32 %%f<3>;\n .reg .b64 %%rd<5>;\n"
    " ld.param.u64 %%rd1, [rounds];\n ld.param.u64 %%rd2, [sink];\n"
    " mov.f32 %%f1, 0f3F800000;\n mov.u64 %%rd3, 0;\n"
    "LOOP:\n setp.ge.u64 %%p1, %%rd3, %%rd1;\n @%%p1 bra DONE;\n"
    " fma.rn.f32 %%f1, %%f1, 0f3F7FFFFF, 0f33D6BF95;\n add.u64 %%rd3, %%rd3, 1;\n bra LOOP;\n"
    "DONE:\n setp.neu.f32 %%p2, %%f1, 0f00000000;\n @%%p2 bra END;\n"
    " st.global.f32 [%%rd2], %%f1;\nEND:\n ret;\n}\n";

static inline handle spin_kernel(struct driver *driver, const char *name) {
  char text[2048];
  snprintf(text, sizeof text, SPIN_PTX, name);
  handle module, function;
  CHECK(driver->cuModuleLoadData(&module, text));
  CHECK(driver->cuModuleGetFunction(&function, module, name));
  return function;
}

/*
 * How many rounds make the spin kernel kernel_us long, measured on a launch of it. The simulated device answers what
 * its model file says and needs none of it.
 */
static inline uint64_t spin_rounds(struct driver *driver, handle function, unsigned grid, unsigned threads,
                                   device_pointer sink, uint64_t kernel_us) {
  uint64_t rounds = 20000;
  void *arguments[] = {&rounds, &sink};
  handle begin, end;
  float ms = 0;
  CHECK(driver->cuEventCreate(&begin, 0));
  CHECK(driver->cuEventCreate(&end, 0));
  for (int launch = 0; launch < 2; launch++) { /* the first warms up */
    CHECK(driver->cuEventRecord(begin, NULL));
    CHECK(driver->cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL));
    CHECK(driver->cuEventRecord(end, NULL));
    CHECK(driver->cuCtxSynchronize());
  }
  CHECK(driver->cuEventElapsedTime(&ms, begin, end));
  return ms > 0 ? (uint64_t)((double)rounds * (double)kernel_us / (1000 * (double)ms)) + 1 : rounds;
}

#endif
