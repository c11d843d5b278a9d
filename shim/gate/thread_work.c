/* thread_work.c - see thread_work.h. Estimates are kept per function and grid class; markers are recorded every eighth
 * of the bound. */
#include "gate/thread_work.h"

#include <stdlib.h>

#include "base/prim.h"
#include "context/context.h"
#include "gen/abi/real.h"

#define AHEAD_NS 40000      /* work ahead of a timed launch, so that the host's part is not timed, too */
#define AHEAD_OF_NS 4000000 /* not ahead of a longer one, of which the host's part is a hundredth */
#define POSTPONED_MOST 16
#define PAUSE_LEAST_NS 500000ull /* between two markers of a thread, which are an eighth of the bound apart */
#define STALE_FACTOR 4
#define STALE_LEAST_NS 4000000ull
#define STALE_UNKNOWN_NS VG_NS_PER_S /* for an unknown function: it may be one long kernel */
#define STALE_BEGUN_NS (30 * VG_NS_PER_S)
#define STALE_ALONE_UNKNOWN_NS                                                                                         \
  (100 * VG_NS_PER_MS)                  /* in a slice that is alone, for an unknown function that has begun */
#define STALE_ALONE_MOST_NS VG_NS_PER_S /* a kernel that ran for an hour may wait for the program this time, too */
#define STALE_ALONE_BEHIND_NS (100 * VG_NS_PER_MS) /* the same, for what other streams have queued */

/* ---- estimates ---- */

uint64_t vg_work_known_cost(const struct vg_work *work, const void *function, uint64_t threads) {
  uint64_t key = vg_work_key(function, threads);
  size_t place = (size_t)(vg_work_estimate_at((struct vg_work *)(uintptr_t)work, key) - work->estimates);
  for (size_t probe = place; probe < place + VG_WORK_PROBES; probe++) {
    const struct vg_estimate *row = &work->estimates[probe % VG_WORK_ESTIMATES];
    if (row->key == key) return VG_LOAD_RELAXED(&row->count) ? VG_LOAD_RELAXED(&row->cost_ns) : 0;
    if (!row->key) break;
  }
  return 0;
}

struct vg_estimate *vg_work_find_estimate(struct vg_work *work, const void *function, uint64_t threads) {
  uint64_t key = vg_work_key(function, threads);
  struct vg_estimate *first = vg_work_estimate_at(work, key);
  size_t place = (size_t)(first - work->estimates);
  for (size_t probe = place; probe < place + VG_WORK_PROBES; probe++) {
    struct vg_estimate *row = &work->estimates[probe % VG_WORK_ESTIMATES];
    if (row->key == key) return row;
    if (!row->key) {
      first = row;
      break;
    }
  }
  vg_lock(&work->lock); /* a marker may point to the estimate that it replaces */
  *first = (struct vg_estimate){.key = key,
                                .function = function,
                                .grid_class = vg_work_grid_class(threads),
                                .countdown = 1,
                                .samples_ns = work->samples_ns[first - work->estimates]};
  vg_estimate_set_cost(first, 0);
  vg_unlock(&work->lock);
  return first;
}

/* ---- the tally ---- */

struct vg_work *vg_work_new(struct vg_device *device) {
  struct vg_work *work = calloc(1, sizeof *work); /* large, but most of its pages are never touched */
  if (work) work->device = device;
  return work;
}

void vg_work_take_tally(struct vg_work *work) {
  struct vg_tally *tally = &work->tally;
  int64_t left = VG_LOAD(&tally->left);
  uint64_t added = (uint64_t)(tally->taken - left), added_ns = added >> VG_TALLY_LAUNCH_BITS;
  work->launched += added - (added_ns << VG_TALLY_LAUNCH_BITS);
  if (tally->stream) {
    tally->stream->cost_ns += added_ns;
    tally->stream->unmarked_ns += added_ns;
    if (!tally->stream->stale) vg_work_set_outstanding(work, work->outstanding_ns + added_ns);
  } else {
    work->done_ns += added_ns;
  }
  VG_STORE(&tally->taken, left);
}

void vg_work_lock(struct vg_work *work) {
  vg_lock(&work->lock);
  vg_work_take_tally(work);
}

