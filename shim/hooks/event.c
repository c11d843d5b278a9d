/*
 * event.c - hooks of events. Recording an event remembers its position in the stream; a thread that has waited for it,
 * or has found it complete, reports to the gate that all work before it has completed. The order is the driver's.
 */
#include "gate/gate.h"
#include "gen/abi/real.h"

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  uint64_t begin = vg_gate_sync_begin();
  CUresult result = REAL(cuEventRecord)(hEvent, hStream);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, false);
  return result;
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  uint64_t begin = vg_gate_sync_begin();
  CUresult result = REAL(cuEventRecord_ptsz)(hEvent, hStream);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, true);
  return result;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  uint64_t begin = vg_gate_sync_begin();
  CUresult result = REAL(cuEventRecordWithFlags)(hEvent, hStream, flags);
  if (result == CUDA_SUCCESS) vg_gate_recorded(begin, hEvent, hStream, false);
  return result;
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  uint64_t begin = vg_gate_sync_begin();
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

CUresult cuEventQuery(CUevent hEvent) {
  struct vg_gate_point point;
  vg_gate_event_begin(hEvent, &point);
  CUresult result = REAL(cuEventQuery)(hEvent);
  if (result == CUDA_SUCCESS) vg_gate_event_reached(&point);
  return result;
}
