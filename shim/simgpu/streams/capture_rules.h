/*
 * capture_rules.h - captures that are going on: the streams that take part and where each stands; and which calls are
 * refused meanwhile. cuda/capture.c begins and ends captures, cuda/capture_work.c makes nodes of work.
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
