/*
 * enter.c - a launch before its driver call, unless it takes the short path (short_path.h): vg_gate_enter(). What waits
 * is in wait.c.
 *
 * A gate word is accepted once per lease by storing it in open_word; the fast question is "is the word the one that was
 * accepted?". A thread marks its own work before it looks at the gate (thread_line.h) and waits for nothing while the
 * mark is set.
 */
#include "context/context.h"
#include "gate/state.h"
#include "gate/thread_work.h"
#include "gen/abi/real.h"

static struct vg_work *work_on(struct vg_gate_line *line, struct vg_device *device) {
  struct vg_work **place = &line->works[device - vg_session.devices];
  if (VG_UNLIKELY(!*place)) *place = vg_gate_new_work(device);
  return *place;
}

static void begin_timing(struct vg_ticket *ticket) {
  vg_work_lock(ticket->work);
  struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, ticket->line);
  ticket->timing_begin = vg_work_time_begin(ticket->work, stream, ticket->estimate);
  vg_unlock(&ticket->work->lock);
}

static bool is_accepted(const struct vg_device *device) {
  return VG_LOAD(VG_LOAD(&device->gate_word)) == VG_LOAD_RELAXED(&device->open_word);
}

/* Before the first launch while no work is outstanding. The arbiter closes the gate and then looks whether work is
 * outstanding, so this thread reports work before it looks at the gate again: one of the two sees the other. False: the
 * gate was closed. */
static bool begin_busy(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_become_busy(device, vg_prim_now_ns());
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  bool accepted = is_accepted(device) || VG_LOAD_RELAXED(&gate->coasting);
  vg_gate_lock_all(device, &locked);
  bool idle = !accepted && !VG_LOAD_RELAXED(&gate->solo_dirty) && vg_gate_none_runs(device, locked);
  if (idle) vg_gate_become_idle(device, vg_prim_now_ns());
  vg_gate_unlock_all(locked);
  pthread_mutex_unlock(&gate->mutex);
  return accepted;
}

static bool is_solo(const struct vg_device *device) {
  return VG_LOAD_RELAXED(&device->solo_word) != VG_GATE_NO_WORD;
}

/* May a launch pass under the word that is accepted? Behind a wait it does not run yet: what it makes of the device is
 * seen afterwards (count.c), or by the helper. */
static bool may_launch(const struct vg_ticket *ticket) {
  struct vg_device *device = ticket->device;
  if (VG_UNLIKELY(!is_accepted(device))) return false;
  if (VG_UNLIKELY(is_solo(device))) return true; /* is not counted */
  return VG_LIKELY(VG_LOAD_RELAXED(&device->gate->busy.since_ns) != 0) || vg_gate_is_behind_wait(ticket) ||
         begin_busy(device);
}

void vg_gate_enter(struct vg_ticket *ticket, CUstream stream, bool per_thread, const void *function, uint64_t threads) {
  struct vg_device *device = VG_LOAD_RELAXED(&vg_gate_only_device);
  vg_gate_credit = 0; /* not less and less, with launches after which the thread does not look */
  ticket->device = NULL;
  ticket->here = vg_residence_enter();
  if (VG_UNLIKELY(!device)) device = vg_context_device();
  struct vg_gate_line *line = VG_LIKELY(vg_gate_own_line != NULL) ? vg_gate_own_line : vg_gate_make_line();
  struct vg_work *work = line && device ? work_on(line, device) : NULL;
  if (VG_UNLIKELY(!work) || vg_gate_is_captured(stream, per_thread)) return;
  struct vg_estimate *estimate = vg_work_find_estimate(work, function, threads);
  *ticket = (struct vg_ticket){.device = device,
                               .line = line,
                               .here = ticket->here,
                               .work = work,
                               .estimate = estimate,
                               .stream = stream,
                               .per_thread = per_thread};
  if (VG_UNLIKELY(!threads && VG_LOAD_RELAXED(&vg_gate_graphs_that_wait))) vg_gate_limit_graph(device, work, estimate);
  if (VG_UNLIKELY(!VG_LOAD_RELAXED(&estimate->count)) && !estimate->most_us && !vg_gate_is_alone(device))
    vg_gate_wait_for_first_timing(device, work, estimate);
  vg_gate_pace_behind_wait(ticket);
  for (;;) {
    ticket->bound_ns = vg_gate_bound(device);
    ticket->has_run_ns = 0;
    if (VG_UNLIKELY(vg_work_outstanding(work) + work->other_threads_ns >= ticket->bound_ns))
      ticket->has_run_ns = vg_gate_wait_for_bound(device, work, estimate, ticket->bound_ns);
    VG_STORE_RELAXED(&work->tally.in_flight, true);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* mark before look; the reader's membarrier does the rest */
    if (VG_UNLIKELY(VG_LOAD_RELAXED(&vg_prim_membarrier_refused))) __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (VG_LIKELY(may_launch(ticket))) break;
    VG_STORE(&work->tally.in_flight, false);
    vg_residence_leave(ticket->here); /* a thread that waits here is not in the driver */
    enum vg_passage passage = vg_gate_wait_until_admitted(device);
    ticket->here = vg_residence_enter();
    work->waited_ns = vg_prim_now_ns();
    if (passage == VG_PASSAGE_ACCEPTED) continue;
    VG_STORE_RELAXED(&work->tally.in_flight, true);
    break;
  }
  if (VG_UNLIKELY(is_solo(device))) {
    VG_STORE_RELAXED(&device->gate->solo_dirty, true);
    return; /* neither estimates nor markers */
  }
  ticket->counted = true;
  vg_gate_mark_wait_end(ticket); /* ahead of the event that a timing begins with */
  if (estimate->countdown && VG_UNLIKELY(--estimate->countdown == 0)) begin_timing(ticket);
}
