/*
 * twins: the _ptds and _ptsz entry points: stream 0 is the calling thread's own.
 */
#include "row.h"
#include <pthread.h>

static struct gate gate;
static CUdeviceptr block;
static CUcontext context;

static void begin_twins(void) {
  begin();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuMemAlloc_v2(&block, 4096));
  NEED(cuMemsetD8_v2(block, 1, 16));
  NEED(cuCtxSynchronize());
}

static int value(void) {
  unsigned char in = 0;
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  return in;
}

static void twin_ids(void) {
  unsigned long long legacy, twin, named, plain;
  begin_twins();
  NEED(cuStreamGetId(NULL, &legacy));
  NEED(cuStreamGetId_ptsz(NULL, &twin));
  NEED(cuStreamGetId(CU_STREAM_PER_THREAD, &named));
  NEED(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &plain));
  fact("own", twin == named);
  fact("apart", twin != legacy);
  fact("legacy_named", plain == legacy);
}

static void twin_order(void) {
  begin_twins();
  close_gate(&gate, CU_STREAM_PER_THREAD);
  CODE("set", cuMemsetD8Async_ptsz(block, 8, 16, NULL));
  CODE("own", cuStreamQuery_ptsz(NULL));
  open_gate(&gate);
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  fact("value", value());
}

static void *other_thread(void *unused) {
  NEED(cuCtxSetCurrent(context));
  CODE("other_query", cuStreamQuery_ptsz(NULL));
  CODE("other_set", cuMemsetD8Async_ptsz(block, 2, 16, NULL));
  CODE("other_wait", cuStreamSynchronize_ptsz(NULL));
  return unused;
}

static void twin_of_each_thread(void) {
  pthread_t thread;
  begin_twins();
  close_gate(&gate, CU_STREAM_PER_THREAD);
  if (pthread_create(&thread, NULL, other_thread, NULL) != 0) _exit(1);
  pthread_join(thread, NULL);
  CODE("own", cuStreamQuery_ptsz(NULL));
  open_gate(&gate);
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  fact("value", value());
}

static void twin_copies(void) {
  char in[4] = "";
  begin_twins();
  CODE("there", cuMemcpyHtoD_v2_ptds(block, "abc", 4));
  CODE("across", cuMemcpyDtoD_v2_ptds(block + 1024, block, 4));
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  CODE("back", cuMemcpyDtoH_v2_ptds(in, block + 1024, 4));
  fact("same", strcmp(in, "abc") == 0);
  CODE("set", cuMemsetD32_v2_ptds(block, 0x05050505, 4));
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  fact("value", value());
}

static void twin_memory(void) {
  CUdeviceptr more = UNTOUCHED, over = UNTOUCHED;
  CUmemoryPool pool;
  begin_twins();
  size_t before = free_bytes();
  CODE("alloc", cuMemAllocAsync_ptsz(&more, 4 * MIB, NULL));
  fact("at_least_4_mib", before - free_bytes() >= 4 * MIB);
  CODE("free", cuMemFreeAsync_ptsz(more, NULL));
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  NEED(cuDeviceGetDefaultMemPool(&pool, 0));
  NEED(cuMemPoolTrimTo(pool, 0));
  taken("after", before);
  CODE("over", cuMemAllocAsync_ptsz(&over, total_bytes() + GRANULE, NULL));
  fact("untouched", over == UNTOUCHED);
}

static void twin_events(void) {
  CUevent event;
  begin_twins();
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  close_gate(&gate, CU_STREAM_PER_THREAD);
  CODE("record", cuEventRecord_ptsz(event, NULL));
  CODE("busy", cuEventQuery(event));
  open_gate(&gate);
  CODE("wait", cuStreamWaitEvent_ptsz(NULL, event, 0));
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  CODE("done", cuEventQuery(event));
}

/* The legacy stream cannot be captured; a thread's own can. */
static void twin_capture(void) {
  CUgraph graph = NULL;
  CUgraphExec exec;
  begin_twins();
  CODE("begin", cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CODE("set", cuMemsetD8Async_ptsz(block, 6, 16, NULL));
  CODE("end", cuStreamEndCapture_ptsz(NULL, &graph));
  fact("not_done", value());
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  CODE("launch", cuGraphLaunch_ptsz(exec, NULL));
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  fact("value", value());
}

ROWS(ROW(twin_ids), ROW(twin_order), ROW(twin_of_each_thread), ROW(twin_copies), ROW(twin_memory), ROW(twin_events),
     ROW(twin_capture))
