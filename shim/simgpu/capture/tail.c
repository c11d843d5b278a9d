/*
 * tail.c - where the streams of a capture stand. Called by capture.c and capture_work.c, under the lock of captures.
 */
#include "simgpu/capture/capture.h"
#include <stdlib.h>

CUresult sim_tail_add(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count) {
  struct sim_node **list = realloc(tail->nodes, (tail->count + count + 1) * sizeof *list);
  if (list == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  tail->nodes = list;
  for (uint32_t i = 0; i < count; i++) {
    bool known = false;
    for (uint32_t j = 0; j < tail->count && !known; j++) known = list[j] == nodes[i];
    if (!known) list[tail->count++] = nodes[i];
  }
  return CUDA_SUCCESS;
}

CUresult sim_tail_set(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count) {
  tail->count = 0;
  return sim_tail_add(tail, nodes, count);
}

struct sim_tail *sim_capture_join(struct sim_capture *capture, struct sim_stream *stream) {
  struct sim_tail *tail = calloc(1, sizeof *tail);
  if (tail == NULL) return NULL;
  tail->capture = capture;
  tail->stream = stream;
  tail->next = capture->tails;
  capture->tails = tail;
  stream->capture = tail;
  return tail;
}
