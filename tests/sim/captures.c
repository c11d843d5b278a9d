/*
 * captures: stream capture in its three modes, with several threads; forks and joins by events; what ends a capture,
 * what breaks it, and what each of these answers.
 */
#include "program.h"
#include <pthread.h>

static CUcontext context;
static CUfunction kernel;
static CUstream stream, side;
static CUevent forked, joined;

static CUstreamCaptureStatus status_of(CUstream which) {
  CUstreamCaptureStatus status;
  CHECK(cuStreamIsCapturing(which, &status));
  return status;
}

static void begin_in(CUstreamCaptureMode mode) {
  CHECK(cuStreamBeginCapture_v2(stream, mode));
  TRUE(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  launch(kernel, stream);
}

static size_t nodes_of(CUgraph graph) {
  size_t count;
  CHECK(cuGraphGetNodes(graph, NULL, &count));
  return count;
}

/* Ends the capture and answers how many nodes it has. */
static size_t end(CUresult code) {
  CUgraph graph = NULL;
  EXPECT(code, cuStreamEndCapture(stream, &graph));
  TRUE(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  TRUE((graph != NULL) == (code == CUDA_SUCCESS));
  size_t count = graph == NULL ? 0 : nodes_of(graph);
  if (graph != NULL) CHECK(cuGraphDestroy(graph));
  return count;
}

/* ---- a call that is not safe while streams capture, in another thread ---- */

struct unsafe {
  CUstreamCaptureMode mode; /* of the thread */
  CUresult code;
};

static CUresult allocate(void) {
  CUdeviceptr memory;
  CUresult result = cuMemAlloc_v2(&memory, 4096);
  CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (result != CUDA_SUCCESS) return result;
  CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
  CHECK(cuMemFree_v2(memory));
  CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
  return result;
}

static void *allocate_elsewhere(void *argument) {
  struct unsafe *call = argument;
  CUstreamCaptureMode mode = call->mode;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuThreadExchangeStreamCaptureMode(&mode));
  TRUE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* what a thread begins with */
  call->code = allocate();
  return NULL;
}

static CUresult in_thread(CUstreamCaptureMode mode) {
  struct unsafe call = {.mode = mode};
  pthread_t thread;
  pthread_create(&thread, NULL, allocate_elsewhere, &call);
  pthread_join(thread, NULL);
  return call.code;
}

static void modes_say_whose_calls_break_a_capture(void) {
  begin_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
  TRUE(in_thread(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  TRUE(in_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  TRUE(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  TRUE(in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  TRUE(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin_in(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  TRUE(in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  TRUE(end(CUDA_SUCCESS) == 1);
  begin_in(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  TRUE(allocate() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED);
  TRUE(allocate() == CUDA_SUCCESS && in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  TRUE(end(CUDA_SUCCESS) == 1);
}

static void *end_elsewhere(void *code) {
  CUgraph graph;
  CHECK(cuCtxSetCurrent(context));
  EXPECT(*(CUresult *)code, cuStreamEndCapture(stream, &graph));
  if (*(CUresult *)code == CUDA_SUCCESS) CHECK(cuGraphDestroy(graph));
  return NULL;
}

static void end_in_thread(CUresult code) {
  pthread_t thread;
  pthread_create(&thread, NULL, end_elsewhere, &code);
  pthread_join(thread, NULL);
}

static void a_capture_ends_in_the_thread_that_began_it(void) {
  begin_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
  end_in_thread(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  TRUE(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  TRUE(end(CUDA_SUCCESS) == 1);
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED);
  end_in_thread(CUDA_SUCCESS);
  EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &(CUgraph){NULL}));
}

/* ---- several streams ---- */

static void fork_side(void) {
  CHECK(cuEventRecord(forked, stream));
  CHECK(cuStreamWaitEvent(side, forked, 0));
  launch(kernel, side);
}

static void events_carry_a_capture_to_other_streams(void) {
  begin_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
  fork_side();
  TRUE(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &(CUgraph){NULL}));
  CHECK(cuEventRecord(joined, side));
  CHECK(cuStreamWaitEvent(stream, joined, 0));
  launch(kernel, stream);
  TRUE(end(CUDA_SUCCESS) == 3);
  TRUE(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
  begin_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
  fork_side();
  end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  TRUE(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void captures_do_not_mix(void) {
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuEventRecord(forked, stream));
  CHECK(cuStreamBeginCapture_v2(side, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(side, forked, 0));
  CUgraph graph = NULL;
  cuStreamEndCapture(side, &graph);
  if (graph != NULL) CHECK(cuGraphDestroy(graph));
  cuStreamEndCapture(stream, &graph);
  if (graph != NULL) CHECK(cuGraphDestroy(graph));
  CHECK(cuEventRecord(forked, side)); /* outside of any capture */
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, forked, 0));
  cuStreamEndCapture(stream, &graph);
  if (graph != NULL) CHECK(cuGraphDestroy(graph));
}

static void the_legacy_stream_is_not_captured(void) {
  CUstream blocking;
  CUgraph graph;
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CHECK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(kernel, blocking);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  CHECK(cuStreamDestroy_v2(blocking));
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED); /* a stream that does not wait for it */
  launch(kernel, NULL);
  TRUE(end(CUDA_SUCCESS) == 1);
  CHECK(cuCtxSynchronize());
}

static void a_stream_that_captures_cannot_be_waited_for(void) {
  begin_in(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
  end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void streams_may_be_destroyed_meanwhile(void) {
  CUstream passing, origin;
  CHECK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  launch(kernel, origin);
  CHECK(cuStreamDestroy_v2(origin));
  TRUE(allocate() == CUDA_SUCCESS); /* nothing captures any more */
  CHECK(cuCtxSynchronize());
  for (int joins = 0; joins <= 1; joins++) {
    CHECK(cuStreamCreate(&passing, CU_STREAM_NON_BLOCKING));
    begin_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuEventRecord(forked, stream));
    CHECK(cuStreamWaitEvent(passing, forked, 0));
    launch(kernel, passing);
    CHECK(cuEventRecord(joined, passing));
    if (joins) CHECK(cuStreamWaitEvent(stream, joined, 0));
    CHECK(cuStreamDestroy_v2(passing));
    TRUE(end(joins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED) == (joins ? 2 : 0));
  }
}

static void into_a_graph_that_is_there(void) {
  CUgraph graph, same;
  CUgraphNode first, found;
  size_t count = 1;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
  CHECK(cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  launch(kernel, stream);
  CHECK(cuStreamEndCapture(stream, &same));
  TRUE(same == graph && nodes_of(graph) == 2);
  CHECK(cuGraphNodeGetDependentNodes(first, &found, &count));
  TRUE(count == 1);
  CHECK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  TRUE(allocate() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &same));
  TRUE(nodes_of(graph) == 2); /* the graph is the program's still */
  CHECK(cuGraphDestroy(graph));
}

/* Threads that capture side by side, each in its own stream, while others allocate. */
static void *capture_often(void *unused) {
  CUstream own;
  (void)unused;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 200; i++) {
    CUgraph graph;
    CUgraphExec exec;
    TRUE(allocate() == CUDA_SUCCESS);
    CHECK(cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int j = 0; j < 5; j++) launch(kernel, own);
    CHECK(cuStreamEndCapture(own, &graph));
    TRUE(nodes_of(graph) == 5);
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, own));
    CHECK(cuStreamSynchronize(own));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  }
  CHECK(cuStreamDestroy_v2(own));
  return NULL;
}

static void several_threads_at_once(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, capture_often, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  context = begin();
  kernel = spin(10);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  modes_say_whose_calls_break_a_capture();
  a_capture_ends_in_the_thread_that_began_it();
  events_carry_a_capture_to_other_streams();
  captures_do_not_mix();
  the_legacy_stream_is_not_captured();
  a_stream_that_captures_cannot_be_waited_for();
  streams_may_be_destroyed_meanwhile();
  into_a_graph_that_is_there();
  several_threads_at_once();
  puts("ok");
  return 0;
}
