/* markers.c - see thread_work.h: events behind what a thread has launched into its streams, every eighth of the bound,
 * and what they show when they complete. */
#include <stdlib.h>

#include "base/run_delay.h"
#include "context/context.h"
#include "gate/event.h"
#include "gate/stream_books.h"
#include "gen/abi/real.h"

#define AHEAD_NS 40000      /* work ahead of a timed launch, so that the host's part is not timed, too */
#define AHEAD_OF_NS 4000000 /* not ahead of a longer one, of which the host's part is a hundredth */
#define CALL_RECORDS_MOST 3 /* events take as long to record as one launch: a longer call waited for the kernel */
#define CALL_RETURN_PART 16 /* of a call: the device has the launch, and the call returns */
#define LEAST_CALL_PART 64  /* by such a part the least time of a call grows with each timing, for it may change */
#define POSTPONED_MOST 16
#define HELD_UP_NS 50000ull /* a launch and its two events take less, else it is worth to ask for the reason */
#define HELD_UP_PART 8      /* of a timing: what the thread lost may be left in it */
/* So many first timings of functions are left out at most, in the whole process, and of a function that is known all
 * but one of so many: a program can be short of a processor on purpose, with work that runs meanwhile. */
#define SPOILT_MOST 16
#define STALE_LEGACY_NS VG_NS_PER_S
#define SEEN_LEAST_NS (5 * VG_NS_PER_MS)    /* it is known late when others ran: so much work is looked at together */
#define SLICE_LEAST_NS (800 * VG_NS_PER_US) /* shorter than what a device gives each context at once */
#define MIXED_PART 8                        /* where others had a larger part, context switches are in it */
#define CARRIED_MOST_NS (int64_t)(20 * VG_NS_PER_MS) /* of others' time that was taken for too much */
#define PAUSE_LEAST_NS 500000ull /* between two markers of a thread, which are an eighth of the bound apart */

