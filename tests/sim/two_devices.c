/*
 * two_devices: work of two devices runs side by side; an event of one is waited for by a stream of the other; copies
 * between them; streams with priority.
 */
#include "program.h"

static float between(CUevent first, CUevent last) {
  float milliseconds;
  CHECK(cuEventElapsedTime_v2(&milliseconds, first, last));
  return milliseconds;
}

static CUevent event(void) {
  CUevent made;
  CHECK(cuEventCreate(&made, CU_EVENT_DEFAULT));
  return made;
}

static void side_by_side(CUcontext contexts[2]) {
  CUfunction functions[2];
  CUevent begins[2], ends[2];
  for (int i = 0; i < 2; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    functions[i] = spin(10000);
    begins[i] = event();
    ends[i] = event();
  }
  for (int i = 0; i < 2; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuEventRecord(begins[i], NULL));
    for (int n = 0; n < 10; n++) launch(functions[i], NULL);
    CHECK(cuEventRecord(ends[i], NULL));
  }
  for (int i = 0; i < 2; i++) CHECK(cuEventSynchronize(ends[i]));
  for (int i = 0; i < 2; i++) TRUE(between(begins[i], ends[i]) < 110); /* 100 ms, not 200 */
  TRUE(between(begins[1], ends[0]) > 0);
}

static void across(CUcontext contexts[2]) {
  CUevent first, last;
  CHECK(cuCtxSetCurrent(contexts[0]));
  first = event();
  launch(spin(10000), NULL);
  CHECK(cuEventRecord(first, NULL));
  CHECK(cuCtxSetCurrent(contexts[1]));
  last = event();
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(first, NULL)); /* of another context */
  CHECK(cuStreamWaitEvent(NULL, first, 0));
  launch(spin(10), NULL);
  CHECK(cuEventRecord(last, NULL));
  CHECK(cuEventSynchronize(last));
  CHECK(cuEventQuery(first));
  TRUE(between(first, last) >= 0.0099f && between(first, last) < 5);
}

static void copies(CUcontext contexts[2]) {
  CUdeviceptr blocks[2];
  char text[16] = "";
  int can;
  CHECK(cuDeviceCanAccessPeer(&can, 0, 1));
  TRUE(can == 1);
  for (int i = 0; i < 2; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuMemAlloc_v2(&blocks[i], 16));
  }
  CHECK(cuCtxEnablePeerAccess(contexts[0], 0));
  EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(contexts[0], 0));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess(contexts[1], 0));
  CHECK(cuMemcpyHtoD_v2(blocks[0], "from one", 9));
  CHECK(cuMemcpyPeer(blocks[1], contexts[1], blocks[0], contexts[0], 9));
  CHECK(cuMemcpyDtoH_v2(text, blocks[1], 9));
  TRUE(strcmp(text, "from one") == 0);
  size_t free_now, total;
  CHECK(cuMemGetInfo_v2(&free_now, &total)); /* of the current device alone: its context and one granule */
  TRUE(total - free_now == (512ull << 20) + (2 << 20));
}

/* A stream of higher priority is served first whenever a kernel ends. */
static void priorities(CUcontext context) {
  CUstream low, high;
  int least, greatest, got;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
  CHECK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest - 100));
  CHECK(cuStreamGetPriority(high, &got));
  TRUE(got == greatest && least == 0 && greatest < 0);
  CUevent low_end = event(), high_end = event();
  CUfunction function = spin(10000);
  for (int i = 0; i < 10; i++) launch(function, low);
  CHECK(cuEventRecord(low_end, low));
  launch(function, high);
  CHECK(cuEventRecord(high_end, high));
  CHECK(cuCtxSynchronize());
  TRUE(between(high_end, low_end) > 50);
}

int main(void) {
  CUcontext contexts[2];
  CHECK(cuInit(0));
  for (int i = 0; i < 2; i++) CHECK(cuCtxCreate_v2(&contexts[i], 0, i));
  side_by_side(contexts);
  across(contexts);
  copies(contexts);
  priorities(contexts[0]);
  puts("ok");
  return 0;
}
