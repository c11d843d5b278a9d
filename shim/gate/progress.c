/* progress.c - see thread_work.h: which streams of a thread make progress, which wait, and what is left, by its
 * markers. */
#include "gate/event.h"
#include "gate/stream_books.h"

#define STALE_UNKNOWN_NS VG_NS_PER_S /* for an unknown function: it may be one long kernel */
#define STALE_BEGUN_NS (30 * VG_NS_PER_S)
#define STALE_ALONE_UNKNOWN_NS                                                                                         \
  (100 * VG_NS_PER_MS)                  /* in a slice that is alone, for an unknown function that has begun */
#define STALE_ALONE_MOST_NS VG_NS_PER_S /* a kernel that ran for an hour may wait for the program this time, too */
#define STALE_ALONE_BEHIND_NS (100 * VG_NS_PER_MS) /* the same, for what other streams have queued */

/* Does the marker's launch run? A launch that runs waits, almost always, for no later launch. */
static bool begun(const struct vg_marker *marker) {
  return marker->timing_begin && !marker->row && !vg_event_is_pending(marker->timing_begin);
}

/* Streams that share the device with others make slower progress. So a stream is stuck if none of the process has made
 * progress for a multiple of what all have outstanding together, or this one alone for a multiple of that. */
static void review_stale(struct vg_work *work, struct vg_stream *stream, const struct vg_process_totals *together,
                         uint64_t now_ns) {
  if (stream->head == stream->tail) return;
  if (stream->waits) { /* not while the launch that it waits for stands at the gate */
    uint64_t since_ns = stream->moved_ns > together->accepted_ns ? stream->moved_ns : together->accepted_ns;
    if (together->accepted_ns && now_ns > since_ns + VG_STALE_LEAST_NS) vg_stream_set_stale(work, stream, true);
    return;
  }
  const struct vg_marker *oldest = vg_stream_oldest(stream);
  uint64_t moved_ns = together->moved_ns, together_ns = together->left_ns;
  uint64_t patience_ns = (oldest->cost_ns > together_ns ? oldest->cost_ns : together_ns) * VG_STALE_FACTOR;
  if (patience_ns < VG_STALE_LEAST_NS) patience_ns = VG_STALE_LEAST_NS;
  if (oldest->estimate && !oldest->estimate->count) patience_ns = STALE_UNKNOWN_NS;
  uint64_t stuck_ns = moved_ns + patience_ns, alone_ns = stream->moved_ns + patience_ns;
  if (stuck_ns < alone_ns) stuck_ns = alone_ns;
  alone_ns += (VG_STALE_FACTOR - 1) * patience_ns;
  if (now_ns <= (stuck_ns < alone_ns ? stuck_ns : alone_ns)) return;
  if (now_ns > stream->moved_ns + STALE_BEGUN_NS || !begun(oldest)) vg_stream_set_stale(work, stream, true);
}

void vg_work_renew_waiting(struct vg_work *work) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && work->streams[i].waits) vg_stream_set_stale(work, &work->streams[i], false);
}

void vg_work_add_pieces(const struct vg_work *work, struct vg_process_totals *together) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used || stream->stale || stream->head == stream->tail) continue;
    const struct vg_marker *oldest = vg_stream_oldest(stream);
    if (!oldest->estimate || oldest->estimate->count)
      together->pieces_ns += oldest->cost_ns;
    else
      together->unknown_runs |= begun(oldest);
  }
}

/* Nothing else holds up a slice that is alone: if the device works for it, one of the oldest pieces of its streams
 * completes within the time of all of them. Else they wait for the program, whose launches must not wait for them. A
 * stream alone has that and for as long as what the others have queued takes, within a limit. */
static void review_stale_alone(struct vg_work *work, struct vg_stream *stream, const struct vg_process_totals *together,
                               uint64_t now_ns) {
  if (stream->head == stream->tail) return;
  uint64_t patience_ns = VG_STALE_LEAST_NS + together->pieces_ns + together->pieces_ns / 2;
  if (together->unknown_runs) patience_ns += STALE_ALONE_UNKNOWN_NS;
  if (patience_ns > STALE_ALONE_MOST_NS) patience_ns = STALE_ALONE_MOST_NS;
  uint64_t stuck_ns = (together->moved_ns > stream->moved_ns ? together->moved_ns : stream->moved_ns) + patience_ns;
  uint64_t left_ns = together->left_ns < STALE_ALONE_BEHIND_NS ? together->left_ns : STALE_ALONE_BEHIND_NS;
  if (now_ns > stuck_ns || now_ns > stream->moved_ns + patience_ns + left_ns) vg_stream_set_stale(work, stream, true);
}

