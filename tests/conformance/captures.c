/*
 * captures: stream capture: its modes, what kills one and what each call answers then.
 */
#include "row.h"

static CUstream stream;
static CUdeviceptr block;

static void begin_capture(CUstreamCaptureMode mode) {
  begin();
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  NEED(cuMemAlloc_v2(&block, 4096));
  NEED(cuStreamBeginCapture_v2(stream, mode));
  NEED(cuMemsetD8Async(block, 1, 16, stream));
}

static void status(void) {
  CUstreamCaptureStatus now = (CUstreamCaptureStatus)UNTOUCHED;
  NEED(cuStreamIsCapturing(stream, &now));
  fact("status", now);
}

static void end_capture(void) {
  CUgraph graph = NULL;
  size_t nodes = 0;
  status();
  CODE("end", cuStreamEndCapture(stream, &graph));
  if (graph != NULL) NEED(cuGraphGetNodes(graph, NULL, &nodes));
  fact("nodes", (long long)nodes);
  status();
}

static void allocate_in(CUstreamCaptureMode mode) {
  CUdeviceptr more = UNTOUCHED;
  begin_capture(mode);
  CODE("alloc", cuMemAlloc_v2(&more, 4096));
  fact("untouched", more == UNTOUCHED);
  end_capture();
}

static void capture_global_alloc(void) {
  allocate_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void capture_thread_local_alloc(void) {
  allocate_in(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void capture_relaxed_alloc(void) {
  allocate_in(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void capture_plain(void) {
  unsigned char in = 7;
  begin();
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  NEED(cuMemAlloc_v2(&block, 16));
  NEED(cuMemsetD8_v2(block, 3, 16));
  NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CODE("set", cuMemsetD8Async(block, 9, 16, stream));
  end_capture();
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact("not_done", in);
}

static void capture_synchronize(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CODE("wait", cuStreamSynchronize(stream));
  end_capture();
}

static void capture_query(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CODE("query", cuStreamQuery(stream));
  end_capture();
}

static void capture_context_synchronize(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CODE("wait", cuCtxSynchronize());
  end_capture();
}

static void capture_legacy_stream(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CODE("begin", cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
  CODE("work", cuMemsetD8Async(block, 1, 16, NULL));
  end_capture();
}

static void capture_event(void) {
  CUevent event;
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  NEED(cuEventCreate(&event, 0));
  CODE("record", cuEventRecord(event, stream));
  CODE("query", cuEventQuery(event));
  end_capture();
}

/* Work on a stream beside the capturing one, which becomes part of the capture. */
static CUstream fork_side(CUevent *ret_event) {
  CUstream side;
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  NEED(cuEventCreate(ret_event, 0));
  NEED(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  NEED(cuEventRecord(*ret_event, stream));
  CODE("fork", cuStreamWaitEvent(side, *ret_event, 0));
  CODE("work", cuMemsetD8Async(block, 1, 16, side));
  return side;
}

static void capture_unjoined(void) {
  CUevent event;
  fork_side(&event);
  end_capture();
}

static void capture_joined(void) {
  CUevent event;
  CUstream side = fork_side(&event);
  CODE("record", cuEventRecord(event, side));
  CODE("join", cuStreamWaitEvent(stream, event, 0));
  end_capture();
}

static void capture_pool_memory(void) {
  CUdeviceptr node = 0;
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CODE("alloc", cuMemAllocAsync(&node, GRANULE, stream));
  fact("address", node != 0);
  CODE("free", cuMemFreeAsync(node, stream));
  end_capture();
}

static void capture_misused(void) {
  CUgraph graph = NULL;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  begin();
  NEED(cuStreamCreate(&stream, 0));
  CODE("end_without", cuStreamEndCapture(stream, &graph));
  CODE("mode", cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)17));
  CODE("exchange", cuThreadExchangeStreamCaptureMode(&mode));
  fact("was", mode);
  CODE("exchange", cuThreadExchangeStreamCaptureMode(&mode));
  fact("was", mode);
}

static void capture_edge_data(void) {
  CUstreamCaptureStatus now = (CUstreamCaptureStatus)UNTOUCHED;
  const CUgraphNode *nodes = NULL;
  const CUgraphEdgeData *edges = NULL, plain = {0};
  size_t count = UNTOUCHED;
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CODE("info", cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, &nodes, &edges, &count));
  fact("status", now);
  fact("count", (long long)count);
  fact("data", edges != NULL);
  fact("plain", edges != NULL && memcmp(edges, &plain, sizeof plain) == 0);
  CODE("without_data", cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, &nodes, NULL, &count));
  CODE("without_nodes", cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, NULL, &edges, &count));
  end_capture();
}

ROWS(ROW(capture_plain), ROW(capture_global_alloc), ROW(capture_thread_local_alloc), ROW(capture_relaxed_alloc),
     ROW(capture_synchronize), ROW(capture_query), ROW(capture_context_synchronize), ROW(capture_legacy_stream),
     ROW(capture_event), ROW(capture_unjoined), ROW(capture_joined), ROW(capture_pool_memory), ROW(capture_misused),
     ROW(capture_edge_data))
