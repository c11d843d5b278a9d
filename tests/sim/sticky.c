/*
 * sticky: a kernel faults; what its context answers from then on, what another context does, and that the context's end
 * is the end of it. Code of the fault: $FAULT, by a kernel of that name; without it the test's VGPU_SIM_FAIL provokes
 * 719 at the second launch. With an argument it waits at the end, with something of each context charged.
 */
#include "program.h"

static CUcontext faulty, healthy;
static CUfunction kernel;
static _Atomic int called, called_with = -1; /* no synchronization is promised by a call that answers a fault */

static CUfunction function(const char *name) {
  char text[256];
  CUmodule module;
  CUfunction function;
  snprintf(text, sizeof text, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry %s()\n{\ntrap;\n}\n",
           name);
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&function, module, name));
  return function;
}

static void call(void *argument) {
  called += *(int *)argument;
}

static void call_old(CUstream stream, CUresult status, void *argument) {
  (void)stream, (void)argument;
  called_with = (int)status;
}

static size_t free_bytes(void) {
  size_t bytes, total;
  CHECK(cuCtxPushCurrent_v2(healthy));
  CHECK(cuCtxSynchronize()); /* pools give back what is not used */
  CHECK(cuMemGetInfo_v2(&bytes, &total));
  CHECK(cuCtxPopCurrent_v2(NULL));
  return bytes;
}

/* Everything in the context answers the code, also through handles while another context is current. */
static void all_answer(int code, CUstream stream, CUevent event, CUdeviceptr pointer, CUfunction good) {
  CUdeviceptr other;
  CUstream new_stream;
  size_t bytes, total;
  char byte;
  EXPECT(code, cuStreamQuery(stream));
  EXPECT(code, cuStreamSynchronize(NULL));
  EXPECT(code, cuCtxSynchronize());
  EXPECT(code, cuMemAlloc_v2(&other, 1 << 20));
  EXPECT(code, cuMemAllocAsync(&other, 1 << 20, stream));
  EXPECT(code, cuMemFree_v2(pointer));
  EXPECT(code, cuMemcpyDtoH_v2(&byte, pointer, 1));
  EXPECT(code, cuMemsetD8_v2(pointer, 0, 1));
  EXPECT(code, cuMemGetInfo_v2(&bytes, &total));
  EXPECT(code, cuLaunchKernel(good, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  EXPECT(code, cuStreamCreate(&new_stream, 0));
  EXPECT(code, cuEventRecord(event, stream));
  CHECK(cuCtxPushCurrent_v2(healthy));
  EXPECT(code, cuStreamSynchronize(stream));
  EXPECT(code, cuEventQuery(event));
  EXPECT(code, cuEventSynchronize(event));
  EXPECT(code, cuCtxSynchronize_v2(faulty));
  EXPECT(code, cuStreamDestroy_v2(stream));
  CHECK(cuMemAlloc_v2(&other, 1 << 20));
  CHECK(cuMemFree_v2(other));
  launch(kernel, NULL);
  CHECK(cuCtxSynchronize());
  CHECK(cuCtxPopCurrent_v2(NULL));
}

/* The primary context of the device, or with $CREATED one that is made. Current from then on. */
static void begin_faulty(void) {
  if (getenv("CREATED")) {
    CHECK(cuCtxCreate_v2(&faulty, 0, 0));
    return;
  }
  CHECK(cuDevicePrimaryCtxRetain(&faulty, 0));
  CHECK(cuCtxPushCurrent_v2(faulty));
}

static void end_faulty(void) {
  unsigned flags;
  int active;
  if (getenv("CREATED")) {
    CHECK(cuCtxDestroy_v2(faulty));
    return;
  }
  CHECK(cuDevicePrimaryCtxReset_v2(0));
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  TRUE(!active);
  CHECK(cuCtxPopCurrent_v2(NULL));
}

int main(int argc, char **argv) {
  const char *name = getenv("FAULT"), *hold = argc > 1 ? argv[1] : NULL;
  int code = name ? atoi(strchr(name, '_') + 1) : CUDA_ERROR_LAUNCH_FAILED, one = 1, ten = 10;
  CUstream stream, behind;
  CUevent event;
  CUdeviceptr pointer, value;

  healthy = begin();
  kernel = spin(100);
  size_t before = free_bytes();
  begin_faulty();
  CUfunction good = spin(10), bad = name ? function(name) : good;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&behind, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, 0));
  CHECK(cuMemAlloc_v2(&pointer, 64 << 20));
  CHECK(cuMemAllocAsync(&value, 4, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuStreamWaitValue32_v2(behind, value, 1, CU_STREAM_WAIT_VALUE_EQ)); /* nothing will write it */
  launch(good, stream);
  CHECK(cuLaunchHostFunc(stream, call, &one));
  if (name) {
    launch(bad, stream);
    cuLaunchHostFunc(stream, call, &ten); /* may answer the fault already */
    cuStreamAddCallback(behind, call_old, NULL, 0);
    EXPECT(code, cuStreamSynchronize(stream));
    TRUE(called == 1);
  } else {
    CHECK(cuStreamAddCallback(behind, call_old, NULL, 0));
    EXPECT(code, cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  }
  all_answer(code, stream, event, pointer, good);
  end_faulty(); /* waits: nothing keeps it */
  TRUE(called <= 1);
  TRUE(called_with == code || (name && called_with == -1));
  TRUE(free_bytes() == before);

  begin_faulty();
  CHECK(cuMemAlloc_v2(&pointer, 64 << 20));
  launch(spin(10), NULL);
  CHECK(cuCtxSynchronize());
  end_faulty();
  TRUE(free_bytes() == before);
  begin_faulty();
  CHECK(cuCtxSetCurrent(healthy));
  CHECK(cuMemAlloc_v2(&pointer, 32 << 20));
  puts("ok");
  fflush(stdout);
  if (hold) getchar(); /* until it was looked at */
  return 0;
}
