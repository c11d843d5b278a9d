/*
 * capture_rules.h - captures that are going on: the streams that take part and where each stands; and which calls are
 * refused meanwhile. capture/capture.c begins and ends captures.
 */
#ifndef VG_SIM_CAPTURE_RULES_H
#define VG_SIM_CAPTURE_RULES_H
#include "simgpu/streams/stream.h"
#include <pthread.h>

/* Where a stream stands: the nodes that its next one depends on. stream->capture points to it. */
struct sim_tail {
  struct sim_capture *capture;
  struct sim_stream *stream; /* NULL: destroyed since */
  struct sim_node **nodes;
  uint32_t count;
  CUgraphEdgeData *edges; /* of these dependencies, for queries: all zero; NULL: not asked for yet */
  uint32_t edge_count;
  struct sim_tail *next;
};

/* Where an event stands that was recorded into a capture. event->capture points to it. */
struct sim_mark {
  struct sim_capture *capture;
  struct sim_event *event;
  struct sim_node **nodes;
  uint32_t count;
  struct sim_mark *next;
};

struct sim_capture {
  struct sim_graph *graph;
  bool foreign_graph; /* cuStreamBeginCaptureToGraph: the program's */
  uint64_t id;
  CUstreamCaptureMode mode;
  CUstreamCaptureStatus status;
  pthread_t thread;
  struct sim_stream *origin;
  struct sim_tail *tails;
  struct sim_mark *marks;
  struct sim_capture *next;
};

struct sim_graph;
struct sim_launch;

/*
 * What becomes of the work of a stream while stream->capture is set, in place of doing it: capture/ makes nodes of it.
 * By this table, which it brings along, the rooms below it need nothing of it.
 */
struct sim_capture_work {
  CUresult (*copy)(struct sim_stream *stream, const CUDA_MEMCPY3D *copy);
  CUresult (*memset)(struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set);
  CUresult (*callback)(struct sim_stream *stream, CUhostFn callback, void *argument);
  CUresult (*alloc)(struct sim_stream *stream, uint64_t bytes, CUdeviceptr *ret_pointer);
  CUresult (*free)(struct sim_stream *stream, CUdeviceptr pointer);
  CUresult (*signal)(struct sim_stream *stream, const CUexternalSemaphore *handles,
                     const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
  CUresult (*wait_semaphores)(struct sim_stream *stream, const CUexternalSemaphore *handles,
                              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);
  CUresult (*record)(struct sim_stream *stream, struct sim_event *event);
  CUresult (*wait)(struct sim_stream *stream, struct sim_event *event); /* also when only event->capture is set */
  CUresult (*kernel)(struct sim_stream *stream, const struct sim_launch *launch);
  CUresult (*graph)(struct sim_stream *stream, struct sim_graph *graph);
  void (*end_stream)(struct sim_stream *stream); /* it is destroyed: its capture ends, or loses it */
};
void sim_capture_set_work(const struct sim_capture_work *work); /* before any stream captures */
const struct sim_capture_work *sim_capture_work(void);

extern struct sim_capture *sim_captures;            /* those that have begun; under the lock */
void sim_capture_list(struct sim_capture *capture); /* has begun: under the lock, as its end is */
void sim_capture_unlist(struct sim_capture *capture);
void sim_capture_lock(void); /* of the list of captures and everything in them */
void sim_capture_unlock(void);

/* A call that may not be made while a stream captures (synchronise, allocate): CUDA_SUCCESS, or the code to answer. */
CUresult sim_capture_unsafe(void);
/* Work is given to a stream that does not capture: refused when that is the legacy stream beside a blocking capture. */
CUresult sim_capture_implicit(struct sim_stream *stream);
CUresult sim_capture_stream_unsafe(struct sim_stream *stream); /* synchronise or query that stream itself */
CUresult sim_capture_context(struct sim_context *context);     /* an event of a whole context: ends its captures */
/* Is it the legacy stream beside a blocking capture? It may be asked without harm. */
bool sim_capture_has_legacy(const struct sim_stream *stream);

#endif
