/*
 * capture_work.c - what a capturing stream is given becomes nodes; events carry order between its streams; and the
 * questions about a capture. Called by the entry points that give work to a stream, and by programs.
 */
#include "simgpu/capture/capture.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>

/* A new node behind everything in the stream; the stream then stands there. work sets what it does. */
static CUresult append(struct sim_stream *stream, CUgraphNodeType type,
                       CUresult (*work)(struct sim_node *node, const void *argument), const void *argument) {
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  struct sim_node *node = NULL;
  CUresult result = CUDA_ERROR_ILLEGAL_STATE; /* it ended in another thread meanwhile */
  if (tail != NULL && tail->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (tail != NULL)
    result = sim_node_make(tail->capture->graph, type, tail->nodes, tail->count, &node);
  if (result == CUDA_SUCCESS) {
    node->context = stream->context;
    result = work(node, argument);
    if (result != CUDA_SUCCESS) sim_node_free(node);
  }
  if (result == CUDA_SUCCESS) result = sim_tail_set(tail, &node, 1);
  sim_capture_unlock();
  return result;
}

static CUresult work_kernel(struct sim_node *node, const void *launch) {
  return sim_node_set_launch(node, launch, node->context);
}
static CUresult work_copy(struct sim_node *node, const void *copy) {
  return sim_node_set_copy(node, copy, (CUcontext)node->context);
}
static CUresult work_memset(struct sim_node *node, const void *set) {
  return sim_node_set_memset(node, set, (CUcontext)node->context);
}
static CUresult work_host(struct sim_node *node, const void *host) {
  return sim_node_set_host(node, host);
}
static CUresult work_child(struct sim_node *node, const void *graph) {
  return sim_node_put_child(node, (struct sim_graph *)graph);
}

static CUresult work_alloc(struct sim_node *node, const void *params) {
  return sim_node_set_alloc(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)params);
}
static CUresult work_free(struct sim_node *node, const void *address) {
  return sim_node_set_free(node, *(const CUdeviceptr *)address);
}

static CUresult work_signal(struct sim_node *node, const void *params) {
  return sim_node_set_signal(node, params);
}
static CUresult work_wait(struct sim_node *node, const void *params) {
  return sim_node_set_wait(node, params);
}

CUresult sim_capture_kernel(struct sim_stream *stream, const struct sim_launch *launch) {
  return append(stream, CU_GRAPH_NODE_TYPE_KERNEL, work_kernel, launch);
}
CUresult sim_capture_copy(struct sim_stream *stream, const CUDA_MEMCPY3D *copy) {
  return append(stream, CU_GRAPH_NODE_TYPE_MEMCPY, work_copy, copy);
}
CUresult sim_capture_memset(struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set) {
  return append(stream, CU_GRAPH_NODE_TYPE_MEMSET, work_memset, set);
}
CUresult sim_capture_callback(struct sim_stream *stream, CUhostFn callback, void *argument) {
  CUDA_HOST_NODE_PARAMS host = {callback, argument};
  return append(stream, CU_GRAPH_NODE_TYPE_HOST, work_host, &host);
}
CUresult sim_capture_graph(struct sim_stream *stream, struct sim_graph *graph) {
  return append(stream, CU_GRAPH_NODE_TYPE_GRAPH, work_child, graph);
}

CUresult sim_capture_alloc(struct sim_stream *stream, uint64_t bytes, CUdeviceptr *ret_pointer) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = bytes};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = stream->context->ordinal;
  CUresult result = append(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, work_alloc, &params);
  if (result == CUDA_SUCCESS) *ret_pointer = params.dptr;
  return result;
}
CUresult sim_capture_free(struct sim_stream *stream, CUdeviceptr pointer) {
  return append(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, work_free, &pointer);
}