void vg_work_review_stale(struct vg_work *work, const struct vg_process_totals *together, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    if (!work->streams[i].used) continue;
    if (together->alone)
      review_stale_alone(work, &work->streams[i], together, now_ns);
    else
      review_stale(work, &work->streams[i], together, now_ns);
  }
}

bool vg_stream_settled(const struct vg_stream *stream, uint64_t since_ns, uint64_t now_ns) {
  if (stream->head != stream->tail) return false;
  uint64_t from_ns = stream->moved_ns > since_ns ? stream->moved_ns : since_ns;
  return !stream->unmarked_ns || now_ns > from_ns + VG_STALE_LEAST_NS + VG_STALE_FACTOR * stream->unmarked_ns;
}

uint64_t vg_work_waiting(const struct vg_work *work, uint64_t *ret_counts) {
  uint64_t sum_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used || !stream->waits) continue;
    sum_ns += stream->cost_ns;
    if (!stream->stale) *ret_counts += stream->cost_ns;
  }
  return sum_ns;
}

uint64_t vg_work_running(const struct vg_work *work) {
  uint64_t sum_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && !work->streams[i].waits) sum_ns += work->streams[i].cost_ns;
  return sum_ns;
}

static const struct vg_marker *find_timed(const struct vg_work *work, const void *function, uint32_t grid_class) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    for (uint32_t at = stream->head; stream->used && at != stream->tail; at++) {
      const struct vg_marker *marker = &stream->markers[at % VG_WORK_MARKERS];
      const struct vg_estimate *estimate = marker->estimate;
      if (marker->timing_begin && !marker->row && !stream->waits && estimate->function == function &&
          estimate->grid_class == grid_class)
        return marker;
    }
  }
  return NULL;
}

enum vg_timed vg_work_timed(const struct vg_work *work, const void *function, uint32_t grid_class) {
  const struct vg_marker *marker = find_timed(work, function, grid_class);
  if (!marker) return VG_TIMED_NONE;
  return begun(marker) ? VG_TIMED_RUNS : VG_TIMED_QUEUED;
}

static uint64_t progress(const struct vg_stream *stream, uint64_t now_ns) {
  if (!stream->used || stream->stale || stream->waits || stream->head == stream->tail || now_ns < stream->moved_ns)
    return 0;
  uint64_t since_ns = now_ns - stream->moved_ns;
  uint64_t oldest_ns = vg_stream_oldest(stream)->cost_ns;
  return since_ns < oldest_ns ? since_ns : oldest_ns;
}

uint64_t vg_work_progress(const struct vg_work *work, uint64_t now_ns) {
  uint64_t most_ns = 0; /* the device runs one piece at a time */
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    uint64_t done_ns = progress(&work->streams[i], now_ns);
    if (done_ns > most_ns) most_ns = done_ns;
  }
  return most_ns;
}

bool vg_work_pending(const struct vg_work *work, uint64_t *ret_pending_ns) {
  bool pending = false;
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used) continue;
    if (stream->waits) continue;
    pending |= stream->head != stream->tail;
    if (stream->pending_ns > *ret_pending_ns) *ret_pending_ns = stream->pending_ns;
  }
  return pending;
}

uint64_t vg_work_unmarked(const struct vg_work *work) {
  uint64_t unmarked_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (stream->used && !stream->stale && stream->head == stream->tail) unmarked_ns += stream->unmarked_ns;
  }
  return unmarked_ns;
}

uint64_t vg_work_seen(const struct vg_work *work, uint64_t now_ns) {
  uint64_t unmarked_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && !work->streams[i].stale) unmarked_ns += work->streams[i].unmarked_ns;
  bool over = now_ns > work->last_launch_ns + VG_STALE_LEAST_NS + VG_STALE_FACTOR * unmarked_ns;
  return over ? work->outstanding_ns - unmarked_ns : work->outstanding_ns;
}

bool vg_work_settled(const struct vg_work *work, uint64_t since_ns, uint64_t now_ns) {
  bool settled = true;
  for (int i = 0; i < VG_WORK_STREAMS && settled; i++)
    settled = !work->streams[i].used || vg_stream_settled(&work->streams[i], since_ns, now_ns);
  return settled;
}
