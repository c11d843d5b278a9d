/*
 * count.c - a launch after its driver call, unless it took the short path (short_path.h), which vg_gate_leave() opens
 * for the launches after it.
 */
#include "context/context.h"
#include "gate/state.h"
#include "gate/stream_books.h"
#include "gate/thread_work.h"
#include "gen/abi/real.h"

#define MARK_AFTER_NS 32000ull
#define MARK_MOST_LAUNCHES 128
#define MARK_MOST_TIMED_LAUNCHES 512 /* events with a time cost more to record */
#define MARK_MOST_NS 2500000ull
#define COAST_BOUND_NS 2000000ull

/* ---- the stream that it is accounted to ---- */

static bool is_stream(const struct vg_stream *stream, CUstream handle, CUcontext context, const void *owner) {
  return stream->used && stream->handle == handle && stream->context == context && stream->owner == owner;
}

/* Each launch of a shared place has a marker of its own: one in another stream would not show that it completed. */
static struct vg_stream *share(struct vg_stream *stream, const struct vg_stream *with) {
  vg_row_end(stream);
  stream->shared = true;
  stream->handle = with->handle;
  stream->per_thread = with->per_thread;
  stream->context = with->context;
  stream->owner = with->owner;
  return stream;
}

static bool is_blocking(const struct vg_stream *stream) {
  unsigned int flags = 0;
  return stream->owner || !stream->handle || REAL(cuStreamGetFlags)(stream->handle, &flags) != CUDA_SUCCESS ||
         !(flags & CU_STREAM_NON_BLOCKING);
}

static struct vg_stream *find_stream(struct vg_work *work, CUstream handle, CUcontext context, const void *owner) {
  struct vg_stream *unused = NULL;
  vg_work_open_tally(work, 0); /* its place may get another stream */
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    if (!stream->shared && is_stream(stream, handle, context, owner)) return work->last = stream;
    if (stream->used && (stream->cost_ns || stream->head != stream->tail)) continue;
    if (!unused || (unused->used && !stream->used)) unused = stream;
  }
  struct vg_stream fresh = {.used = true, .handle = handle, .per_thread = owner, .context = context, .owner = owner};
  fresh.blocking = is_blocking(&fresh);
  if (unused) {
    vg_row_end(unused);
    *unused = fresh;
  } else
    unused = share(&work->streams[VG_WORK_STREAMS - 1], &fresh);
  return work->last = unused;
}

/* The calling thread's, without a call while nothing has changed. */
static CUcontext current_context(void) {
  bool unchanged = vg_context_here.generation == VG_LOAD(&vg_context_generation);
  return VG_LIKELY(unchanged) ? vg_context_here.context : vg_context_remembered();
}

struct vg_stream *vg_work_stream(struct vg_work *work, CUstream handle, bool per_thread, const void *owner) {
  CUcontext context = current_context();
  if (handle != CU_STREAM_PER_THREAD && !(per_thread && !handle)) owner = NULL;
  if (VG_LIKELY(work->last && is_stream(work->last, handle, context, owner))) return work->last;
  return find_stream(work, handle, context, owner);
}

/* ---- counting ---- */

uint64_t vg_gate_bound(const struct vg_device *device) {
  if (vg_gate_is_alone(device)) return VG_SOLO_BOUND_NS;
  uint64_t bound_ns = VG_LOAD_RELAXED(&VG_LOAD(&device->control)->bound_ns);
  return bound_ns && !VG_LOAD_RELAXED(&device->gate->coasting) ? bound_ns : COAST_BOUND_NS;
}

/* How much is launched into a stream between two markers: an eighth of the bound, 2.5 ms and 128 launches like this one
 * at most, so that a thread that lost its processor is distinguished from one that launches short kernels. What threads
 * have launched since their markers must not fill the bound together, since nothing shows its end: the second thread
 * has half of that, the third one a third, which sums up to less than the bound for a thousand. None has to record an
 * event more often than at every 128 launches like this one, or 32 us of work, beside which that costs little. In a
 * process that measures (work_runs.c) it is 512. */