static CUevent take_event(struct vg_work *work, CUcontext context) {
  if (work->pooled && work->pool_context == context) return work->pool[--work->pooled];
  return vg_event_new(work->clock ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
}

static void give_event(struct vg_work *work, const struct vg_stream *stream, CUevent event) {
  CUcontext context = stream->context;
  if (!event) return;
  if (work->pool_context != context && work->pooled == 0) work->pool_context = context;
  /* The context of an event of a shared place is unknown. */
  if (work->pool_context == context && work->pooled < VG_WORK_MARKERS && !stream->shared)
    work->pool[work->pooled++] = event;
  else
    vg_event_drop(event);
}

/* How long other processes have had work outstanding on the device, so far: at least as long as they had the device. 0:
 * no daemon has said it. */
static uint64_t others_busy_ns(const struct vg_work *work, uint64_t now_ns) {
  const struct vg_control_device *control = VG_LOAD(&work->device->control);
  if (!control) return 0;
  uint64_t since_ns = VG_LOAD(&control->others_since_ns), busy_ns = VG_LOAD_RELAXED(&control->others_busy_ns);
  return busy_ns && since_ns && since_ns < now_ns ? busy_ns + (now_ns - since_ns) : busy_ns;
}

/* How much of the last time_ns before a marker completed others may have had, if it was from_ns before now that
 * marker->others_ns was noted; all of it if that is not known. */
static uint64_t others_part(const struct vg_work *work, const struct vg_marker *marker, uint64_t time_ns,
                            uint64_t from_ns, uint64_t now_ns) {
  uint64_t others_ns = others_busy_ns(work, now_ns), whole_ns = now_ns - from_ns;
  if (!marker->others_ns || !others_ns || others_ns >= marker->others_ns + whole_ns) return time_ns;
  if (others_ns <= marker->others_ns) return 0;
  return (uint64_t)((double)(others_ns - marker->others_ns) * (double)time_ns / (double)whole_ns);
}

CUevent vg_work_time_begin(const struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate) {
  if (stream->programmatic) return NULL;
  bool is_short = estimate->count >= VG_ESTIMATE_SAMPLES_FIRST && estimate->cost_ns < AHEAD_OF_NS;
  if (stream->cost_ns < AHEAD_NS && is_short && estimate->postponed < POSTPONED_MOST) {
    estimate->postponed++;
    estimate->countdown = 1;
    return NULL;
  }
  estimate->postponed = 0;
  CUevent begin = vg_event_new(CU_EVENT_DEFAULT);
  if (!begin) return NULL;
  stream->timed_delay_ns = vg_run_delay_ns(); /* not between the two events */
  stream->timed_ns = vg_prim_now_ns();
  stream->timed_others_ns = others_busy_ns(work, stream->timed_ns);
  if (vg_event_record(begin, stream) != CUDA_SUCCESS) {
    vg_event_drop(begin);
    return NULL;
  }
  stream->call_begin_ns = vg_prim_now_ns();
  return begin;
}

/* The thread had no processor between the two events, for a good part of the time between them: leaves the timing out,
 * but not always. Returns whether it did. */
static bool leave_out(const struct vg_marker *marker, uint64_t elapsed_ns) {
  static uint32_t unknown; /* functions, in the whole process; a race loses one */
  if (marker->held_up_ns * HELD_UP_PART <= elapsed_ns) return false;
  if (marker->estimate->count) return ++marker->estimate->spoilt % SPOILT_MOST != 0;
  return VG_LOAD_RELAXED(&unknown) < SPOILT_MOST && __atomic_add_fetch(&unknown, 1, __ATOMIC_RELAXED) <= SPOILT_MOST;
}

/* It took that long at most, and this is the least. One of the next launches is timed again. */
static uint64_t cost_of_spoilt(const struct vg_marker *marker, uint64_t elapsed_ns) {
  struct vg_estimate *estimate = marker->estimate;
  if (estimate->count) return vg_estimate_cost(estimate);
  vg_estimate_set_cost(estimate, 0); /* a guess that was raised meanwhile */
  return elapsed_ns > marker->held_up_ns ? elapsed_ns - marker->held_up_ns : 0;
}

/* In an empty stream the first event completes at once, and the launch begins when its call has reached the device: the
 * call is no part of its cost. The device has it shortly before the end of a call of the usual length; in a longer one
 * the thread may have lost its processor after that. Where the device's clock says nothing, the call counts. */
static uint64_t call_before(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker) {
  if (!work->clock || stream->shared) return 0;
  if (marker->call_ns > CALL_RECORDS_MOST * (marker->recorded_ns - marker->put_ns)) return 0;
  uint64_t begin_ns = marker->put_ns - marker->call_ns, least_ns = work->least_call_ns;
  least_ns += least_ns / LEAST_CALL_PART + 1;
  if (marker->call_ns < least_ns || !work->least_call_ns) least_ns = marker->call_ns;
  work->least_call_ns = least_ns;
  bool is_empty =
      vg_context_clock_is_at_once(work->clock, stream->context, marker->timing_begin, marker->timed_ns, begin_ns);
  return is_empty ? least_ns - least_ns / CALL_RETURN_PART : 0;
}

static uint64_t less_call(uint64_t elapsed_ns, uint64_t call_ns) {
  return elapsed_ns - (call_ns < elapsed_ns ? call_ns : elapsed_ns - 1);
}

/* A launch that had ended when the event behind it came to the device took less than the pair says. So did one in whose
 * time others may have run: less their time if that is known, which is at least a slice of the device if it is not. */
static void note_sample(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                        uint64_t sample_ns, uint64_t now_ns) {
  if (!work->clock || stream->shared || !marker->was_known || vg_marker_waits_inside(marker)) return;
  bool ended =
      vg_context_clock_is_at_once(work->clock, stream->context, marker->event, marker->put_ns, marker->recorded_ns);
  if (ended) return;
  uint64_t others_ns = others_part(work, marker, sample_ns, marker->timed_ns, now_ns);
  if (others_ns <= sample_ns / 2)
    sample_ns -= others_ns;
  else if (sample_ns > SLICE_LEAST_NS)
    return;
  vg_work_note_sample(work, marker->last_ns, sample_ns);
}

static uint64_t note_timing(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                            uint64_t elapsed_ns, uint64_t now_ns) {
  if (marker->row) vg_estimate_row(marker->estimate, marker->row, elapsed_ns);
  if (marker->row) return vg_estimate_cost(marker->estimate);
  if (leave_out(marker, elapsed_ns)) return cost_of_spoilt(marker, elapsed_ns);
  uint64_t call_ns = call_before(work, stream, marker), sample_ns = less_call(elapsed_ns, call_ns);
  note_sample(work, stream, marker, sample_ns, now_ns);
  return vg_estimate_sample(marker->estimate, sample_ns, call_ns != 0);
}

/* The cost of a launch that was timed. */
static uint64_t calibrate(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                          uint64_t now_ns) {
  float elapsed_ms = 0;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  bool known = REAL(cuEventElapsedTime)(&elapsed_ms, marker->timing_begin, marker->event) == CUDA_SUCCESS;
  vg_event_mode(before);
  uint64_t cost_ns = marker->row ? vg_estimate_cost(marker->estimate) : marker->last_ns;
  if (known && elapsed_ms >= 0) cost_ns = note_timing(work, stream, marker, (uint64_t)(elapsed_ms * 1e6F), now_ns);
  vg_event_drop(marker->timing_begin);
  vg_event_drop(marker->event);
  return cost_ns;
}

/* The event of a marker is not needed any more. */
static void put_away(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                     uint64_t at_ns, uint64_t now_ns) {
  if (!work->clock)
    give_event(work, stream, marker->event);
  else if (marker->has_time && !stream->shared)
    give_event(work, stream, vg_context_clock_renew(work->clock, stream->context, marker->event, at_ns, now_ns));
  else
    vg_event_drop(marker->event);
}

/* When a marker completed that is seen to be complete now: by its clock; else after it was last seen pending. Then what
 * is behind a wait has just run; other markers were as long after the one before as their work takes. */
static uint64_t completed_at(struct vg_work *work, const struct vg_stream *stream, const struct vg_marker *marker,
                             uint64_t now_ns) {
  bool has_time = work->clock && marker->has_time && !stream->shared;
  uint64_t at_ns = has_time ? vg_context_clock_read(work->clock, stream->context, marker->event) : 0;
  if (!at_ns) {
    at_ns = marker->ends_wait && !marker->cost_ns ? now_ns - stream->cost_ns : stream->moved_ns + marker->cost_ns;
    if (at_ns < stream->pending_ns) at_ns = stream->pending_ns;
  }
  if (at_ns < stream->moved_ns) at_ns = stream->moved_ns;
  return at_ns < now_ns ? at_ns : now_ns;
}

/* Work that took longer than by its estimates, as they are too low for a while when a function begins to take longer:
 * returns what of that is to be paid besides. It was outstanding for so long, without the time in which others may have
 * had the device. When they had it is known late, so that is believed of the sum over some time. */
static uint64_t unpaid_ns(struct vg_work *work, const struct vg_marker *marker, uint64_t seen_ns, uint64_t done_ns,
                          uint64_t now_ns) {
  if (!work->clock || !marker->has_time || marker->ends_wait || !marker->cost_ns) return 0;
  uint64_t others_ns = others_part(work, marker, seen_ns, marker->put_ns, now_ns);
  int64_t more_ns = (int64_t)(seen_ns - done_ns) - (int64_t)others_ns;
  if (more_ns > 0 && others_ns > seen_ns / MIXED_PART) return 0;
  work->unpaid_ns += more_ns;
  work->seen_ns += seen_ns;
  if (work->seen_ns < SEEN_LEAST_NS) return 0;
  uint64_t extra_ns = work->unpaid_ns > 0 ? (uint64_t)work->unpaid_ns : 0;
  work->seen_ns = 0;
  work->unpaid_ns = extra_ns ? 0 : work->unpaid_ns < -CARRIED_MOST_NS ? -CARRIED_MOST_NS : work->unpaid_ns;
  return extra_ns;
}

/* What work of cost_ns by the estimates is reported with. Those follow the shortest launches of a function; which
 * launch is timed is drawn at random, so that longer ones are paid for in the mean. */
static uint64_t paid_ns(const struct vg_work *work, uint64_t cost_ns) {
  uint64_t likely_ns = vg_work_likely_ns(work, cost_ns);
  return likely_ns > cost_ns ? likely_ns : cost_ns;
}

/* All work before the oldest marker has completed. Its last launch counts with the measured time, or with the present
 * estimate, which matters for the first launches of a function. In the relaxed mode. */
static void retire(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns) {
  const struct vg_marker *marker = &stream->markers[stream->head++ % VG_WORK_MARKERS];
  uint64_t at_ns = completed_at(work, stream, marker, now_ns);
  uint64_t from_ns = marker->put_ns > stream->run_from_ns ? marker->put_ns : stream->run_from_ns;
  if (work->clock) vg_work_note_run(work, stream, marker, at_ns);
  stream->moved_ns = at_ns;
  uint64_t done_ns = paid_ns(work, marker->cost_ns - marker->last_ns);
  if (marker->timing_begin) {
    done_ns += calibrate(work, stream, marker, now_ns);
  } else {
    done_ns += paid_ns(work, marker->estimate ? vg_estimate_cost(marker->estimate) : marker->last_ns);
    put_away(work, stream, marker, at_ns, now_ns);
  }
  if (at_ns > from_ns + done_ns) done_ns += unpaid_ns(work, marker, at_ns - from_ns, done_ns, now_ns);
  work->done_ns += done_ns > marker->reported_ns ? done_ns - marker->reported_ns : 0;
  vg_stream_take_cost(work, stream, marker->cost_ns);
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

bool vg_work_is_over(CUevent event) {
  return vg_event_query(event) == CUDA_SUCCESS;
}

/* How long what is before the wait runs, at most. Of a graph it is known how long its kernels take on their own, a
 * quarter more here; what another thread, or another stream that this one is ordered with, may have launched before the
 * wait can take longer than by the estimates. */
static uint64_t longest_run(const struct vg_stream *stream, bool graph, uint64_t before_ns) {
  if (!before_ns) return 0;
  if (graph) return before_ns + before_ns / 4;
  if (vg_stream_is_legacy(stream)) return STALE_LEGACY_NS;
  return VG_STALE_LEAST_NS + VG_STALE_FACTOR * before_ns;
}

/* Whether what was launched before the wait must have run by now. */
static bool has_come_to_wait(const struct vg_stream *stream, uint64_t now_ns) {
  const struct vg_marker *oldest = stream->head != stream->tail ? vg_stream_oldest(stream) : NULL;
  uint64_t before_ns = oldest ? oldest->cost_ns : stream->unmarked_ns;
  bool is_wait = oldest ? oldest->ends_wait : stream->wait_lost;
  bool graph = oldest && vg_marker_waits_inside(oldest);
  if (graph && oldest->served_ns < before_ns) return false; /* it may run, behind others of its kind */
  return is_wait && now_ns >= stream->moved_ns + longest_run(stream, graph, before_ns);
}

void vg_work_reap_stream(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns) {
  stream->waits = has_come_to_wait(stream, now_ns);
  if (stream->head == stream->tail) return;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  while (stream->head != stream->tail) {
    if (REAL(cuEventQuery)(vg_stream_oldest(stream)->event) == CUDA_ERROR_NOT_READY) {
      stream->pending_ns = now_ns;
      stream->waits = has_come_to_wait(stream, now_ns);
      break;
    }
    vg_stream_set_stale(work, stream, false);
    retire(work, stream, now_ns);
    if (stream->moved_ns > work->moved_ns) work->moved_ns = stream->moved_ns;
    stream->waits = has_come_to_wait(stream, now_ns);
  }
  vg_event_mode(before);
  if (stream->head != stream->tail) raise_guess(work, stream, vg_stream_oldest(stream)->estimate, now_ns);
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
  vg_row_take(stream, &marker);
  marker.has_time = work->clock || marker.timing_begin;
  if (!full) marker.event = marker.timing_begin ? vg_event_new(CU_EVENT_DEFAULT) : take_event(work, stream->context);
  if (!marker.event || vg_event_record(marker.event, stream) != CUDA_SUCCESS) {
    vg_event_drop(marker.event);
    vg_event_drop(marker.timing_begin);
    return false;
  }
  if (marker.timing_begin) marker.recorded_ns = vg_prim_now_ns();
  if (stream->head == stream->tail) stream->moved_ns = now_ns;
  if (marker.timing_begin && !marker.row) {
    if (now_ns > stream->timed_ns + HELD_UP_NS)
      marker.held_up_ns = vg_delay_between(stream->timed_delay_ns, vg_run_delay_ns());
    marker.call_ns = now_ns - stream->call_begin_ns;
    marker.timed_ns = stream->timed_ns;
    marker.was_known = marker.estimate->count >= VG_ESTIMATE_SAMPLES_FIRST && marker.estimate->without_call;
  }
  marker.put_ns = now_ns;
  marker.others_ns = marker.timing_begin ? stream->timed_others_ns : others_busy_ns(work, now_ns);
  marker.cost_ns = stream->unmarked_ns;
  marker.ends_wait |= stream->wait_lost;
  stream->wait_lost = false;
  stream->markers[stream->tail++ % VG_WORK_MARKERS] = marker;
  stream->unmarked_ns = 0;
  return true;
}

/* Since its last marker, and since what was before that completed, the thread has launched less than the device could
 * run. */
static void note_gap(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns) {
  uint64_t since_ns = work->marked_ns > work->waited_ns ? work->marked_ns : work->waited_ns;
  if (work->clock || !since_ns || !vg_work_has_gaps(now_ns - since_ns, stream->unmarked_ns)) return;
  vg_work_reap_stream(work, stream, now_ns);
  if (stream->moved_ns > since_ns) since_ns = stream->moved_ns;
  work->has_gaps =
      stream->head == stream->tail && now_ns > since_ns && vg_work_has_gaps(now_ns - since_ns, stream->unmarked_ns);
}

static bool mark(struct vg_work *work, struct vg_stream *stream, struct vg_marker marker) {
  uint64_t now_ns = vg_prim_now_ns();
  marker.after_ns = work->marked_ns;
  note_gap(work, stream, now_ns);
  note_pause(work, now_ns);
  return put_marker(work, stream, marker, now_ns);
}

bool vg_work_mark(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate, CUevent timing_begin,
                  uint64_t cost_ns) {
  bool waits = estimate->most_us != 0; /* inside, for something else */
  bool marked = mark(
      work, stream,
      (struct vg_marker){.timing_begin = timing_begin, .estimate = estimate, .last_ns = cost_ns, .ends_wait = waits});
  if (marked && timing_begin) vg_row_begin(stream, estimate);
  return marked;
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

void vg_work_mark_tails(struct vg_work *work, uint64_t since_ns, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    CUcontext popped;
    /* One that waits may have a full queue, where recording would block. */
    if (!stream->used || !stream->unmarked_ns || stream->shared || stream->waits) continue;
    bool in_flight = stream == work->last && VG_LOAD(&work->tally.in_flight); /* a launch may be held up for long */
    if (in_flight || stream->per_thread || vg_stream_is_legacy(stream) || stream->is_gone) {
      if (vg_stream_settled(stream, since_ns, now_ns)) vg_work_clear_stream(work, stream, now_ns, true);
    } else if (REAL(cuCtxPushCurrent_v2)(stream->context) == CUDA_SUCCESS) {
      put_marker(work, stream, (struct vg_marker){.after_ns = work->marked_ns}, now_ns);
      REAL(cuCtxPopCurrent_v2)(&popped);
    }
  }
}

bool vg_work_keeps_up(struct vg_work *work, const struct vg_stream *stream) {
  bool behind = work->probe_event && vg_event_is_pending(work->probe_event);
  if (work->probe_event && work->probe_context != stream->context) {
    vg_event_drop(work->probe_event);
    work->probe_event = NULL;
  }
  if (!work->probe_event) work->probe_event = vg_event_new(CU_EVENT_DISABLE_TIMING);
  work->probe_context = stream->context;
  if (work->probe_event && vg_event_record(work->probe_event, stream) == CUDA_SUCCESS) return !behind;
  vg_event_drop(work->probe_event);
  work->probe_event = NULL;
  return true;
}

void vg_work_refused(struct vg_estimate *estimate, CUevent timing_begin) {
  if (!estimate->countdown) estimate->countdown = 1;
  vg_event_drop(timing_begin);
}

void vg_work_reap(struct vg_work *work, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used) vg_work_reap_stream(work, &work->streams[i], now_ns);
}

void vg_work_reap_waiting(struct vg_work *work, uint64_t now_ns) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && work->streams[i].waits) vg_work_reap_stream(work, &work->streams[i], now_ns);
}

