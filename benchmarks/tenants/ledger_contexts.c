/* ledger_contexts.c - see ledger.h: contexts of a worker's own, and green ones. */
#include "ledger.h"

/* A context of its own with memory in it, which its end gives back. */
bool make_context(struct worker *worker, struct object *object) {
  CUcontext popped;
  CUdeviceptr left_behind;
  if (!MAY(cuCtxCreate_v2((CUcontext *)&object->parts[0], 0, 0))) return false;
  for (uint64_t left = draw(worker, 4); left; left--) (void)MAY(cuMemAlloc_v2(&left_behind, draw_bytes(worker)));
  MUST(cuCtxPopCurrent_v2(&popped));
  return true;
}

void drop_context(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuCtxDestroy_v2((CUcontext)object->parts[0]));
}

/* A part of the device's SMs: it holds the primary context, whose memory is what is allocated in it. */
bool make_green(struct worker *worker, struct object *object) {
  CUdevResource resource;
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUcontext context, popped;
  if (!MAY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM))) return false;
  if (!MAY(cuDevResourceGenerateDesc(&description, &resource, 1))) return false;
  if (!MAY(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM))) return false;
  object->parts[0] = (uintptr_t)green;
  object->parts[1] = 0;
  if (!MAY(cuCtxFromGreenCtx(&context, green)) || !MAY(cuCtxPushCurrent_v2(context))) return true;
  if (!MAY(cuMemAlloc_v2(&object->parts[1], object->bytes))) object->parts[1] = 0;
  MUST(cuCtxPopCurrent_v2(&popped));
  return true;
}

void drop_green(struct worker *worker, struct object *object) {
  bool before = draw(worker, 2);
  if (object->parts[1] && before) MUST(cuMemFree_v2(object->parts[1]));
  MUST(cuGreenCtxDestroy((CUgreenCtx)object->parts[0]));
  if (object->parts[1] && !before) MUST(cuMemFree_v2(object->parts[1]));
}
