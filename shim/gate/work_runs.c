/*
 * work_runs.c - when the work of a thread ran, stream by stream: from when it was launched, or what was before it in
 * the stream completed, or the stream had waited, until its marker completed. For processes whose streams may wait for
 * something else (stream_wait.c): there "some work is outstanding" says little of when the device worked.
 *
 * Markers are timing events then, whose completion is known by the device's clock (event_clock.h), however late it is
 * seen.
 */
#include "base/run_delay.h"
#include "gate/stream_books.h"

#define AT_ONCE_NS (50 * VG_NS_PER_US) /* a marker in an idle stream completes within this time */
/* The work before such a marker has ended earlier: it counts as so much longer than by its cost. */
#define UNSEEN_NS (200 * VG_NS_PER_US)
#define RECENT_NS (2 * VG_NS_PER_MS)
#define PPM 1000000ull
#define SAMPLES 16      /* timed launches that count, roughly */
#define SAMPLES_FIRST 3 /* the estimate counts as so many before the first: that one may have been held up */
#define SAMPLE_MOST_PPM (128 * PPM)
#define SCALED_MOST_NS (1ull << 32)    /* longer work is not scaled: it is seen to run */
#define LAUNCH_NS (200 * VG_NS_PER_US) /* of one that takes longer the thread may have had no processor */

void vg_stream_begin_run(struct vg_stream *stream, uint64_t now_ns) {
  stream->run_from_ns = now_ns;
  stream->run_begins_later = false;
  stream->launched_ns = 0;
}

void vg_work_note_launch(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns) {
  if (now_ns <= stream->run_from_ns + LAUNCH_NS) return;
  uint64_t delay_ns = vg_run_delay_ns(), lost_ns = vg_delay_between(work->run_delay_ns, delay_ns);
  work->run_delay_ns = delay_ns;
  if (2 * lost_ns > now_ns - stream->run_from_ns) stream->launched_ns = now_ns;
}

/* For how long work counts as running at most whose begin or end nothing shows: estimates may be too short, and a
 * program must gain nothing by that. */
static uint64_t most_of(uint64_t cost_ns) {
  return UNSEEN_NS + VG_STALE_FACTOR * cost_ns;
}

static uint64_t less(uint64_t time_ns, uint64_t by_ns) {
  return time_ns > by_ns ? time_ns - by_ns : 0;
}

/* A guess says nothing of how long it runs. */
static bool is_known(const struct vg_marker *marker) {
  return !marker->estimate || marker->estimate->count;
}

/* Since when the oldest piece has run, which was launched before until_ns and may have run until then. */
static uint64_t begin_of(const struct vg_stream *stream, uint64_t until_ns, uint64_t cost_ns) {
  uint64_t latest_ns = 0;
  if (stream->run_begins_later || stream->shared) {
    latest_ns = less(until_ns, cost_ns);
  } else if (stream->launched_ns) {
    latest_ns = less(until_ns, most_of(cost_ns));
    if (latest_ns > stream->launched_ns) latest_ns = stream->launched_ns;
  }
  return latest_ns > stream->run_from_ns ? latest_ns : stream->run_from_ns;
}

/*
 * When a graph that waits inside ran is not known, where it took longer than its kernels do: before it waited, behind
 * that, or both. Graphs that wait at the same time have run one after the other: as long as one is pending it counts as
 * running from when it could begin, and the next one behind it, each for what its kernels take. The rest of one that
 * has completed, since others were before it, counts as the last before that; then these have not run yet in that time.
 */
static void give_back(struct vg_marker *marker, struct vg_graph_runs *graphs) {
  uint64_t back_ns = marker->served_ns < graphs->again_ns ? marker->served_ns : graphs->again_ns;
  marker->served_ns -= back_ns;
  graphs->again_ns -= back_ns;
}

static void serve(struct vg_work *work, struct vg_marker *marker, uint64_t begin_ns, uint64_t seen_ns,
                  struct vg_graph_runs *graphs, struct vg_runs *runs) {
  if (begin_ns < graphs->until_ns) begin_ns = graphs->until_ns;
  uint64_t end_ns = begin_ns + marker->cost_ns - marker->served_ns;
  if (end_ns > seen_ns) end_ns = seen_ns;
  if (end_ns <= begin_ns) return;
  vg_runs_add(runs, begin_ns, end_ns);
  marker->served_ns += end_ns - begin_ns;
  graphs->until_ns = end_ns;
  if (marker->served_ns > marker->reported_ns) { /* as completed: what has been paid for is not paid back */
    work->done_ns += marker->served_ns - marker->reported_ns;
    marker->reported_ns = marker->served_ns;
  }
}

