/*
 * capture.h - a stream capture: the streams that take part and where each stands. Shared by
 * capture_rules.c (the list, and which calls are refused), capture.c (begin, end) and capture_work.c (what the streams
 * are given to do meanwhile).
 */
#ifndef VG_SIM_CAPTURE_H
#define VG_SIM_CAPTURE_H
#include "simgpu/cuda/graph.h"
#include <pthread.h>

/* Where a stream stands: the nodes that its next one depends on. stream->capture points to it. */
struct sim_tail {
  struct sim_capture *capture;
  struct sim_stream *stream; /* NULL: destroyed since */
  struct sim_node **nodes;
  uint32_t count;
  CUgraphEdgeData *edges; /* of these dependencies, for whoever asks: all zero; NULL: not asked for yet */
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

extern struct sim_capture *sim_captures; /* capture_rules.c: those that have begun, under the lock */
void sim_capture_list(struct sim_capture *capture);
void sim_capture_unlist(struct sim_capture *capture);
void sim_capture_lock(void); /* of the list of captures and everything in them */
void sim_capture_unlock(void);
struct sim_tail *sim_capture_join(struct sim_capture *capture, struct sim_stream *stream); /* NULL: no memory */
CUresult sim_tail_set(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count);
CUresult sim_tail_add(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count);

#endif