void vg_work_open_tally(struct vg_work *work, uint64_t room_ns) {
  int64_t left = (room_ns < VG_TALLY_MOST_NS ? (int64_t)room_ns : VG_TALLY_MOST_NS) << VG_TALLY_LAUNCH_BITS;
  VG_STORE(&work->tally.taken, left);
  VG_STORE(&work->tally.left, left);
}

/* ---- streams and events ---- */

/* In the relaxed mode queries of events do not invalidate a capture that is open or begins in another thread. The mode
 * before is to be restored afterwards. */
static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
  REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  return mode;
}

static CUevent new_event(unsigned int flags) {
  CUevent event = NULL;
  CUstreamCaptureMode before = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventCreate)(&event, flags);
  exchange_mode(before);
  return result == CUDA_SUCCESS ? event : NULL;
}

static void drop_event(CUevent event) {
  if (!event) return;
  CUstreamCaptureMode before = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  REAL(cuEventDestroy_v2)(event);
  exchange_mode(before);
}

static CUevent take_event(struct vg_work *work, CUcontext context) {
  if (work->pooled && work->pool_context == context) return work->pool[--work->pooled];
  return new_event(CU_EVENT_DISABLE_TIMING);
}

static void give_event(struct vg_work *work, const struct vg_stream *stream, CUevent event) {
  CUcontext context = stream->context;
  if (work->pool_context != context && work->pooled == 0) work->pool_context = context;
  /* The context of an event of a shared place is unknown. */
  if (work->pool_context == context && work->pooled < VG_WORK_MARKERS && !stream->shared)
    work->pool[work->pooled++] = event;
  else
    drop_event(event);
}

static CUresult record(CUevent event, const struct vg_stream *stream) {
  /* The caller's own variant: the per-thread default stream is another stream than the legacy one. */
  return stream->per_thread ? REAL(cuEventRecord_ptsz)(event, stream->handle)
                            : REAL(cuEventRecord)(event, stream->handle);
}

CUevent vg_work_time_begin(struct vg_stream *stream, struct vg_estimate *estimate) {
  if (stream->programmatic) return NULL;
  bool is_short = estimate->count >= VG_ESTIMATE_SAMPLES_FIRST && estimate->cost_ns < AHEAD_OF_NS;
  if (stream->cost_ns < AHEAD_NS && is_short && estimate->postponed < POSTPONED_MOST) {
    estimate->postponed++;
    estimate->countdown = 1;
    return NULL;
  }
  estimate->postponed = 0;
  CUevent begin = new_event(CU_EVENT_DEFAULT);
  if (!begin || record(begin, stream) == CUDA_SUCCESS) return begin;
  drop_event(begin);
  return NULL;
}

/* The cost of a launch that was timed. */
static uint64_t calibrate(const struct vg_marker *marker) {
  float elapsed_ms = 0;
  CUstreamCaptureMode before = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventElapsedTime)(&elapsed_ms, marker->timing_begin, marker->event);
  exchange_mode(before);
  drop_event(marker->timing_begin);
  drop_event(marker->event);
  bool known = result == CUDA_SUCCESS && elapsed_ms >= 0;
  return known ? vg_estimate_sample(marker->estimate, (uint64_t)(elapsed_ms * 1e6F)) : marker->last_ns;
}

static void take_cost(struct vg_work *work, struct vg_stream *stream, uint64_t cost_ns) {
  stream->cost_ns -= cost_ns;
  if (!stream->stale) vg_work_set_outstanding(work, work->outstanding_ns - cost_ns);
}

/* All work before the marker has completed. Its last launch counts with the measured time, or with the present
 * estimate, which matters for the first launches of a function. */
static void retire(struct vg_work *work, struct vg_stream *stream, const struct vg_marker *marker) {
  work->done_ns += marker->cost_ns - marker->last_ns;
  if (marker->timing_begin) {
    work->done_ns += calibrate(marker);
  } else {
    work->done_ns += marker->estimate ? vg_estimate_cost(marker->estimate) : marker->last_ns;
    give_event(work, stream, marker->event);
  }
  take_cost(work, stream, marker->cost_ns);
}