static uint64_t mark_after(const struct vg_work *work, const struct vg_stream *stream, uint64_t bound_ns,
                           uint64_t cost_ns) {
  if (stream->programmatic) return bound_ns;
  uint64_t most_ns = bound_ns / 8 < MARK_MOST_NS ? bound_ns / 8 : MARK_MOST_NS, part_ns = most_ns / (work->rank + 1);
  uint64_t launches = work->clock ? MARK_MOST_TIMED_LAUNCHES : MARK_MOST_LAUNCHES;
  if (most_ns > launches * cost_ns) most_ns = launches * cost_ns;
  if (part_ns < MARK_AFTER_NS) part_ns = MARK_AFTER_NS;
  return part_ns < most_ns ? part_ns : most_ns;
}

bool vg_work_launched(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate,
                      CUevent timing_begin, uint64_t bound_ns, bool captures) {
  uint64_t cost_ns = VG_LIKELY(estimate->cost_ns) ? estimate->cost_ns : vg_estimate_guess();
  if (VG_UNLIKELY(!estimate->countdown))
    estimate->countdown = vg_estimate_next_timing(estimate, vg_work_likely_ns(work, estimate->cost_ns));
  stream->is_gone = false; /* or another one with its handle */
  stream->cost_ns += cost_ns;
  if (VG_LIKELY(!stream->stale)) VG_STORE_RELAXED(&work->outstanding_ns, work->outstanding_ns + cost_ns);
  stream->unmarked_ns += cost_ns;
  work->launched++;
  if (VG_UNLIKELY(work->clock != NULL) && stream->cost_ns == cost_ns)
    vg_work_note_launch(work, stream, vg_prim_now_ns());
  bool due = timing_begin || estimate->most_us || stream->unmarked_ns >= mark_after(work, stream, bound_ns, cost_ns) ||
             ((!estimate->count || captures || stream->shared) && !stream->programmatic);
  return VG_UNLIKELY(due) && vg_work_mark(work, stream, estimate, timing_begin, cost_ns);
}

void vg_gate_stay_busy(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_lock_all(device, &locked);
  bool busy = vg_gate_running(locked) != 0; /* or has the wait covered this one, too, or does it wait itself? */
  vg_gate_unlock_all(locked);
  if (busy) vg_gate_become_busy(device, vg_prim_now_ns());
  pthread_mutex_unlock(&gate->mutex);
}

/* The launches that follow may be counted in the tally, until the next marker is due or the bound is reached. A shared
 * place has a marker behind each launch. */
static void open_tally(struct vg_work *work, struct vg_stream *stream, const struct vg_ticket *ticket) {
  struct vg_tally *tally = &work->tally;
  uint64_t outstanding_ns = work->outstanding_ns + work->other_threads_ns;
  uint64_t mark_ns = mark_after(work, stream, ticket->bound_ns, vg_estimate_cost(ticket->estimate));
  uint64_t room_ns = mark_ns > stream->unmarked_ns ? mark_ns - stream->unmarked_ns : 0;
  uint64_t most_ns = ticket->bound_ns + ticket->has_run_ns;
  uint64_t below_ns = most_ns > outstanding_ns ? most_ns - outstanding_ns : 0;
  if (below_ns < room_ns) room_ns = below_ns;
  if (ticket->bound_ns / 8 < room_ns) room_ns = ticket->bound_ns / 8; /* the bound may be lowered meanwhile */
  /* Captures are looked at after the generation, which is as of current_context(): one that begins changes both. */
  if (!room_ns || stream->shared || VG_LOAD_RELAXED(&vg_gate_captures) || vg_gate_gang_counts(work->device)) {
    vg_work_open_tally(work, 0);
    return;
  }
  tally->handle = ticket->per_thread && !ticket->stream ? CU_STREAM_PER_THREAD : ticket->stream;
  tally->epoch = stream->last_epoch;
  tally->programmatic = stream->programmatic;
  tally->stream = stream;
  vg_work_open_tally(work, room_ns);
  vg_context_here.work = work;
  vg_context_here.work_generation = vg_context_here.generation;
}

