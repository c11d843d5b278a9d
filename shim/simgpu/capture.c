/*
 * capture.c - what the core answers where stream capture is not built in: cuda/ replaces these weak definitions.
 */
#include "sim.h"

#define WEAK __attribute__((weak))

WEAK CUresult sim_capture_copy(struct sim_stream *stream, const CUDA_MEMCPY3D *copy) {
  (void)stream, (void)copy;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_memset(struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set) {
  (void)stream, (void)set;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_callback(struct sim_stream *stream, CUhostFn callback, void *argument) {
  (void)stream, (void)callback, (void)argument;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event) {
  (void)stream, (void)event;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event) {
  (void)stream, (void)event;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_unsafe(void) {
  return CUDA_SUCCESS;
}

WEAK CUresult sim_capture_stream_unsafe(struct sim_stream *stream) {
  return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

WEAK void sim_wide_context_destroy(struct sim_context *context) {
  (void)context;
}
