/*
 * capture.h - stream capture: where its streams stand (tail.c), what makes nodes of their work (capture_work.c), and
 * the end of the captures of a context (capture.c), which also brings the others to streams/capture_rules.h.
 */
#ifndef VG_SIM_CAPTURE_H
#define VG_SIM_CAPTURE_H
#include "simgpu/graphs/graph.h"
#include "simgpu/streams/capture_rules.h"

/* ---- tail.c ---- */

struct sim_tail *sim_capture_join(struct sim_capture *capture, struct sim_stream *stream); /* NULL: no memory */
CUresult sim_tail_set(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count);
CUresult sim_tail_add(struct sim_tail *tail, struct sim_node *const *nodes, uint32_t count);

/* ---- capture.c ---- */

void sim_capture_context_destroy(struct sim_context *context); /* ends the captures that were begun in it */

/* ---- capture_work.c: struct sim_capture_work says when ---- */

CUresult sim_capture_copy(struct sim_stream *stream, const CUDA_MEMCPY3D *copy);
CUresult sim_capture_memset(struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_capture_callback(struct sim_stream *stream, CUhostFn callback, void *argument);
CUresult sim_capture_alloc(struct sim_stream *stream, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_capture_free(struct sim_stream *stream, CUdeviceptr pointer);
CUresult sim_capture_signal(struct sim_stream *stream, const CUexternalSemaphore *handles,
                            const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_capture_wait_semaphores(struct sim_stream *stream, const CUexternalSemaphore *handles,
                                     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream,
                          struct sim_event *event); /* also when only event->capture is set */
CUresult sim_capture_kernel(struct sim_stream *stream, const struct sim_launch *launch);
CUresult sim_capture_graph(struct sim_stream *stream, struct sim_graph *graph);

#endif
