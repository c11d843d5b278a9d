/*
 * contexts: primary and own contexts: states, what their end gives back, the stack of a thread.
 */
#include "row.h"

static void primary_state(void) {
  CUcontext one, two;
  unsigned flags = 0;
  int active = 7;
  NEED(cuInit(0));
  CODE("state", cuDevicePrimaryCtxGetState(0, &flags, &active));
  fact("active", active);
  CODE("retain", cuDevicePrimaryCtxRetain(&one, 0));
  CODE("retain", cuDevicePrimaryCtxRetain(&two, 0));
  fact("same", one == two);
  CODE("release", cuDevicePrimaryCtxRelease_v2(0));
  NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
  fact("active", active);
  CODE("release", cuDevicePrimaryCtxRelease_v2(0));
  NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
  fact("active", active);
  CODE("release", cuDevicePrimaryCtxRelease_v2(0));
}

static void primary_not_destroyed(void) {
  CUcontext primary, now = NULL;
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&primary, 0));
  NEED(cuCtxGetCurrent(&now));
  fact("not_made_current", now == NULL);
  fact("refused", cuCtxDestroy_v2(primary) != CUDA_SUCCESS);
  CODE("still_there", cuCtxSetCurrent(primary));
}

/* Memory of the primary context, seen from a context beside it. */
static void end_primary(CUresult (*end)(CUdevice)) {
  CUcontext watching;
  CUdeviceptr block;
  int active = 7;
  unsigned flags;
  begin();
  NEED(cuMemAlloc_v2(&block, 10 * MIB));
  NEED(cuMemAllocAsync(&block, 10 * MIB, NULL));
  NEED(cuStreamSynchronize(NULL));
  NEED(cuCtxCreate_v2(&watching, 0, 0));
  size_t before = free_bytes();
  CODE("end", end(0));
  fact("freed_at_least_20_mib", free_bytes() >= before + 20 * MIB);
  NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
  fact("active", active);
}

static void primary_release_frees(void) {
  end_primary(cuDevicePrimaryCtxRelease_v2);
}

static void primary_reset_frees(void) {
  end_primary(cuDevicePrimaryCtxReset_v2);
}

static void primary_after_reset(void) {
  CUcontext primary;
  CUdeviceptr block = UNTOUCHED;
  begin();
  CODE("reset", cuDevicePrimaryCtxReset_v2(0));
  CODE("alloc", cuMemAlloc_v2(&block, 1));
  fact("untouched", block == UNTOUCHED);
  CODE("retain", cuDevicePrimaryCtxRetain(&primary, 0));
  NEED(cuCtxSetCurrent(primary));
  CODE("alloc", cuMemAlloc_v2(&block, 1));
}

static void context_destroy_frees(void) {
  CUcontext own, now = (CUcontext)UNTOUCHED;
  CUdeviceptr block;
  begin();
  NEED(cuCtxCreate_v2(&own, 0, 0));
  NEED(cuMemAlloc_v2(&block, 10 * MIB));
  size_t before = free_bytes();
  CODE("destroy", cuCtxDestroy_v2(own));
  NEED(cuCtxGetCurrent(&now));
  fact("popped", now != own && now != NULL);
  fact("freed_at_least_10_mib", free_bytes() >= before + 10 * MIB);
}

static void context_stack(void) {
  CUcontext one, two, now = NULL;
  CUdevice device = 7;
  NEED(cuInit(0));
  CODE("pop_empty", cuCtxPopCurrent_v2(&now));
  NEED(cuCtxCreate_v2(&one, 0, 0));
  NEED(cuCtxCreate_v2(&two, CU_CTX_SCHED_BLOCKING_SYNC, 0));
  CODE("pop", cuCtxPopCurrent_v2(&now));
  fact("second", now == two);
  CODE("push", cuCtxPushCurrent_v2(two));
  CODE("device", cuCtxGetDevice(&device));
  fact("is", device);
  CODE("destroy", cuCtxDestroy_v2(two));
  NEED(cuCtxGetCurrent(&now));
  fact("first", now == one);
  CODE("set_null", cuCtxSetCurrent(NULL));
  CODE("pop_empty", cuCtxPopCurrent_v2(&now));
  CODE("wait", cuCtxSynchronize());
}

static void context_errors(void) {
  CUcontext own = (CUcontext)UNTOUCHED;
  NEED(cuInit(0));
  CODE("device", cuCtxCreate_v2(&own, 0, 99));
  CODE("flags", cuCtxCreate_v2(&own, 0x4000, 0));
  fact("untouched", own == (CUcontext)UNTOUCHED);
  CODE("retain", cuDevicePrimaryCtxRetain(&own, 99));
  CODE("init_flags", cuInit(1));
}

ROWS(ROW(primary_state), ROW(primary_not_destroyed), ROW(primary_release_frees), ROW(primary_reset_frees),
     ROW(primary_after_reset), ROW(context_destroy_frees), ROW(context_stack), ROW(context_errors))