void vg_work_serve_graphs(struct vg_work *work, struct vg_graph_runs *graphs, struct vg_runs *runs) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    if (!stream->used || stream->head == stream->tail) continue;
    struct vg_marker *oldest = &stream->markers[stream->head % VG_WORK_MARKERS];
    if (!vg_marker_waits_inside(oldest)) continue;
    give_back(oldest, graphs);
    if (oldest->served_ns >= oldest->cost_ns) continue;
    serve(work, oldest, begin_of(stream, stream->moved_ns, oldest->cost_ns), stream->pending_ns, graphs, runs);
  }
}

static void note_graph_run(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                           uint64_t begin_ns, uint64_t at_ns) {
  uint64_t ran_ns = at_ns - begin_ns < marker->cost_ns ? at_ns - begin_ns : marker->cost_ns;
  uint64_t from_ns = at_ns - less(ran_ns, marker->served_ns);
  vg_runs_add(&work->runs, from_ns, at_ns);
  uint64_t seen_ns = stream->pending_ns < at_ns ? stream->pending_ns : at_ns; /* up to then others may have counted */
  work->graphs.again_ns += less(seen_ns, from_ns);
  if (work->graphs.until_ns < at_ns) work->graphs.until_ns = at_ns;
}

void vg_work_take_graphs(struct vg_work *work, struct vg_graph_runs *graphs) {
  graphs->again_ns += work->graphs.again_ns;
  work->graphs.again_ns = 0;
  if (graphs->until_ns < work->graphs.until_ns) graphs->until_ns = work->graphs.until_ns;
}

static bool is_at_once(const struct vg_marker *marker, uint64_t at_ns) {
  return at_ns < marker->put_ns + AT_ONCE_NS;
}

/* When the work before a marker ended that has completed at at_ns, or is pending since then. A marker that ends a wait
 * shows nothing of the work before it, which has mostly a marker of its own; and one that completes as soon as it is
 * recorded shows only that all has ended before. */
static uint64_t end_of(const struct vg_stream *stream, const struct vg_marker *marker, uint64_t begin_ns,
                       uint64_t at_ns) {
  uint64_t most_ns = at_ns - begin_ns;
  if (marker->ends_wait && !(marker->cost_ns && vg_stream_is_legacy(stream)))
    most_ns = marker->cost_ns ? VG_STALE_LEAST_NS + VG_STALE_FACTOR * marker->cost_ns : 0;
  if (is_at_once(marker, at_ns) && most_ns > most_of(marker->cost_ns)) most_ns = most_of(marker->cost_ns);
  return at_ns > begin_ns + most_ns ? begin_ns + most_ns : at_ns;
}

uint64_t vg_work_likely_ns(const struct vg_work *work, uint64_t cost_ns) {
  return work->sample_ppm && cost_ns < SCALED_MOST_NS ? cost_ns * work->sample_ppm / PPM : cost_ns;
}

/*
 * Pieces that a program launches one by one leave the device idle in between where they are shorter than their
 * launches, and no marker shows that: together they ran for as long as by the estimates, in proportion to what timed
 * launches have taken lately, or since busy_from_ns, where that is longer. Any launch may be a timed one, so kernels
 * that take longer than others of their function count; but programmatic launches are never timed.
 */
static uint64_t less_gaps(const struct vg_work *work, uint64_t begin_ns, uint64_t busy_from_ns, uint64_t end_ns,
                          uint64_t cost_ns) {
  uint64_t ran_from_ns = less(end_ns, vg_work_likely_ns(work, cost_ns));
  if (ran_from_ns > busy_from_ns) ran_from_ns = busy_from_ns;
  return ran_from_ns > begin_ns ? ran_from_ns : begin_ns;
}

void vg_work_note_sample(struct vg_work *work, uint64_t cost_ns, uint64_t sample_ns) {
  uint64_t most_ns = cost_ns * (SAMPLE_MOST_PPM / PPM);
  uint64_t ppm = sample_ns < most_ns && sample_ns < SCALED_MOST_NS ? sample_ns * PPM / cost_ns : SAMPLE_MOST_PPM;
  if (!work->sample_count) {
    work->sample_count = SAMPLES_FIRST;
    work->sample_ppm = PPM;
  }
  if (work->sample_count < SAMPLES) work->sample_count++;
  work->sample_ppm = ((work->sample_count - 1) * work->sample_ppm + ppm) / work->sample_count;
}

static void fill(struct vg_runs *runs, const struct vg_piece *piece) {
  if (piece->first)
    vg_runs_fill_first(runs, piece->begin_ns, piece->end_ns, piece->length_ns);
  else
    vg_runs_fill_latest(runs, piece->begin_ns, piece->end_ns, piece->length_ns);
}

