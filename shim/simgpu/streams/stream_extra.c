/*
 * stream_extra.c - the rarer things about streams: attributes, callbacks of the old form.
 */
#include "simgpu/contexts/context.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>

/* ---- attributes: priority is real, the others are accepted and answer their defaults ---- */

static CUresult get_attribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *ret_value, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_value) return CUDA_ERROR_INVALID_VALUE;
  *ret_value = (CUstreamAttrValue){0};
  switch (id) {
  case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    ret_value->priority = stream->priority;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    ret_value->syncPolicy = CU_SYNC_POLICY_AUTO;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult set_attribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value, bool is_per_thread) {
  CUstreamAttrValue unused;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) return CUDA_ERROR_NOT_SUPPORTED; /* fixed when the stream is made */
  return get_attribute(handle, id, &unused, is_per_thread);
}

static CUresult copy_attributes(CUstream to, CUstream from, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(to, is_per_thread, &stream);
  return result == CUDA_SUCCESS ? sim_stream_find(from, is_per_thread, &stream) : result;
}

SIM_PUBLIC CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *ret_value) {
  return get_attribute(stream, id, ret_value, false);
}
SIM_PUBLIC CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *ret_value) {
  return get_attribute(stream, id, ret_value, true);
}
SIM_PUBLIC CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) {
  return set_attribute(stream, id, value, false);
}
SIM_PUBLIC CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) {
  return set_attribute(stream, id, value, true);
}
SIM_PUBLIC CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  return copy_attributes(to, from, false);
}
SIM_PUBLIC CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
  return copy_attributes(to, from, true);
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
