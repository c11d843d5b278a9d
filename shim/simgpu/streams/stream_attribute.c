/*
 * stream_attribute.c - attributes of streams: priority is real, the others are accepted and answer their defaults.
 * Called by programs.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"

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