/* Threads may launch into one stream in turn: their pieces in it do not run at the same time. */
static void add_piece(struct vg_work *work, uint64_t begin_ns, uint64_t end_ns, uint64_t length_ns, bool first) {
  struct vg_piece piece = {begin_ns, end_ns, length_ns, first};
  if (end_ns <= begin_ns) return;
  if (work->pieces.count == VG_PIECES)
    fill(&work->runs, &piece);
  else
    work->pieces.of[work->pieces.count++] = piece;
}

/* What is before a marker has run by end_ns, at which that is not pending any more. */
static void note_piece(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                       uint64_t begin_ns, uint64_t at_ns) {
  uint64_t end_ns = end_of(stream, marker, begin_ns, at_ns), length_ns = vg_work_likely_ns(work, marker->cost_ns);
  bool is_late = !marker->estimate && !marker->ends_wait && is_at_once(marker, at_ns); /* after the last launch */
  if (is_late && !stream->programmatic) {
    add_piece(work, begin_ns > marker->after_ns ? begin_ns : marker->after_ns, end_ns, length_ns, true);
    return;
  }
  bool is_timed = is_known(marker) && !stream->programmatic;
  uint64_t from_ns = is_timed ? less_gaps(work, begin_ns, marker->put_ns, end_ns, marker->cost_ns) : begin_ns;
  if (at_ns < marker->put_ns + RECENT_NS)
    add_piece(work, begin_ns, end_ns, less(end_ns, from_ns), false);
  else /* as what was pending has been added */
    vg_runs_add(&work->runs, from_ns, end_ns);
}

static void begin_next(struct vg_stream *stream, uint64_t at_ns, bool empty) {
  stream->run_from_ns = at_ns;
  stream->run_begins_later = empty;
  stream->launched_ns = 0;
}

void vg_work_note_run(struct vg_work *work, struct vg_stream *stream, const struct vg_marker *marker, uint64_t at_ns) {
  if (!is_known(marker)) stream->launched_ns = 0;
  uint64_t begin_ns = begin_of(stream, at_ns, marker->cost_ns);
  if (vg_marker_waits_inside(marker))
    note_graph_run(work, stream, marker, begin_ns, at_ns);
  else if (marker->cost_ns)
    note_piece(work, stream, marker, begin_ns, at_ns);
  begin_next(stream, at_ns, stream->cost_ns == marker->cost_ns);
}

void vg_work_note_tail(struct vg_work *work, struct vg_stream *stream, uint64_t done_ns, bool earlier) {
  uint64_t begin_ns = begin_of(stream, done_ns, stream->cost_ns);
  if (earlier) begin_ns = stream->run_from_ns > work->marked_ns ? stream->run_from_ns : work->marked_ns;
  uint64_t length_ns = stream->programmatic ? less(done_ns, begin_ns) : vg_work_likely_ns(work, stream->cost_ns);
  if (stream->cost_ns) add_piece(work, begin_ns, done_ns, length_ns, earlier);
  begin_next(stream, done_ns, true);
}

/* What runs is known as of the last look at its marker; not yet, if that was recorded a moment before: when it
 * completed is known better by then. */
static void take_running(const struct vg_work *work, const struct vg_stream *stream, struct vg_runs *runs,
                         uint64_t *sure_ns) {
  const struct vg_marker *oldest = vg_stream_oldest(stream);
  uint64_t begin_ns = begin_of(stream, stream->moved_ns, oldest->cost_ns);
  uint64_t seen_ns = stream->pending_ns > begin_ns ? stream->pending_ns : begin_ns;
  if (!stream->waits && oldest->cost_ns && seen_ns < oldest->put_ns + RECENT_NS) {
    if (begin_ns < *sure_ns) *sure_ns = begin_ns;
    return;
  }
  if (!vg_marker_waits_inside(oldest)) {
    uint64_t end_ns = end_of(stream, oldest, begin_ns, seen_ns);
    if (is_known(oldest) && !stream->programmatic)
      begin_ns = less_gaps(work, begin_ns, oldest->put_ns, end_ns, oldest->cost_ns);
    vg_runs_add(runs, begin_ns, end_ns);
  }
  if (seen_ns < *sure_ns) *sure_ns = seen_ns;
}

void vg_work_take_runs(struct vg_work *work, struct vg_runs *runs, uint64_t *sure_ns) {
  vg_runs_add_all(runs, &work->runs);
  work->runs.count = 0;
  for (uint32_t i = 0; i < work->pieces.count; i++) fill(runs, &work->pieces.of[i]);
  work->pieces.count = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used) continue;
    bool marked = stream->head != stream->tail;
    if (marked && !stream->launched_ns)
      take_running(work, stream, runs, sure_ns);
    else if (stream->cost_ns && !stream->waits && stream->run_from_ns < *sure_ns)
      *sure_ns = stream->run_from_ns; /* nothing shows its end yet, or its end will show when it began */
  }
}
