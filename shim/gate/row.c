/* row.c - see row.h. */
#include "gate/row.h"

#include "gate/event.h"
#include "gate/thread_work.h"
#include "gen/abi/real.h"

#define ROW_LEAST 8 /* launches */

void vg_row_end(struct vg_stream *stream) {
  struct vg_row *row = &stream->row;
  if (!row->begin) return;
  bool spoilt = row->cost_ns != row->estimate->cost_ns; /* by a sample that came meanwhile: this row says nothing */
  if (!spoilt) vg_estimate_row(row->estimate, 0, 0);
  vg_event_drop(row->begin);
  row->begin = NULL;
}

void vg_row_begin(struct vg_stream *stream, struct vg_estimate *estimate) {
  vg_row_end(stream);
  if (estimate->count < VG_ESTIMATE_SAMPLES_FIRST || estimate->cost_ns >= VG_ESTIMATE_ROW_NS || stream->shared) return;
  CUevent begin = vg_event_new(CU_EVENT_DEFAULT);
  stream->row = (struct vg_row){
      .begin = begin, .estimate = estimate, .cost_ns = estimate->cost_ns, .countdown = estimate->countdown};
  if (begin && vg_event_record(begin, stream) != CUDA_SUCCESS) vg_row_end(stream);
}

void vg_row_take(struct vg_stream *stream, struct vg_marker *marker) {
  const struct vg_row *row = &stream->row;
  if (!row->begin) return;
  bool same = marker->estimate == row->estimate && !marker->timing_begin && !stream->programmatic;
  uint32_t launches = same && row->countdown > row->estimate->countdown ? row->countdown - row->estimate->countdown : 0;
  if (launches < ROW_LEAST || launches * row->cost_ns != stream->unmarked_ns) {
    vg_row_end(stream);
    return;
  }
  marker->timing_begin = row->begin;
  marker->row = launches;
  stream->row.begin = NULL;
}