static void set_stale(struct vg_work *work, struct vg_stream *stream, bool stale) {
  if (stream->stale == stale) return;
  stream->stale = stale;
  vg_work_set_outstanding(work,
                          stale ? work->outstanding_ns - stream->cost_ns : work->outstanding_ns + stream->cost_ns);
}

/* A launch of an unknown function takes at least as long as it has run so far, and so do the launches of the same
 * function behind it. */
static void raise_guess(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate, uint64_t now_ns) {
  if (!estimate || estimate->count || estimate->most_us || stream->stale ||
      now_ns < stream->moved_ns + vg_estimate_cost(estimate))
    return;
  vg_estimate_set_cost(estimate, now_ns - stream->moved_ns);
  for (uint32_t i = stream->head; i != stream->tail; i++) {
    struct vg_marker *marker = &stream->markers[i % VG_WORK_MARKERS];
    if (marker->estimate != estimate) continue;
    uint64_t more_ns = estimate->cost_ns - marker->last_ns;
    marker->last_ns += more_ns;
    marker->cost_ns += more_ns;
    stream->cost_ns += more_ns;
    vg_work_set_outstanding(work, work->outstanding_ns + more_ns);
  }
}

/* A marker has completed: after it was last seen pending, and before now; if the device did nothing else, its cost
 * after the marker before. */
static void note_moved(struct vg_stream *stream, uint64_t cost_ns, uint64_t now_ns) {
  uint64_t at_ns = stream->moved_ns + cost_ns;
  if (at_ns < stream->pending_ns) at_ns = stream->pending_ns;
  stream->moved_ns = at_ns < now_ns ? at_ns : now_ns;
}

static CUresult query(CUevent event) {
  CUstreamCaptureMode before = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventQuery)(event);
  exchange_mode(before);
  return result;
}

static bool is_pending(CUevent event) {
  return query(event) == CUDA_ERROR_NOT_READY;
}

bool vg_work_is_over(CUevent event) {
  return query(event) == CUDA_SUCCESS;
}

/* Does the marker's launch run? A launch that runs waits, almost always, for no later launch. */
static bool begun(const struct vg_marker *marker) {
  return marker->timing_begin && !is_pending(marker->timing_begin);
}

static const struct vg_marker *oldest_marker(const struct vg_stream *stream) {
  return &stream->markers[stream->head % VG_WORK_MARKERS];
}

/* For how long it runs what is before it, at the most. Of a graph it is known how long its kernels take on their own, a
 * quarter more here; what another thread, or another stream that this one is ordered with, may have launched before the
 * wait can take longer than by the estimates. */
static uint64_t longest_run(const struct vg_marker *marker, uint64_t before_ns) {
  if (!before_ns) return 0;
  bool graph = marker && marker->estimate && marker->estimate->most_us;
  return graph ? before_ns + before_ns / 4 : STALE_LEAST_NS + STALE_FACTOR * before_ns;
}

/* What was launched before the wait has had its time. */
static bool has_come_to_wait(const struct vg_stream *stream, uint64_t now_ns) {
  bool marked = stream->head != stream->tail;
  uint64_t before_ns = marked ? oldest_marker(stream)->cost_ns : stream->unmarked_ns;
  bool is_wait = marked ? oldest_marker(stream)->ends_wait : stream->wait_lost;
  return is_wait && now_ns >= stream->moved_ns + longest_run(marked ? oldest_marker(stream) : NULL, before_ns);
}

void vg_work_reap_stream(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns) {
  stream->waits = has_come_to_wait(stream, now_ns);
  if (stream->head == stream->tail) return;
  CUstreamCaptureMode before = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  while (stream->head != stream->tail) {
    struct vg_marker *marker = &stream->markers[stream->head % VG_WORK_MARKERS];
    if (REAL(cuEventQuery)(marker->event) == CUDA_ERROR_NOT_READY) {
      stream->pending_ns = now_ns;
      stream->waits = has_come_to_wait(stream, now_ns);
      if (!stream->waits) work->ran_ns = now_ns;
      break;
    }
    set_stale(work, stream, false);
    uint64_t cost_ns = marker->cost_ns;
    retire(work, stream, marker);
    note_moved(stream, cost_ns, now_ns);
    if (stream->moved_ns > work->moved_ns) work->moved_ns = stream->moved_ns;
    stream->head++;
    stream->waits = has_come_to_wait(stream, now_ns);
  }
  exchange_mode(before);
  if (stream->head != stream->tail)
    raise_guess(work, stream, stream->markers[stream->head % VG_WORK_MARKERS].estimate, now_ns);
}

