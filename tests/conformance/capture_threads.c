/*
 * capture_threads: one thread captures, another one calls: what each mode keeps other threads from.
 */
#include "row.h"
#include <pthread.h>

static CUstream stream;
static CUdeviceptr block;
static CUcontext context;

static void begin_capture(CUstreamCaptureMode mode) {
  begin();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc_v2(&block, 4096));
  NEED(cuStreamBeginCapture_v2(stream, mode));
  NEED(cuMemsetD8Async(block, 1, 16, stream));
}

static void end_capture(void) {
  CUgraph graph = NULL;
  size_t nodes = 0;
  CODE("end", cuStreamEndCapture(stream, &graph));
  if (graph != NULL) NEED(cuGraphGetNodes(graph, NULL, &nodes));
  fact("nodes", (long long)nodes);
}

static void in_thread(void *(*run)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) _exit(1);
  pthread_join(thread, NULL);
}

static void *allocate(void *unused) {
  CUdeviceptr more = UNTOUCHED;
  NEED(cuCtxSetCurrent(context));
  CODE("other_alloc", cuMemAlloc_v2(&more, 4096));
  fact("untouched", more == UNTOUCHED);
  return unused;
}

static void *allocate_relaxed(void *unused) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  NEED(cuThreadExchangeStreamCaptureMode(&mode));
  return allocate(unused);
}

static void *allocate_thread_local(void *unused) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  NEED(cuThreadExchangeStreamCaptureMode(&mode));
  return allocate(unused);
}

static void capture_beside(CUstreamCaptureMode mode, void *(*other)(void *)) {
  begin_capture(mode);
  in_thread(other);
  end_capture();
}

static void global_and_other_thread(void) {
  capture_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate);
}

static void thread_local_and_other_thread(void) {
  capture_beside(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, allocate);
}

static void relaxed_and_other_thread(void) {
  capture_beside(CU_STREAM_CAPTURE_MODE_RELAXED, allocate);
}

static void global_and_relaxed_thread(void) {
  capture_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate_relaxed);
}

static void global_and_thread_local_thread(void) {
  capture_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate_thread_local);
}

/* A thread of its own mode makes unsafe calls while it captures itself. */
static void relaxed_capture_of_relaxed_thread(void) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUdeviceptr more;
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  NEED(cuThreadExchangeStreamCaptureMode(&mode));
  CODE("alloc", cuMemAlloc_v2(&more, 4096));
  end_capture();
}

static void *end_there(void *unused) {
  NEED(cuCtxSetCurrent(context));
  end_capture();
  return unused;
}

static void ended_by_other_thread(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  in_thread(end_there);
  end_capture();
}

static void relaxed_ended_by_other_thread(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  in_thread(end_there);
}

static void *work_there(void *unused) {
  NEED(cuCtxSetCurrent(context));
  CODE("other_work", cuMemsetD8Async(block, 2, 16, stream));
  return unused;
}

static void work_of_other_thread(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  in_thread(work_there);
  end_capture();
}

static void *capture_there(void *unused) {
  CUstream own;
  CUgraph graph = NULL;
  NEED(cuCtxSetCurrent(context));
  NEED(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
  CODE("other_begin", cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CODE("other_work", cuMemsetD8Async(block, 3, 16, own));
  CODE("other_end", cuStreamEndCapture(own, &graph));
  return unused;
}

static void two_captures(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  in_thread(capture_there);
  end_capture();
}

ROWS(ROW(global_and_other_thread), ROW(thread_local_and_other_thread), ROW(relaxed_and_other_thread),
     ROW(global_and_relaxed_thread), ROW(global_and_thread_local_thread), ROW(relaxed_capture_of_relaxed_thread),
     ROW(ended_by_other_thread), ROW(relaxed_ended_by_other_thread), ROW(work_of_other_thread), ROW(two_captures))
