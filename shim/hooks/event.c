/*
 * event.c - hooks of events. Recording an event remembers its position in the stream; a thread that has waited for it,
 * or has found it complete, reports to the gate that all work before it has completed. The order is the driver's. A
 * stream that is to wait for an event that has completed already does not wait.
 */
#include "gate/gate.h"
#include "gate/residence.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  uint64_t begin = vg_gate_epoch_begin();
  CUresult result = REAL(cuEventRecord)(hEvent, hStream);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, false);
  return result;
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  uint64_t begin = vg_gate_epoch_begin();
  CUresult result = REAL(cuEventRecord_ptsz)(hEvent, hStream);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, true);
  return result;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  uint64_t begin = vg_gate_epoch_begin();
  CUresult result = REAL(cuEventRecordWithFlags)(hEvent, hStream, flags);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, false);
  return result;
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  uint64_t begin = vg_gate_epoch_begin();
  CUresult result = REAL(cuEventRecordWithFlags_ptsz)(hEvent, hStream, flags);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, true);
  return result;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  struct vg_gate_point point;
  vg_gate_event_begin(hEvent, &point);
  CUresult result = REAL(cuEventSynchronize)(hEvent);
  if (result == CUDA_SUCCESS) vg_gate_event_reached(&point);
  return result;
}

static CUresult query(CUevent event) {
  struct vg_gate_point point;
  vg_gate_event_begin(event, &point);
  CUresult result = REAL(cuEventQuery)(event);
  if (result == CUDA_SUCCESS) vg_gate_event_reached(&point);
  return result;
}

static __attribute__((noinline)) CUresult query_watched(CUevent event) {
  if (vg_residence_poll_watched() == VG_POLL_COMPLETED) return CUDA_SUCCESS;
  CUresult result = query(event);
  vg_residence_end_poll();
  return result;
}

CUresult cuEventQuery(CUevent hEvent) {
  return VG_UNLIKELY(vg_residence_is_watched()) ? query_watched(hEvent) : query(hEvent);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned int flags, bool per_thread) {
  __typeof__(&cuStreamWaitEvent) wait = per_thread ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent);
  if (vg_gate_is_event_over(event)) return wait(stream, event, flags);
  vg_gate_wait_before(stream, per_thread);
  CUresult result = wait(stream, event, flags);
  if (result == CUDA_SUCCESS) vg_gate_wait_behind(stream, per_thread);
  return result;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return wait_event(hStream, hEvent, Flags, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return wait_event(hStream, hEvent, Flags, true);
}

/* ---- events that others complete ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event) {
  VG_STORE(&vg_residence_shared, true);
  return REAL(cuIpcGetEventHandle)(pHandle, event);
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle) {
  VG_STORE(&vg_residence_shared, true);
  return REAL(cuIpcOpenEventHandle)(phEvent, handle);
}

CUresult cuEventCreateFromEGLSync(CUevent *phEvent, EGLSyncKHR eglSync, unsigned int flags) {
  VG_STORE(&vg_residence_shared, true);
  return REAL(cuEventCreateFromEGLSync)(phEvent, eglSync, flags);
}