/* Streams that share the device with others get on more slowly. So a stream is stuck if none of the process has got on
 * for a multiple of what all have outstanding together, or this one alone for a multiple of that. */
static void review_stale(struct vg_work *work, struct vg_stream *stream, const struct vg_together *together,
                         uint64_t now_ns) {
  if (stream->head == stream->tail) return;
  if (stream->waits) { /* not while the launch that it waits for stands at the gate */
    uint64_t since_ns = stream->moved_ns > together->accepted_ns ? stream->moved_ns : together->accepted_ns;
    if (together->accepted_ns && now_ns > since_ns + STALE_LEAST_NS) set_stale(work, stream, true);
    return;
  }
  const struct vg_marker *oldest = oldest_marker(stream);
  uint64_t moved_ns = together->moved_ns, together_ns = together->left_ns;
  uint64_t patience_ns = (oldest->cost_ns > together_ns ? oldest->cost_ns : together_ns) * STALE_FACTOR;
  if (patience_ns < STALE_LEAST_NS) patience_ns = STALE_LEAST_NS;
  if (oldest->estimate && !oldest->estimate->count) patience_ns = STALE_UNKNOWN_NS;
  uint64_t stuck_ns = moved_ns + patience_ns, alone_ns = stream->moved_ns + patience_ns;
  if (stuck_ns < alone_ns) stuck_ns = alone_ns;
  alone_ns += (STALE_FACTOR - 1) * patience_ns;
  if (now_ns <= (stuck_ns < alone_ns ? stuck_ns : alone_ns)) return;
  if (now_ns > stream->moved_ns + STALE_BEGUN_NS || !begun(oldest)) set_stale(work, stream, true);
}

void vg_work_renew_waiting(struct vg_work *work) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && work->streams[i].waits) set_stale(work, &work->streams[i], false);
}

void vg_work_add_pieces(const struct vg_work *work, struct vg_together *together) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used || stream->stale || stream->head == stream->tail) continue;
    const struct vg_marker *oldest = oldest_marker(stream);
    if (!oldest->estimate || oldest->estimate->count)
      together->pieces_ns += oldest->cost_ns;
    else
      together->unknown_runs |= begun(oldest);
  }
}

/* Nothing else holds up a slice that is alone: if the device works for it, one of the oldest pieces of its streams
 * completes within the time of all of them. Else they wait for the program, whose launches must not wait for them. A
 * stream alone has that and for as long as what the others have queued takes, within a limit. */
static void review_stale_alone(struct vg_work *work, struct vg_stream *stream, const struct vg_together *together,
                               uint64_t now_ns) {
  if (stream->head == stream->tail) return;
  uint64_t patience_ns = STALE_LEAST_NS + together->pieces_ns + together->pieces_ns / 2;
  if (together->unknown_runs) patience_ns += STALE_ALONE_UNKNOWN_NS;
  if (patience_ns > STALE_ALONE_MOST_NS) patience_ns = STALE_ALONE_MOST_NS;
  uint64_t stuck_ns = (together->moved_ns > stream->moved_ns ? together->moved_ns : stream->moved_ns) + patience_ns;
  uint64_t left_ns = together->left_ns < STALE_ALONE_BEHIND_NS ? together->left_ns : STALE_ALONE_BEHIND_NS;
  if (now_ns > stuck_ns || now_ns > stream->moved_ns + patience_ns + left_ns) set_stale(work, stream, true);
}

void vg_work_review_stale(struct vg_work *work, const struct vg_together *together, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    if (!work->streams[i].used) continue;
    if (together->alone)
      review_stale_alone(work, &work->streams[i], together, now_ns);
    else
      review_stale(work, &work->streams[i], together, now_ns);
  }
}

