/*
 * event.c - events: made, recorded, asked, waited for, ended. A record of one is a point in a stream and a place where
 * the server writes its simulated time.
 */
#include "simgpu/base/slab.h"
#include "simgpu/base/strict.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/event_page.h"
#include "simgpu/streams/stream.h"

static struct sim_slab events = SIM_SLAB(sizeof(struct sim_event), SIM_EVENTS_MAX);

struct sim_event *sim_event_find(CUevent handle) {
  return sim_slab_find(&events, handle, SIM_EVENT_MAGIC);
}

CUresult sim_event_make(struct sim_context *context, unsigned flags, struct sim_ipc_event *ipc, CUevent *ret_handle) {
  struct sim_event *event = sim_slab_get(&events, SIM_EVENT_MAGIC);
  if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
  event->slot = sim_slab_index(&events, event);
  event->flags = flags;
  event->context = context;
  event->ipc = ipc;
  CUresult result = flags & CU_EVENT_INTERPROCESS && !ipc ? sim_ipc_event_begin(event) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    *ret_handle = (CUevent)event;
  else
    sim_slab_put(&events, event);
  return result;
}

void sim_event_end(struct sim_event *event) {
  sim_ipc_event_end(event);
  sim_slab_put(&events, event);
}

void sim_events_destroy(struct sim_context *context) {
  for (uint32_t i = 0; i < events.used; i++) {
    struct sim_event *event = (struct sim_event *)(events.base + (size_t)i * events.object_bytes);
    if (event->object.magic == SIM_EVENT_MAGIC && event->context == context) sim_event_end(event);
  }
}

/* ---- entry points ---- */

SIM_PUBLIC CUresult cuEventCreate(CUevent *ret_handle, unsigned flags) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (!ret_handle || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  return sim_event_make(context, flags, NULL, ret_handle);
}

SIM_PUBLIC CUresult cuEventDestroy_v2(CUevent handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  result = sim_context_state(event->context);
  if (result == CUDA_SUCCESS) sim_event_end(event);
  return result;
}

SIM_PUBLIC CUresult cuEventDestroy(CUevent handle) {
  return cuEventDestroy_v2(handle);
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(stream_handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != stream->context) {
    if (SIM_STRICT) sim_strict_tell("event", event, "of another context than the stream");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->capture = NULL;
  if (VG_UNLIKELY(stream->capture)) return sim_capture_work()->record(stream, event);
  result = sim_capture_implicit(stream);
  return result == CUDA_SUCCESS ? sim_submit_record(stream, event) : result;
}

SIM_PUBLIC CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record(event, stream, 0, false);
}

SIM_PUBLIC CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return record(event, stream, 0, true);
}

SIM_PUBLIC CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags, false);
}

SIM_PUBLIC CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags, true);
}

static CUresult wait_event(CUstream handle, CUevent event_handle, unsigned flags, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture || event->capture) return sim_capture_work()->wait(stream, event);
  result = sim_capture_implicit(stream);
  return result == CUDA_SUCCESS ? sim_submit_wait_event(stream, event) : result;
}

SIM_PUBLIC CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return wait_event(stream, event, flags, false);
}

SIM_PUBLIC CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return wait_event(stream, event, flags, true);
}

static CUresult find(CUevent handle, struct sim_event **ret_event) {
  CUresult result = sim_ready();
  *ret_event = NULL;
  if (result != CUDA_SUCCESS) return result;
  *ret_event = sim_event_find(handle);
  if (!*ret_event) return CUDA_ERROR_INVALID_HANDLE;
  result = sim_context_state((*ret_event)->context);
  if (result != CUDA_SUCCESS) return result;
  return (*ret_event)->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuEventQuery(CUevent handle) {
  struct sim_event *event;
  CUresult result = find(handle, &event);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  bool done = event->ipc ? sim_ipc_event_done(event) : event->generation == 0 || sim_point_query(event->point);
  return done ? sim_context_waited(event->context) : CUDA_ERROR_NOT_READY;
}

SIM_PUBLIC CUresult cuEventSynchronize(CUevent handle) {
  struct sim_event *event;
  CUresult result = find(handle, &event);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  if (event->ipc)
    sim_ipc_event_synchronize(event);
  else if (event->generation != 0)
    sim_point_wait(event->point);
  sim_wait_hook_run(event->context);
  return sim_context_waited(event->context);
}

static CUresult time_of(const struct sim_event *event, uint64_t *ret_time_ns) {
  if (event->flags & CU_EVENT_DISABLE_TIMING || event->generation == 0) return CUDA_ERROR_INVALID_HANDLE;
  const struct sim_event_state *state = &sim_link.done->events[event->slot];
  if (!sim_point_query(event->point) || VG_LOAD(&state->generation) < event->generation) return CUDA_ERROR_NOT_READY;
  *ret_time_ns = VG_LOAD_RELAXED(&state->time_ns);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuEventElapsedTime_v2(float *ret_milliseconds, CUevent first_handle, CUevent last_handle) {
  struct sim_event *first, *last;
  uint64_t first_ns, last_ns;
  if (!ret_milliseconds) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = find(first_handle, &first);
  if (result == CUDA_SUCCESS) result = find(last_handle, &last);
  if (result == CUDA_SUCCESS) result = time_of(first, &first_ns);
  if (result == CUDA_SUCCESS) result = time_of(last, &last_ns);
  if (result == CUDA_SUCCESS) *ret_milliseconds = (float)((double)(int64_t)(last_ns - first_ns) / 1e6);
  return result;
}

SIM_PUBLIC CUresult cuEventElapsedTime(float *ret_milliseconds, CUevent first, CUevent last) {
  return cuEventElapsedTime_v2(ret_milliseconds, first, last);
}

/* An event that is done when everything given to the context so far is: one marker that waits for all streams. */
SIM_PUBLIC CUresult cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (event->context != context->home) return CUDA_ERROR_INVALID_HANDLE;
  result = sim_context_state(context);
  if (result == CUDA_SUCCESS) result = sim_capture_context(context->home);
  if (result != CUDA_SUCCESS) return result;
  event->capture = NULL;
  result = sim_submit_record_all(context, event);
  return result == CUDA_SUCCESS && event->ipc ? sim_ipc_event_record(&context->join, event) : result;
}

/* Everything that is given to the context from now on waits for the event. */
SIM_PUBLIC CUresult cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
  struct sim_event *event;
  CUresult result = find(event_handle, &event);
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  result = sim_capture_context(context->home);
  if (result != CUDA_SUCCESS) return result;
  if (event->ipc) sim_ipc_event_synchronize(event); /* here: no stream of the context gets anything before */
  return event->generation == 0 ? CUDA_SUCCESS : sim_submit_wait_all(context, event->point);
}
