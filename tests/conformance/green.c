/*
 * green: parts of a device's SMs and green contexts over them.
 */
#include "row.h"

static CUdevResource all, groups[2];

static CUdevResourceDesc first_part(void) {
  CUdevResourceDesc description;
  unsigned count = 2;
  begin();
  NEED(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  NEED(cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, 8));
  NEED(cuDevResourceGenerateDesc(&description, groups, 1));
  return description;
}

static void green_parts(void) {
  CUdevResource rest;
  unsigned count = 0;
  int sm_count;
  begin();
  CODE("whole", cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  NEED(cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  fact("all", all.sm.smCount == (unsigned)sm_count);
  CODE("how_many", cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 8));
  fact("several", count > 1);
  count = 2;
  CODE("split", cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 8));
  fact("groups", count);
  fact("each_enough", groups[0].sm.smCount >= 8 && groups[1].sm.smCount == groups[0].sm.smCount);
  fact("sum", 2 * groups[0].sm.smCount + rest.sm.smCount <= all.sm.smCount);
}

static void green_refused(void) {
  CUdevResourceDesc description;
  CUgreenCtx green;
  unsigned count = 1;
  begin();
  NEED(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  fact("too_many_refused", cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, all.sm.smCount + 1) != 0);
  CODE("device", cuDeviceGetDevResource(99, &all, CU_DEV_RESOURCE_TYPE_SM));
  CODE("kind", cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID));
  description = first_part();
  CODE("flags", cuGreenCtxCreate(&green, description, 0, 0));
  fact("none_refused", cuGreenCtxDestroy(NULL) != CUDA_SUCCESS);
}

static void green_context(void) {
  CUdevResource own = {0};
  CUdevResourceDesc description = first_part();
  CUgreenCtx green, of = NULL;
  CUcontext context;
  CUstream stream, plain;
  CUdeviceptr block;
  unsigned char in = 0;
  NEED(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc_v2(&block, 16));
  CODE("create", cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CODE("resource", cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
  fact("is_its_part", own.sm.smCount == groups[0].sm.smCount);
  CODE("stream", cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CODE("of", cuStreamGetGreenCtx(stream, &of));
  fact("same", of == green);
  CODE("of_plain", cuStreamGetGreenCtx(plain, &of));
  fact("none", of == NULL);
  CODE("work", cuMemsetD8Async(block, 4, 16, stream));
  CODE("wait", cuStreamSynchronize(stream));
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact("value", in);
  CODE("as_context", cuCtxFromGreenCtx(&context, green));
  CODE("current", cuCtxSetCurrent(context));
  CODE("alloc", cuMemAlloc_v2(&block, 4096));
  CODE("stream_destroy", cuStreamDestroy_v2(stream));
  CODE("leave", cuCtxSetCurrent(NULL));
  CODE("destroy", cuGreenCtxDestroy(green));
}

static void green_over_limit(void) {
  CUdevResourceDesc description = first_part();
  CUgreenCtx green;
  CUcontext context;
  CUdeviceptr block = UNTOUCHED;
  NEED(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  NEED(cuCtxFromGreenCtx(&context, green));
  NEED(cuCtxSetCurrent(context));
  CODE("alloc", cuMemAlloc_v2(&block, total_bytes() + GRANULE));
  CODE("pool", cuMemAllocAsync(&block, total_bytes() + GRANULE, NULL));
  fact("untouched", block == UNTOUCHED);
}

static void green_events(void) {
  static struct gate gate;
  CUdevResourceDesc description = first_part();
  CUgreenCtx green;
  CUevent event;
  CUstream stream;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  NEED(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  NEED(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  close_gate(&gate, stream);
  CODE("record", cuGreenCtxRecordEvent(green, event));
  CODE("busy", cuEventQuery(event));
  open_gate(&gate);
  CODE("wait", cuEventSynchronize(event));
  CODE("wait_there", cuGreenCtxWaitEvent(green, event));
}

ROWS(ROW(green_parts), ROW(green_refused), ROW(green_context), ROW(green_over_limit), ROW(green_events))