/* A thread that has lost its processor among launches: the device may have been idle meanwhile. */
static void note_pause(struct vg_work *work, uint64_t now_ns) {
  uint64_t since_ns = work->marked_ns;
  work->marked_ns = now_ns;
  if (!since_ns || now_ns < since_ns + PAUSE_LEAST_NS) return;
  vg_work_reap(work, now_ns);
  if (vg_work_pending(work, &since_ns)) return;
  work->continued_ns = now_ns;
  work->paused_ns = since_ns;
  work->continued_left_ns = work->outstanding_ns;
}

/* Puts a marker behind all work of the stream. A ring that stays full only means fewer markers. */
static bool put_marker(struct vg_work *work, struct vg_stream *stream, struct vg_marker marker, uint64_t now_ns) {
  if (stream->tail - stream->head == VG_WORK_MARKERS) vg_work_reap_stream(work, stream, now_ns);
  bool full = stream->tail - stream->head == VG_WORK_MARKERS;
  if (!full) marker.event = marker.timing_begin ? new_event(CU_EVENT_DEFAULT) : take_event(work, stream->context);
  if (!marker.event || record(marker.event, stream) != CUDA_SUCCESS) {
    drop_event(marker.event);
    drop_event(marker.timing_begin);
    return false;
  }
  if (stream->head == stream->tail) stream->moved_ns = now_ns;
  marker.cost_ns = stream->unmarked_ns;
  marker.ends_wait |= stream->wait_lost;
  stream->wait_lost = false;
  stream->markers[stream->tail++ % VG_WORK_MARKERS] = marker;
  stream->unmarked_ns = 0;
  return true;
}

static bool mark(struct vg_work *work, struct vg_stream *stream, struct vg_marker marker) {
  uint64_t now_ns = vg_prim_now_ns();
  note_pause(work, now_ns);
  return put_marker(work, stream, marker, now_ns);
}

bool vg_work_mark(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate, CUevent timing_begin,
                  uint64_t cost_ns) {
  bool waits = estimate->most_us != 0; /* inside, for something else */
  return mark(
      work, stream,
      (struct vg_marker){.timing_begin = timing_begin, .estimate = estimate, .last_ns = cost_ns, .ends_wait = waits});
}

void vg_work_mark_before_wait(struct vg_work *work, struct vg_stream *stream) {
  bool has_room = stream->tail - stream->head < VG_WORK_MARKERS / 4 * 3;
  if (stream->unmarked_ns && has_room && !stream->shared) mark(work, stream, (struct vg_marker){0});
}

void vg_work_mark_wait_end(struct vg_work *work, struct vg_stream *stream) {
  if (stream->shared) return;
  bool has_room = stream->tail - stream->head < VG_WORK_MARKERS / 8 * 7; /* the rest is for markers behind launches */
  stream->wait_lost = !has_room || !mark(work, stream, (struct vg_marker){.ends_wait = true});
  if (stream->wait_lost) return;
  if (stream->tail - stream->head == 1) stream->waits = has_come_to_wait(stream, stream->moved_ns);
}

static bool stream_settled(const struct vg_stream *stream, uint64_t since_ns, uint64_t now_ns) {
  if (stream->head != stream->tail) return false;
  uint64_t from_ns = stream->moved_ns > since_ns ? stream->moved_ns : since_ns;
  return !stream->unmarked_ns || now_ns > from_ns + STALE_LEAST_NS + STALE_FACTOR * stream->unmarked_ns;
}

void vg_work_mark_tails(struct vg_work *work, uint64_t since_ns, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    CUcontext popped;
    /* One that waits may have a full queue, where recording would block. */
    if (!stream->used || !stream->unmarked_ns || stream->shared || stream->waits) continue;
    bool legacy = !stream->handle || stream->handle == CU_STREAM_LEGACY; /* there an event is a barrier */
    if (stream->per_thread || legacy || stream->is_gone) {
      if (stream_settled(stream, since_ns, now_ns)) vg_work_clear_stream(work, stream);
    } else if (REAL(cuCtxPushCurrent_v2)(stream->context) == CUDA_SUCCESS) {
      put_marker(work, stream, (struct vg_marker){0}, now_ns);
      REAL(cuCtxPopCurrent_v2)(&popped);
    }
  }
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