static void count(struct vg_ticket *ticket) {
  struct vg_device *device = ticket->device;
  struct vg_work *work = ticket->work;
  struct vg_gate_state *gate = device->gate;
  bool capturing = VG_LOAD_RELAXED(&vg_gate_captures) != 0;
  vg_work_lock(work);
  struct vg_stream *stream = vg_work_stream(work, ticket->stream, ticket->per_thread, ticket->line);
  stream->programmatic |= ticket->programmatic;
  stream->last_epoch = VG_LOAD(&device->epoch);
  work->credit = 0; /* for uncounted launches later: it grows from the beginning */
  bool marked = vg_work_launched(work, stream, ticket->estimate, ticket->timing_begin, ticket->bound_ns, capturing);
  if (marked) work->other_threads_ns = vg_gate_publish(work);
  open_tally(work, stream, ticket);
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&gate->coasting))) work->last_launch_ns = vg_prim_now_ns();
  bool busy = VG_LOAD_RELAXED(&gate->busy.since_ns) != 0;
  if (VG_UNLIKELY(!busy && stream->waits)) vg_work_reap_stream(work, stream, vg_prim_now_ns());
  bool waits = stream->waits;
  vg_unlock(&work->lock);
  if (VG_UNLIKELY(marked && work->continued_ns)) vg_gate_launched_late(device, work);
  if (VG_UNLIKELY(marked && work->has_gaps)) {
    work->has_gaps = false;
    if (!capturing) vg_gate_begin_measuring(device);
  }
  if (VG_UNLIKELY(!busy)) {
    if (waits)
      vg_gate_begin_waiting(device);
    else
      vg_gate_stay_busy(device);
  }
  if (VG_UNLIKELY(vg_gate_gang_counts(device)) && ticket->kernel) vg_gate_gang_kernel(device, ticket->estimate);
}

/* Beside a capture, too, whose length only the program knows: an event is recorded as a marker is. */
static bool keeps_up(const struct vg_ticket *ticket) {
  struct vg_work *work = ticket->work;
  vg_work_lock(work);
  bool keeps_up = vg_work_keeps_up(work, vg_work_stream(work, ticket->stream, ticket->per_thread, ticket->line));
  vg_unlock(&work->lock);
  return keeps_up;
}

/* What passed uncounted since the look before is ahead of all that is counted from now on. It counts as so many
 * launches like this one, so that it shows how long the work behind it waits for the device and not for the program. */
static void charge_passed(const struct vg_ticket *ticket, uint64_t launches) {
  struct vg_work *work = ticket->work;
  uint64_t cost_ns = launches * vg_estimate_cost(ticket->estimate);
  vg_work_lock(work);
  struct vg_stream *stream = vg_work_stream(work, ticket->stream, ticket->per_thread, ticket->line);
  stream->cost_ns += cost_ns;
  stream->unmarked_ns += cost_ns;
  if (!stream->stale) vg_work_set_outstanding(work, work->outstanding_ns + cost_ns);
  vg_unlock(&work->lock);
}

static void leave_uncounted(struct vg_ticket *ticket, CUresult result) {
  if (VG_LIKELY(result == CUDA_SUCCESS) && !keeps_up(ticket)) {
    vg_gate_begin_deep(ticket->device);
    charge_passed(ticket, ticket->work->credit);
    count(ticket);
    return;
  }
  __atomic_add_fetch(&VG_LOAD(&ticket->device->report)->launches, 1, __ATOMIC_RELAXED);
  if (VG_LIKELY(result == CUDA_SUCCESS)) vg_gate_give_credit(ticket->work);
}

CUresult vg_gate_leave(struct vg_ticket *ticket, CUresult result) {
  if (!ticket->device) {
    vg_residence_leave(ticket->here);
    return result;
  }
  if (VG_UNLIKELY(!ticket->counted)) {
    leave_uncounted(ticket, result);
  } else if (VG_LIKELY(result == CUDA_SUCCESS)) {
    count(ticket);
  } else {
    vg_work_refused(ticket->estimate, ticket->timing_begin);
  }
  VG_STORE(&ticket->work->tally.in_flight, false);
  vg_residence_leave(ticket->here);
  return result;
}

/* While the tally is open, its stream is that of the last launch; only the work's own thread changes it. */
void vg_gate_count_long(struct vg_work *work, struct vg_estimate *estimate, bool kernel, bool programmatic) {
  count(&(struct vg_ticket){.device = work->device,
                            .line = vg_gate_own_line,
                            .work = work,
                            .estimate = estimate,
                            .stream = work->last->handle,
                            .bound_ns = vg_gate_bound(work->device),
                            .per_thread = work->last->per_thread,
                            .programmatic = programmatic,
                            .kernel = kernel});
}
