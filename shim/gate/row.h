/*
 * row.h - launches of one short kernel between two markers, which are timed together. A pair of events around a single
 * launch measures the host's time, too, where the kernel is shorter than its launch: mostly that of the events
 * themselves. Under the lock of the work that the stream belongs to.
 */
#ifndef VG_GATE_ROW_H
#define VG_GATE_ROW_H
#include "gate/estimate.h"
#include "gen/abi/cuda_abi.h"

struct vg_stream;
struct vg_marker;

struct vg_row {
  CUevent begin; /* NULL: there is none */
  struct vg_estimate *estimate;
  uint64_t cost_ns;   /* of each launch, by the estimate as it was */
  uint32_t countdown; /* the estimate's, before the first one */
};

/* By the launching thread, behind the marker of a launch that was timed, of a kernel that may be that short. */
void vg_row_begin(struct vg_stream *stream, struct vg_estimate *estimate);
/* The marker that is about to be recorded ends the row. The two time it if nothing else was launched into the stream,
 * nor the kernel into another one: then times and numbers agree. */
void vg_row_take(struct vg_stream *stream, struct vg_marker *marker);
void vg_row_end(struct vg_stream *stream); /* it is not timed, and what was known of the row before holds no more */

#endif
