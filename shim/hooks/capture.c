/*
 * capture.c - stream capture: counted from before it begins until it has ended; meanwhile the shim makes no driver
 * calls of its own (gate/gate.h). A capture ends with cuStreamEndCapture, with its stream or with its context: each
 * open capture has a record in the table, so that none is counted for ever. Called by programs, any thread.
 */
#include "hooks/capture.h"

#include "context/context.h"
#include "gate/gate.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/late_free.h"

typedef CUresult status_call(CUstream stream, CUstreamCaptureStatus *status);

/* Per-thread default streams of several threads have one key: their records are interchangeable. */
static uint64_t key_of(CUstream stream, bool per_thread) {
  return (uint64_t)(uintptr_t)(!stream && per_thread ? CU_STREAM_PER_THREAD : stream);
}

static struct vg_record *begin(void) {
  CUcontext context;
  struct vg_device *device = vg_context_current(&context);
  struct vg_record *record = vg_record_new(VG_RECORD_CAPTURE, device, context);
  if (record) vg_gate_capture_begin();
  return record;
}

void vg_capture_return(struct vg_record *record) {
  vg_gate_capture_end();
  vg_record_free(record);
}

static CUresult begun(struct vg_record *record, CUstream stream, bool per_thread, CUresult result) {
  if (result == CUDA_SUCCESS)
    vg_table_put(record, key_of(stream, per_thread));
  else
    vg_capture_return(record);
  return result;
}

#define BEGIN(per_thread, call)                                                                                        \
  struct vg_record *record = begin();                                                                                  \
  if (!record) return CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
  return begun(record, hStream, per_thread, call)

CUresult cuStreamBeginCapture(CUstream hStream) {
  BEGIN(false, REAL(cuStreamBeginCapture)(hStream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  BEGIN(true, REAL(cuStreamBeginCapture_ptsz)(hStream));
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  BEGIN(false, REAL(cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  BEGIN(true, REAL(cuStreamBeginCapture_v2_ptsz)(hStream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  BEGIN(false, REAL(cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
  BEGIN(true,
        REAL(cuStreamBeginCaptureToGraph_ptsz)(hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

/* The record is taken before the call: once the capture has ended another one may begin in the same stream. A call that
 * failed may have ended it all the same: an invalidated capture is over, another thread's is not. The driver is asked.
 */
static CUresult ended(struct vg_record *record, CUstream stream, CUresult result, status_call *status_of) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!record) return result;
  if (result != CUDA_SUCCESS && status_of(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
    vg_table_put(record, record->key);
  else
    vg_capture_return(record);
  vg_late_free_rest();
  return result;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
  struct vg_record *record = vg_table_take(VG_RECORD_CAPTURE, key_of(hStream, false));
  return ended(record, hStream, REAL(cuStreamEndCapture)(hStream, phGraph), REAL(cuStreamIsCapturing));
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
  struct vg_record *record = vg_table_take(VG_RECORD_CAPTURE, key_of(hStream, true));
  return ended(record, hStream, REAL(cuStreamEndCapture_ptsz)(hStream, phGraph), REAL(cuStreamIsCapturing_ptsz));
}

static CUresult destroyed(struct vg_record *record, CUresult result) {
  if (record && result == CUDA_SUCCESS) vg_capture_return(record);
  if (record && result != CUDA_SUCCESS) vg_table_put(record, record->key);
  return result;
}

CUresult cuStreamDestroy(CUstream hStream) {
  vg_gate_stream_gone(hStream);
  struct vg_record *record = vg_table_take(VG_RECORD_CAPTURE, key_of(hStream, false));
  return destroyed(record, REAL(cuStreamDestroy)(hStream));
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  vg_gate_stream_gone(hStream);
  struct vg_record *record = vg_table_take(VG_RECORD_CAPTURE, key_of(hStream, false));
  return destroyed(record, REAL(cuStreamDestroy_v2)(hStream));
}
