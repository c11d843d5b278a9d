/*
 * stream_calls.c - the entry points of streams: made, asked, waited for, destroyed. Called by programs;
 * streams/stream.c keeps the streams.
 */
#include "simgpu/alloc/alloc.h"
#include "simgpu/contexts/context.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"

SIM_PUBLIC CUresult cuStreamCreateWithPriority(CUstream *ret_handle, unsigned flags, int priority) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  result = sim_stream_make(sim_current, flags, priority, &stream);
  if (result == CUDA_SUCCESS) *ret_handle = (CUstream)stream;
  return result;
}

SIM_PUBLIC CUresult cuStreamCreate(CUstream *ret_handle, unsigned flags) {
  return cuStreamCreateWithPriority(ret_handle, flags, 0);
}

/* Returns at once; what was given to the stream is carried out all the same. */
SIM_PUBLIC CUresult cuStreamDestroy_v2(CUstream handle) {
  struct sim_stream *stream;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_stream_find_created(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) sim_capture_stream_destroy(stream);
  sim_stream_end(stream);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuStreamDestroy(CUstream handle) {
  return cuStreamDestroy_v2(handle);
}

static CUresult synchronize(CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_capture_stream_unsafe(stream);
  if (result != CUDA_SUCCESS) return result;
  sim_stream_wait(stream);
  sim_pools_trim(stream->context);
  return sim_context_waited(stream->context);
}

static CUresult query(CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_capture_stream_unsafe(stream);
  if (result != CUDA_SUCCESS) return result;
  return sim_point_query(sim_stream_point(stream)) ? sim_context_waited(stream->context) : CUDA_ERROR_NOT_READY;
}

static CUresult wait_event(CUstream handle, CUevent event_handle, unsigned flags, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture || event->capture) return sim_capture_wait(stream, event);
  result = sim_capture_implicit(stream);
  return result == CUDA_SUCCESS ? sim_submit_wait_event(stream, event) : result;
}

static CUresult get_context(CUstream handle, CUcontext *ret_context, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_context) return CUDA_ERROR_INVALID_VALUE;
  *ret_context = (CUcontext)(stream->green ? stream->green : stream->context);
  return CUDA_SUCCESS;
}

static CUresult get_green(CUstream handle, CUgreenCtx *ret_green, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_green) return CUDA_ERROR_INVALID_VALUE;
  *ret_green = (CUgreenCtx)stream->green;
  return CUDA_SUCCESS;
}

/* Of a stream of a green context that one, and no other. */
static CUresult get_either(CUstream handle, CUcontext *ret_context, CUgreenCtx *ret_green, bool is_per_thread) {
  CUgreenCtx green;
  CUresult result = get_green(handle, &green, is_per_thread);
  if (result == CUDA_SUCCESS) result = get_context(handle, ret_context, is_per_thread);
  if (result != CUDA_SUCCESS) return result;
  if (green) *ret_context = NULL;
  if (ret_green) *ret_green = green;
  return CUDA_SUCCESS;
}

static CUresult get_device(CUstream handle, CUdevice *ret_device, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_device) return CUDA_ERROR_INVALID_VALUE;
  *ret_device = stream->context->ordinal;
  return CUDA_SUCCESS;
}

static CUresult get_flags(CUstream handle, unsigned *ret_flags, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_flags) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = stream->flags;
  return CUDA_SUCCESS;
}

static CUresult get_priority(CUstream handle, int *ret_priority, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_priority) return CUDA_ERROR_INVALID_VALUE;
  *ret_priority = stream->priority;
  return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, unsigned long long *ret_id, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_id) return CUDA_ERROR_INVALID_VALUE;
  *ret_id = stream->id;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuStreamSynchronize(CUstream stream) {
  return synchronize(stream, false);
}
SIM_PUBLIC CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return synchronize(stream, true);
}
SIM_PUBLIC CUresult cuStreamQuery(CUstream stream) {
  return query(stream, false);
}
SIM_PUBLIC CUresult cuStreamQuery_ptsz(CUstream stream) {
  return query(stream, true);
}
SIM_PUBLIC CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return wait_event(stream, event, flags, false);
}
SIM_PUBLIC CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return wait_event(stream, event, flags, true);
}
SIM_PUBLIC CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret) {
  return get_context(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *ret) {
  return get_context(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ret, CUgreenCtx *ret_green) {
  return get_either(stream, ret, ret_green, false);
}
SIM_PUBLIC CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ret, CUgreenCtx *ret_green) {
  return get_either(stream, ret, ret_green, true);
}
SIM_PUBLIC CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *ret) {
  return get_green(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetDevice(CUstream stream, CUdevice *ret) {
  return get_device(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *ret) {
  return get_device(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetFlags(CUstream stream, unsigned *ret) {
  return get_flags(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned *ret) {
  return get_flags(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetPriority(CUstream stream, int *ret) {
  return get_priority(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetPriority_ptsz(CUstream stream, int *ret) {
  return get_priority(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetId(CUstream stream, unsigned long long *ret) {
  return get_id(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *ret) {
  return get_id(stream, ret, true);
}
