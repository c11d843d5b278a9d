/*
 * stream_books.h - the books of one stream, for the sources that keep them: markers.c, progress.c, work_runs.c,
 * stream_wait.c. Under
 * the lock of the thread's work.
 */
#ifndef VG_GATE_STREAM_BOOKS_H
#define VG_GATE_STREAM_BOOKS_H
#include "base/prim.h"
#include "gate/thread_work.h"

#define VG_STALE_FACTOR 4
#define VG_STALE_LEAST_NS 4000000ull

static inline const struct vg_marker *vg_stream_oldest(const struct vg_stream *stream) {
  return &stream->markers[stream->head % VG_WORK_MARKERS];
}

/* Behind a graph that waits inside, of whose kernels it is known how long they take. */
static inline bool vg_marker_waits_inside(const struct vg_marker *marker) {
  return marker->estimate && marker->estimate->most_us;
}

/* The legacy default stream waits for all blocking ones, whatever they wait for, and nothing marks what was launched
 * into it before they did: an event in it would make them wait. */
static inline bool vg_stream_is_legacy(const struct vg_stream *stream) {
  return !stream->owner && (!stream->handle || stream->handle == CU_STREAM_LEGACY);
}

static inline void vg_stream_set_stale(struct vg_work *work, struct vg_stream *stream, bool stale) {
  if (stream->stale == stale) return;
  stream->stale = stale;
  vg_work_set_outstanding(work,
                          stale ? work->outstanding_ns - stream->cost_ns : work->outstanding_ns + stream->cost_ns);
}

static inline void vg_stream_take_cost(struct vg_work *work, struct vg_stream *stream, uint64_t cost_ns) {
  stream->cost_ns -= cost_ns;
  if (!stream->stale) vg_work_set_outstanding(work, work->outstanding_ns - cost_ns);
}

/* Nothing has been launched since since_ns. Has all completed? What has no marker, after a multiple of its estimate. */
bool vg_stream_settled(const struct vg_stream *stream, uint64_t since_ns, uint64_t now_ns);

/* ---- while the work measures, see work_runs.c ---- */

/* The oldest marker has completed. */
void vg_work_note_run(struct vg_work *work, struct vg_stream *stream, const struct vg_marker *marker, uint64_t at_ns);
/* What is outstanding has completed, by done_ns; earlier: some time before that. */
void vg_work_note_tail(struct vg_work *work, struct vg_stream *stream, uint64_t done_ns, bool earlier);
/* How long work of cost_ns by the estimates takes, in proportion to what timed launches have taken lately. */
uint64_t vg_work_likely_ns(const struct vg_work *work, uint64_t cost_ns);
/* A launch that was estimated at cost_ns has been timed. */
void vg_work_note_sample(struct vg_work *work, uint64_t cost_ns, uint64_t sample_ns);

#endif
