/*
 * test_hook_capture.c - open captures are counted until they have ended: with cuStreamEndCapture whatever it answers,
 * with their stream, or with their context. One thread, a fake driver that remembers which streams capture.
 */
#include "fake_driver.h"
#include "gate/state.h"
#include "gen/hooks/bodies.h"
#include "hooks/capture.h"
#include "hooks/late_free.h"
#include "own_clock.h"

void vg_late_free_rest(void) {} /* no memory here */

#define STREAMS 4 /* stream i has the handle i + 16 */

struct vg_session vg_session;
static bool capturing[STREAMS];
static CUresult refusal;

static bool *state_of(CUstream stream) {
  return &capturing[(uintptr_t)stream - 16];
}

static CUstream stream_of(int index) {
  return (CUstream)(uintptr_t)(index + 16);
}

/* ---- the driver ---- */

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  (void)mode;
  if (*state_of(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  *state_of(stream) = true;
  return CUDA_SUCCESS;
}

/* WRONG_THREAD leaves the capture open, all other refusals end it. */
static CUresult end_capture(CUstream stream, CUgraph *ret_graph) {
  *ret_graph = NULL;
  if (!*state_of(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  *state_of(stream) = refusal == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return refusal;
}

static CUresult answer_status(CUstream stream, CUstreamCaptureStatus *ret_status) {
  *ret_status = *state_of(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

static CUresult destroy_stream(CUstream stream) {
  if (refusal == CUDA_SUCCESS) *state_of(stream) = false;
  return refusal;
}

/* ---- tests ---- */

static CUresult end_with(int index, CUresult code) {
  CUgraph graph;
  refusal = code;
  CUresult result = cuStreamEndCapture(stream_of(index), &graph);
  refusal = CUDA_SUCCESS;
  return result;
}

static void begin_one(int index) {
  uint32_t before = vg_gate_captures;
  CHECK(cuStreamBeginCapture_v2(stream_of(index), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == before + 1);
}

static void a_capture_counts_until_it_ends(void) {
  begin_one(0);
  begin_one(1);
  CHECK(cuStreamBeginCapture_v2(stream_of(1), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(vg_gate_captures == 2);
  CHECK(end_with(0, CUDA_SUCCESS) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == 1);
  CHECK(end_with(0, CUDA_SUCCESS) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(vg_gate_captures == 1);
  CHECK(end_with(1, CUDA_SUCCESS) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == 0);
}

static void an_end_that_fails_may_be_one(void) {
  begin_one(2);
  CHECK(end_with(2, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CHECK(vg_gate_captures == 1);
  CHECK(end_with(2, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(vg_gate_captures == 0);
  begin_one(2);
  CHECK(end_with(2, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_ERROR_ILLEGAL_ADDRESS); /* the context is broken */
  CHECK(vg_gate_captures == 0);
}

static void a_capture_ends_with_its_stream(void) {
  begin_one(3);
  refusal = CUDA_ERROR_INVALID_CONTEXT;
  CHECK(cuStreamDestroy_v2(stream_of(3)) == refusal);
  CHECK(vg_gate_captures == 1);
  refusal = CUDA_SUCCESS;
  CHECK(cuStreamDestroy_v2(stream_of(3)) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == 0);
  begin_one(3); /* the handle is given out again */
  CHECK(cuStreamDestroy_v2(stream_of(2)) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == 1);
  CHECK(end_with(3, CUDA_SUCCESS) == CUDA_SUCCESS);
  CHECK(vg_gate_captures == 0);
}

static void a_capture_ends_with_its_context(void) {
  begin_one(0);
  begin_one(1);
  struct vg_record *record = vg_table_take_context(FAKE_CONTEXT);
  for (struct vg_record *next; record; record = next) {
    next = record->next;
    CHECK(record->kind == VG_RECORD_CAPTURE);
    vg_capture_return(record);
  }
  CHECK(vg_gate_captures == 0);
}

int main(void) {
  vg_session.ledger = vg_session.attached = true;
  vg_session.device_count = 1;
  fake_driver_start(&vg_session.devices[0]);
  vg_real_slots[VG_ENTRY_cuStreamBeginCapture_v2] = (void *)begin_capture;
  vg_real_slots[VG_ENTRY_cuStreamEndCapture] = (void *)end_capture;
  vg_real_slots[VG_ENTRY_cuStreamIsCapturing] = (void *)answer_status;
  vg_real_slots[VG_ENTRY_cuStreamDestroy_v2] = (void *)destroy_stream;
  RUN(a_capture_counts_until_it_ends);
  RUN(an_end_that_fails_may_be_one);
  RUN(a_capture_ends_with_its_stream);
  RUN(a_capture_ends_with_its_context);
  return 0;
}