/* Is all that is left a marker that ends a wait, ahead of a launch that is under way? */
static bool is_ahead_of_launch(const struct vg_stream *stream) {
  const struct vg_marker *oldest = vg_stream_oldest(stream);
  return stream->tail - stream->head == 1 && oldest->ends_wait && !oldest->cost_ns && !stream->unmarked_ns;
}

void vg_work_clear_stream(struct vg_work *work, struct vg_stream *stream, uint64_t done_ns, bool earlier) {
  vg_stream_set_stale(work, stream, false);
  vg_row_end(stream);
  stream->waits = stream->wait_lost = false;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  while (stream->head != stream->tail && !is_ahead_of_launch(stream)) retire(work, stream, done_ns);
  vg_event_mode(before);
  if (work->clock) vg_work_note_tail(work, stream, done_ns, earlier);
  work->done_ns += paid_ns(work, stream->cost_ns);
  vg_stream_take_cost(work, stream, stream->cost_ns);
  stream->unmarked_ns = 0;
}

void vg_work_clear(struct vg_work *work, uint64_t done_ns, bool earlier) {
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used) vg_work_clear_stream(work, &work->streams[i], done_ns, earlier);
}

void vg_work_begin_measuring(struct vg_work *work, struct vg_context_clock *clock, uint64_t now_ns) {
  if (work->clock) return;
  while (work->pooled) vg_event_drop(work->pool[--work->pooled]); /* they have no time */
  for (int i = 0; i < VG_WORK_STREAMS; i++) vg_stream_begin_run(&work->streams[i], now_ns);
  work->clock = clock;
}

/* For a shared place: its events may be of other contexts than the one that ends. */
static void drop_markers(struct vg_stream *stream) {
  for (; stream->head != stream->tail; stream->head++) {
    const struct vg_marker *marker = &stream->markers[stream->head % VG_WORK_MARKERS];
    vg_event_drop(marker->timing_begin);
    vg_event_drop(marker->event);
  }
}

void vg_work_forget_context(struct vg_work *work, CUcontext context) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    if (!stream->used || (stream->context != context && !stream->shared)) continue;
    vg_stream_set_stale(work, stream, false);
    if (stream->shared) drop_markers(stream);
    if (work->clock) vg_work_note_tail(work, stream, vg_prim_now_ns(), false);
    work->done_ns += paid_ns(work, stream->cost_ns);
    vg_stream_take_cost(work, stream, stream->cost_ns);
    stream->used = stream->waits = false;
    stream->row.begin = NULL;
    if (stream == work->tally.stream) work->tally.stream = NULL; /* its thread may still count a launch there */
  }
  if (work->pool_context == context) work->pooled = 0;
  if (work->probe_context == context) work->probe_event = NULL;
}
