/*
 * green: parts of a device's SMs, descriptors, green contexts: their streams are their own, all else is the primary
 * context's, which lives as long as one of them.
 */
#include "program.h"

static CUdevResource whole(void) {
  CUdevResource resource;
  CHECK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  TRUE(resource.type == CU_DEV_RESOURCE_TYPE_SM && resource.sm.smCount == 132);
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_INVALID));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(9, &resource, CU_DEV_RESOURCE_TYPE_SM));
  return resource;
}

static CUdevResourceDesc parts(void) {
  CUdevResource all = whole(), groups[4], rest, more;
  CUdevResourceDesc both, again;
  unsigned count = 0;
  CHECK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 20));
  TRUE(count == 132 / 24); /* 20, rounded up to eights */
  count = 4;
  CHECK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 20));
  TRUE(count == 4 && groups[3].sm.smCount == 24 && rest.sm.smCount == 132 - 96);
  count = 1;
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplitByCount(&more, &count, &groups[0], NULL, 0, 8));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(&more, &count, &all, NULL, 0, 133));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(&more, &count, &all, NULL, 8, 8));
  CHECK(cuDevSmResourceSplitByCount(&more, &count, &all, NULL, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 3));
  TRUE(more.sm.smCount == 4);
  CUdevResource mixed[2] = {groups[0], more};
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&both, mixed, 2));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&both, groups, 0));
  CHECK(cuDevResourceGenerateDesc(&both, groups, 2));
  CHECK(cuDevResourceGenerateDesc(&again, groups, 2));
  TRUE(both == again);
  return both;
}

static size_t free_bytes(CUcontext context) {
  size_t left, total;
  CHECK(cuCtxPushCurrent_v2(context));
  CHECK(cuMemGetInfo_v2(&left, &total));
  CHECK(cuCtxPopCurrent_v2(&context));
  return left;
}

static size_t used_bytes(void) {
  size_t left, total;
  CHECK(cuMemGetInfo_v2(&left, &total));
  return total - left;
}

/* Beside contexts of the program's own: the first takes what a context takes, which its end gives back. */
static void what_it_costs(CUdevResourceDesc descriptor) {
  CUcontext one, two;
  CUgreenCtx green, other;
  CHECK(cuCtxCreate_v2(&one, 0, 0));
  size_t with_one = used_bytes();
  CHECK(cuCtxCreate_v2(&two, 0, 0));
  size_t each = used_bytes() - with_one;
  CHECK(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  TRUE(each > 0 && used_bytes() == with_one + 2 * each);
  CHECK(cuGreenCtxCreate(&other, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK(cuGreenCtxDestroy(green));
  TRUE(used_bytes() == with_one + 2 * each);
  CHECK(cuGreenCtxDestroy(other));
  TRUE(used_bytes() == with_one + each);
  CHECK(cuCtxDestroy_v2(two));
  CHECK(cuCtxDestroy_v2(one));
}

static int primary_lives(void) {
  unsigned flags;
  int active;
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  return active;
}

static void streams(CUgreenCtx green, CUcontext as_context) {
  CUstream stream, inside, plain;
  CUcontext context, primary;
  CUgreenCtx of;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
  CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
  CHECK(cuCtxPushCurrent_v2(primary));
  CHECK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamGetGreenCtx(plain, &of));
  TRUE(of == NULL);
  CHECK(cuStreamGetGreenCtx(stream, &of));
  TRUE(of == green);
  CHECK(cuStreamGetCtx_v2(stream, &context, &of));
  TRUE(context == NULL && of == green);
  CUfunction slow = spin(100); /* loaded in the primary context, used in the green one */
  for (int i = 0; i < 200; i++) launch(slow, stream);
  CUevent event;
  CHECK(cuEventCreate(&event, 0));
  CHECK(cuGreenCtxRecordEvent(green, event));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  CHECK(cuCtxSynchronize()); /* the primary context's waits for the green ones too */
  CHECK(cuEventQuery(event));
  CHECK(cuGreenCtxWaitEvent(green, event));
  CHECK(cuCtxSetCurrent(as_context));
  CHECK(cuStreamGetGreenCtx(NULL, &of));
  TRUE(of == green);
  for (int i = 0; i < 200; i++) launch(slow, NULL);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
  CHECK(cuCtxSetCurrent(primary));
  CHECK(cuStreamQuery(NULL)); /* each has a default stream of its own */
  CHECK(cuCtxSetCurrent(as_context));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
  CHECK(cuStreamQuery(CU_STREAM_PER_THREAD));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK(cuStreamSynchronize(NULL));
  CHECK(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamGetCtx(inside, &context));
  TRUE(context == as_context);
  CHECK(cuCtxSetCurrent(primary));
  for (int i = 0; i < 200; i++) launch(slow, plain);
  CHECK(cuCtxSynchronize_v2(as_context));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(plain)); /* a green one's waits for its own only */
  CHECK(cuStreamSynchronize(plain));
  CHECK(cuStreamDestroy_v2(inside));
  CHECK(cuCtxPopCurrent_v2(&context));
  CHECK(cuDevicePrimaryCtxRelease_v2(0));
}

int main(void) {
  CUgreenCtx green, other;
  CUcontext context, primary;
  CUdeviceptr block;
  CUstream stream;
  CUdevResource resource;
  unsigned long long id, other_id;
  CHECK(cuInit(0));
  CUdevResourceDesc descriptor = parts();
  what_it_costs(descriptor);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, descriptor, 0, 0));
  CHECK(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  TRUE(primary_lives());
  CHECK(cuCtxFromGreenCtx(&context, green));
  size_t before = free_bytes(context);
  CHECK(cuGreenCtxCreate(&other, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  TRUE(free_bytes(context) == before); /* the second one costs nothing */
  CHECK(cuGreenCtxGetId(green, &id));
  CHECK(cuGreenCtxGetId(other, &other_id));
  TRUE(id != other_id);
  CHECK(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_SM));
  TRUE(resource.sm.smCount == 48);
  CHECK(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
  TRUE(resource.sm.smCount == 48);
  streams(green, context);
  CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc_v2(&block, 64 << 20));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
  CHECK(cuGreenCtxDestroy(green));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(green));
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
  CHECK(cuCtxSetCurrent(primary));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(stream));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy_v2(stream));
  TRUE(free_bytes(primary) == before - (64 << 20)); /* its memory is the primary context's */
  CHECK(cuMemFree_v2(block));
  CHECK(cuDevicePrimaryCtxRelease_v2(0));
  TRUE(primary_lives());
  CHECK(cuGreenCtxDestroy(other));
  TRUE(!primary_lives());
  printf("ok\n");
  return 0;
}
