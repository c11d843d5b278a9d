/*
 * callback.c - functions of the program that a stream calls: cuLaunchHostFunc, and cuStreamAddCallback of the old form.
 * Called by programs; agent.c calls the functions.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>

static CUresult launch_host(CUstream handle, bool per_thread, CUhostFn callback, void *argument) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (callback == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != NULL) return sim_capture_work()->callback(stream, callback, argument);
  result = sim_capture_implicit(stream);
  return result == CUDA_SUCCESS ? sim_submit_callback(stream, callback, argument, false) : result;
}

SIM_PUBLIC CUresult cuLaunchHostFunc(CUstream stream, CUhostFn callback, void *argument) {
  return launch_host(stream, false, callback, argument);
}

SIM_PUBLIC CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn callback, void *argument) {
  return launch_host(stream, true, callback, argument);
}

/* ---- cuStreamAddCallback ---- */

struct old_callback {
  CUstreamCallback function;
  CUstream stream;
  const struct sim_context *context;
  void *argument;
};

static void call_old(void *argument) {
  struct old_callback call = *(struct old_callback *)argument;
  free(argument);
  call.function(call.stream, sim_context_state(call.context), call.argument);
}

static CUresult add_callback(CUstream handle, CUstreamCallback function, void *argument, unsigned flags,
                             bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!function || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  struct old_callback *call = malloc(sizeof *call);
  if (!call) return CUDA_ERROR_OUT_OF_MEMORY;
  *call = (struct old_callback){function, handle, stream->context, argument};
  return sim_submit_callback(stream, call_old, call, true);
}

SIM_PUBLIC CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *argument, unsigned flags) {
  return add_callback(stream, function, argument, flags, false);
}
SIM_PUBLIC CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback function, void *argument,
                                             unsigned flags) {
  return add_callback(stream, function, argument, flags, true);
}