CUresult sim_capture_signal(struct sim_stream *stream, const CUexternalSemaphore *handles,
                            const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count) {
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS node = {(CUexternalSemaphore *)handles, params, count};
  return append(stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, work_signal, &node);
}
CUresult sim_capture_wait_semaphores(struct sim_stream *stream, const CUexternalSemaphore *handles,
                                     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count) {
  CUDA_EXT_SEM_WAIT_NODE_PARAMS node = {(CUexternalSemaphore *)handles, params, count};
  return append(stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, work_wait, &node);
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event) {
  CUresult result = CUDA_ERROR_ILLEGAL_STATE;
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  struct sim_mark *mark = tail == NULL ? NULL : calloc(1, sizeof *mark);
  struct sim_node **nodes = mark == NULL ? NULL : calloc(tail->count + 1, sizeof *nodes);
  if (tail != NULL && nodes == NULL) {
    free(mark);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (tail != NULL) {
    for (uint32_t i = 0; i < tail->count; i++) nodes[i] = tail->nodes[i];
    *mark = (struct sim_mark){tail->capture, event, nodes, tail->count, tail->capture->marks};
    tail->capture->marks = mark;
    event->capture = mark;
    result = CUDA_SUCCESS;
  }
  sim_capture_unlock();
  return result;
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event) {
  CUresult result = CUDA_SUCCESS;
  sim_capture_lock();
  struct sim_mark *mark = event->capture;
  struct sim_tail *tail = stream->capture;
  if (mark == NULL)
    result = event->generation == 0 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* work outside of it */
  else if (mark->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (tail != NULL && tail->capture != mark->capture)
    result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
  else if (stream == &stream->context->legacy)
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  else if (tail == NULL && (tail = sim_capture_join(mark->capture, stream)) == NULL)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  else
    result = sim_tail_add(tail, mark->nodes, mark->count);
  sim_capture_unlock();
  return result;
}

static CUresult find(CUstream handle, bool per_thread, struct sim_stream **ret_stream) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  return result == CUDA_SUCCESS ? sim_stream_find(handle, per_thread, ret_stream) : result;
}

/* As many as the stream has dependencies; NULL: no memory. Under the lock of captures. */
static const CUgraphEdgeData *edges_of(struct sim_tail *tail) {
  if (tail->edges == NULL || tail->edge_count < tail->count) {
    free(tail->edges);
    tail->edge_count = tail->count;
    tail->edges = calloc(tail->count != 0 ? tail->count : 1, sizeof *tail->edges);
  }
  return tail->edges;
}

static CUresult info(CUstream handle, bool per_thread, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,
                     CUgraph *ret_graph, const CUgraphNode **ret_nodes, const CUgraphEdgeData **ret_edges,
                     size_t *ret_count) {
  struct sim_stream *stream;
  CUresult result = find(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (ret_status == NULL || (ret_edges != NULL && ret_nodes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  if (sim_capture_has_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  *ret_status = tail == NULL ? CU_STREAM_CAPTURE_STATUS_NONE : tail->capture->status;
  if (tail != NULL && tail->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (ret_id != NULL) *ret_id = tail->capture->id;
    if (ret_graph != NULL) *ret_graph = (CUgraph)tail->capture->graph;
    if (ret_nodes != NULL) *ret_nodes = (const CUgraphNode *)tail->nodes;
    if (ret_count != NULL) *ret_count = tail->count;
    if (ret_edges != NULL && (*ret_edges = edges_of(tail)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  sim_capture_unlock();
  return result;
}

SIM_PUBLIC CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status) {
  return info(stream, false, ret_status, NULL, NULL, NULL, NULL, NULL);
}

SIM_PUBLIC CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *ret_status) {
  return info(stream, true, ret_status, NULL, NULL, NULL, NULL, NULL);
}

SIM_PUBLIC CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id) {
  return info(stream, false, ret_status, ret_id, NULL, NULL, NULL, NULL);
}

SIM_PUBLIC CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *ret_status,
                                                cuuint64_t *ret_id) {
  return info(stream, true, ret_status, ret_id, NULL, NULL, NULL, NULL);
}

#define INFO_V2(name, per_thread)                                                                                      \
  SIM_PUBLIC CUresult name(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id, CUgraph *ret_graph, \
                           const CUgraphNode **ret_nodes, size_t *ret_count) {                                         \
    return info(stream, per_thread, ret_status, ret_id, ret_graph, ret_nodes, NULL, ret_count);                        \
  }
INFO_V2(cuStreamGetCaptureInfo_v2, false)
INFO_V2(cuStreamGetCaptureInfo_v2_ptsz, true)

#define INFO_V3(name, per_thread)                                                                                      \
  SIM_PUBLIC CUresult name(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id, CUgraph *ret_graph, \
                           const CUgraphNode **ret_nodes, const CUgraphEdgeData **ret_data, size_t *ret_count) {       \
    return info(stream, per_thread, ret_status, ret_id, ret_graph, ret_nodes, ret_data, ret_count);                    \
  }
INFO_V3(cuStreamGetCaptureInfo_v3, false)
INFO_V3(cuStreamGetCaptureInfo_v3_ptsz, true)

static CUresult update(CUstream handle, bool per_thread, CUgraphNode *nodes, size_t count, unsigned flags) {
  struct sim_stream *stream;
  CUresult result = find(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && nodes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  sim_capture_lock();
  struct sim_tail *tail = stream->capture;
  if (tail == NULL) result = CUDA_ERROR_ILLEGAL_STATE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct sim_node *node = sim_node_find(nodes[i]);
    if (node == NULL || node->graph != tail->capture->graph) result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) {
    struct sim_node *const *list = (struct sim_node *const *)nodes;
    result =
        flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? sim_tail_set(tail, list, count) : sim_tail_add(tail, list, count);
  }
  sim_capture_unlock();
  return result;
}

#define UPDATE(name, per_thread)                                                                                       \
  SIM_PUBLIC CUresult name(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags) {                        \
    return update(stream, per_thread, nodes, count, flags);                                                            \
  }
UPDATE(cuStreamUpdateCaptureDependencies, false)
UPDATE(cuStreamUpdateCaptureDependencies_ptsz, true)

#define UPDATE_V2(name, per_thread)                                                                                    \
  SIM_PUBLIC CUresult name(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,             \
                           unsigned flags) {                                                                           \
    (void)data;                                                                                                        \
    return update(stream, per_thread, nodes, count, flags);                                                            \
  }
UPDATE_V2(cuStreamUpdateCaptureDependencies_v2, false)
UPDATE_V2(cuStreamUpdateCaptureDependencies_v2_ptsz, true)
