/* event.c - see event.h. */
#include "gate/event.h"

#include "gate/thread_work.h"
#include "gen/abi/real.h"

CUstreamCaptureMode vg_event_mode(CUstreamCaptureMode mode) {
  REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  return mode;
}

CUevent vg_event_new(unsigned int flags) {
  CUevent event = NULL;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventCreate)(&event, flags);
  vg_event_mode(before);
  return result == CUDA_SUCCESS ? event : NULL;
}

void vg_event_drop(CUevent event) {
  if (!event) return;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  REAL(cuEventDestroy_v2)(event);
  vg_event_mode(before);
}

CUresult vg_event_record(CUevent event, const struct vg_stream *stream) {
  /* The caller's own variant: the per-thread default stream is another stream than the legacy one. */
  return stream->per_thread ? REAL(cuEventRecord_ptsz)(event, stream->handle)
                            : REAL(cuEventRecord)(event, stream->handle);
}

CUresult vg_event_query(CUevent event) {
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventQuery)(event);
  vg_event_mode(before);
  return result;
}

bool vg_event_is_pending(CUevent event) {
  return vg_event_query(event) == CUDA_ERROR_NOT_READY;
}
