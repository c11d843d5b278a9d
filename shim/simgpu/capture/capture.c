/*
 * capture.c - stream capture: begin and end. Called by programs, and when a stream or a context ends.
 */
#include "simgpu/capture/capture.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>

static uint64_t last_id;

static void end_list(struct sim_capture *capture) {
  sim_capture_unlist(capture);
  while (capture->tails != NULL) {
    struct sim_tail *tail = capture->tails;
    capture->tails = tail->next;
    if (tail->stream != NULL) tail->stream->capture = NULL;
    free(tail->nodes);
    free(tail->edges);
    free(tail);
  }
  while (capture->marks != NULL) {
    struct sim_mark *mark = capture->marks;
    capture->marks = mark->next;
    struct sim_event *event = sim_event_find((CUevent)mark->event);
    if (event != NULL && event->capture == mark) event->capture = NULL;
    free(mark->nodes);
    free(mark);
  }
}

static void drop(struct sim_capture *capture) {
  if (!capture->foreign_graph) sim_graph_free(capture->graph);
  free(capture);
}

/* What a stream that joined was given stays in the graph, and must be joined before the end all the same. */
static void end_stream(struct sim_stream *stream) {
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  struct sim_capture *ended = tail != NULL && tail->capture->origin == stream ? tail->capture : NULL;
  if (ended != NULL)
    end_list(ended);
  else if (tail != NULL)
    tail->stream = NULL;
  sim_capture_unlock();
  if (ended != NULL) drop(ended);
}

/* What streams do in place of working while they capture. */
static const struct sim_capture_work work = {
    .copy = sim_capture_copy,
    .memset = sim_capture_memset,
    .callback = sim_capture_callback,
    .alloc = sim_capture_alloc,
    .free = sim_capture_free,
    .signal = sim_capture_signal,
    .wait_semaphores = sim_capture_wait_semaphores,
    .record = sim_capture_record,
    .wait = sim_capture_wait,
    .kernel = sim_capture_kernel,
    .graph = sim_capture_graph,
    .end_stream = end_stream,
};

static CUresult begin(CUstream handle, bool per_thread, struct sim_graph *graph, const CUgraphNode *nodes, size_t count,
                      CUstreamCaptureMode mode) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (sim_stream_is_default(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != NULL) return CUDA_ERROR_ILLEGAL_STATE;
  struct sim_capture *capture = calloc(1, sizeof *capture);
  if (capture == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  capture->foreign_graph = graph != NULL;
  capture->graph = graph != NULL ? graph : sim_graph_make();
  capture->mode = mode;
  capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  capture->thread = pthread_self();
  capture->origin = stream;
  sim_capture_set_work(&work);
  sim_capture_lock();
  struct sim_tail *tail = capture->graph == NULL ? NULL : sim_capture_join(capture, stream);
  result = tail == NULL ? CUDA_ERROR_OUT_OF_MEMORY : sim_tail_set(tail, (struct sim_node *const *)nodes, count);
  if (result == CUDA_SUCCESS) {
    capture->id = ++last_id;
    sim_capture_list(capture);
  }
  sim_capture_unlock();
  if (result != CUDA_SUCCESS) free(capture);
  return result;
}

#define BEGIN(name, mode_of, per_thread, ...)                                                                          \
  SIM_PUBLIC CUresult name(CUstream stream __VA_OPT__(, ) __VA_ARGS__) {                                               \
    return begin(stream, per_thread, NULL, NULL, 0, mode_of);                                                          \
  }
BEGIN(cuStreamBeginCapture, CU_STREAM_CAPTURE_MODE_GLOBAL, false)
BEGIN(cuStreamBeginCapture_ptsz, CU_STREAM_CAPTURE_MODE_GLOBAL, true)
BEGIN(cuStreamBeginCapture_v2, mode, false, CUstreamCaptureMode mode)
BEGIN(cuStreamBeginCapture_v2_ptsz, mode, true, CUstreamCaptureMode mode)

static CUresult begin_to_graph(CUstream stream, bool per_thread, CUgraph handle, const CUgraphNode *nodes, size_t count,
                               CUstreamCaptureMode mode) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (count != 0 && nodes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    struct sim_node *node = sim_node_find(nodes[i]);
    if (node == NULL || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  }
  return begin(stream, per_thread, graph, nodes, count, mode);
}

SIM_PUBLIC CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                                const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode) {
  (void)data;
  return begin_to_graph(stream, false, graph, nodes, count, mode);
}

SIM_PUBLIC CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                                     const CUgraphEdgeData *data, size_t count,
                                                     CUstreamCaptureMode mode) {
  (void)data;
  return begin_to_graph(stream, true, graph, nodes, count, mode);
}

static void mark_ancestors(const struct sim_node *node, bool *ret_reached) {
  if (ret_reached[node->index]) return;
  ret_reached[node->index] = true;
  for (uint32_t i = 0; i < node->dependency_count; i++) mark_ancestors(node->dependencies[i], ret_reached);
}

/* Everything that other streams were given must come before where the first stream stands. */
static CUresult check_joined(const struct sim_capture *capture, const struct sim_tail *origin) {
  bool *reached = calloc(capture->graph->count + 1, sizeof *reached), joined = true;
  if (reached == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < origin->count; i++) mark_ancestors(origin->nodes[i], reached);
  for (const struct sim_tail *t = capture->tails; t != NULL; t = t->next)
    for (uint32_t i = 0; i < t->count; i++) joined = joined && reached[t->nodes[i]->index];
  free(reached);
  return joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

void sim_capture_context_destroy(struct sim_context *context) {
  struct sim_capture *found;
  do {
    sim_capture_lock();
    for (found = sim_captures; found != NULL && found->origin->context != context;) found = found->next;
    if (found != NULL) end_list(found);
    sim_capture_unlock();
    if (found != NULL) drop(found);
  } while (found != NULL);
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *ret_graph) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (ret_graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  struct sim_capture *capture = tail == NULL ? NULL : tail->capture;
  if (capture == NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (capture->origin != stream)
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (result != CUDA_SUCCESS) {
    sim_capture_unlock();
    return result;
  }
  result = capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? check_joined(capture, tail)
                                                              : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  end_list(capture);
  sim_capture_unlock();
  *ret_graph = result == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
  if (result != CUDA_SUCCESS && !capture->foreign_graph) sim_graph_free(capture->graph);
  free(capture);
  return result;
}

SIM_PUBLIC CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret_graph) {
  return end(stream, false, ret_graph);
}
SIM_PUBLIC CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret_graph) {
  return end(stream, true, ret_graph);
}