uint64_t vg_work_begun(const struct vg_work *work) {
  uint64_t sum_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (stream->used && stream->waits && stream->head != stream->tail) sum_ns += oldest_marker(stream)->cost_ns;
  }
  return sum_ns;
}

uint64_t vg_work_running(const struct vg_work *work) {
  uint64_t sum_ns = 0;
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && !work->streams[i].waits) sum_ns += work->streams[i].cost_ns;
  return sum_ns;
}

bool vg_work_keeps_up(struct vg_work *work, const struct vg_stream *stream) {
  bool behind = work->look && is_pending(work->look);
  if (work->look && work->look_context != stream->context) {
    drop_event(work->look);
    work->look = NULL;
  }
  if (!work->look) work->look = new_event(CU_EVENT_DISABLE_TIMING);
  work->look_context = stream->context;
  if (work->look && record(work->look, stream) == CUDA_SUCCESS) return !behind;
  drop_event(work->look);
  work->look = NULL;
  return true;
}

void vg_work_refused(struct vg_estimate *estimate, CUevent timing_begin) {
  if (!estimate->countdown) estimate->countdown = 1;
  drop_event(timing_begin);
}

void vg_work_reap(struct vg_work *work, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used) vg_work_reap_stream(work, &work->streams[i], now_ns);
}

void vg_work_reap_waiting(struct vg_work *work, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && work->streams[i].waits) vg_work_reap_stream(work, &work->streams[i], now_ns);
}

static const struct vg_marker *find_timed(const struct vg_work *work, const void *function, uint32_t grid_class) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    for (uint32_t at = stream->head; stream->used && at != stream->tail; at++) {
      const struct vg_marker *marker = &stream->markers[at % VG_WORK_MARKERS];
      const struct vg_estimate *estimate = marker->estimate;
      if (marker->timing_begin && !stream->waits && estimate->function == function &&
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
  uint64_t oldest_ns = stream->markers[stream->head % VG_WORK_MARKERS].cost_ns;
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
  if (work->ran_ns > *ret_pending_ns) *ret_pending_ns = work->ran_ns;
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
  bool over = now_ns > work->last_launch_ns + STALE_LEAST_NS + STALE_FACTOR * unmarked_ns;
  return over ? work->outstanding_ns - unmarked_ns : work->outstanding_ns;
}

bool vg_work_settled(const struct vg_work *work, uint64_t since_ns, uint64_t now_ns) {
  bool settled = true;
  for (int i = 0; i < VG_WORK_STREAMS && settled; i++)
    settled = !work->streams[i].used || stream_settled(&work->streams[i], since_ns, now_ns);
  return settled;
}

void vg_work_clear_stream(struct vg_work *work, struct vg_stream *stream) {
  set_stale(work, stream, false);
  stream->waits = stream->wait_lost = false;
  for (; stream->head != stream->tail; stream->head++)
    retire(work, stream, &stream->markers[stream->head % VG_WORK_MARKERS]);
  work->done_ns += stream->cost_ns;
  take_cost(work, stream, stream->cost_ns);
  stream->unmarked_ns = 0;
}

void vg_work_clear(struct vg_work *work) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used) vg_work_clear_stream(work, &work->streams[i]);
}

/* For a shared place: its events may be of other contexts than the one that ends. */
static void drop_markers(struct vg_stream *stream) {
  for (; stream->head != stream->tail; stream->head++) {
    const struct vg_marker *marker = &stream->markers[stream->head % VG_WORK_MARKERS];
    drop_event(marker->timing_begin);
    drop_event(marker->event);
  }
}

void vg_work_forget_context(struct vg_work *work, CUcontext context) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    if (!stream->used || (stream->context != context && !stream->shared)) continue;
    set_stale(work, stream, false);
    if (stream->shared) drop_markers(stream);
    work->done_ns += stream->cost_ns;
    take_cost(work, stream, stream->cost_ns);
    stream->used = stream->waits = false;
    if (stream == work->tally.stream) work->tally.stream = NULL; /* its thread may still count a launch there */
  }
  if (work->pool_context == context) work->pooled = 0;
  if (work->look_context == context) work->look = NULL;
}
