/*
 * process_work.c - the outstanding work of all threads of this process on a device. Under the gate's mutex; each
 * thread's work is locked for a moment. Only code that holds the locks of all works (lock_all) and has stopped the
 * tallies may decide that no work is outstanding: a launch is counted under its thread's lock, or in its tally, and its
 * thread sees afterwards whether the device counts as idle.
 */
#include "context/context.h"
#include "gate/state.h"

#define LATE_LEAST_NS 200000ull  /* of a look at outstanding work: less is no delay worth a second look */
#define UNCOUNTED_NS VG_NS_PER_S /* for launches that passed uncounted while the driver may not be asked */

uint32_t vg_gate_graphs_that_wait;

static struct vg_work *first(const struct vg_device *device) {
  return VG_LOAD(&device->gate->works);
}

bool vg_gate_may_wait(const struct vg_device *device) {
  return VG_LOAD_RELAXED(&device->gate->wait_counts.any_stream) || VG_LOAD_RELAXED(&vg_gate_graphs_that_wait) ||
         VG_LOAD_RELAXED(&device->gate->measures);
}

struct vg_work *vg_gate_new_work(struct vg_device *device) {
  struct vg_work *work = vg_work_new(device);
  if (!work) return NULL;
  work->next = first(device);
  do {
    work->rank = work->next ? work->next->rank + 1 : 0;
  } while (
      !__atomic_compare_exchange_n(&device->gate->works, &work->next, work, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE));
  vg_work_lock(work);
  if (VG_LOAD(&device->gate->measures)) vg_work_begin_measuring(work, &device->gate->clock, vg_prim_now_ns());
  vg_unlock(&work->lock);
  return work;
}

void vg_gate_begin_measuring(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  if (VG_UNLIKELY(!VG_LOAD_RELAXED(&gate->clock.context)))
    vg_context_clock_begin(&gate->clock, vg_context_remembered());
  if (VG_LIKELY(VG_LOAD_RELAXED(&gate->measures))) return;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  __atomic_store_n(&gate->measures, true, __ATOMIC_SEQ_CST); /* a work that is added later looks at it */
  vg_gate_lock_all(device, &locked);
  uint64_t now_ns = vg_prim_now_ns();
  for (struct vg_work *work = locked; work; work = work->next) vg_work_begin_measuring(work, &gate->clock, now_ns);
  gate->settled_ns = gate->busy.since_ns ? gate->busy.since_ns : now_ns;
  vg_runs_add(&gate->runs, gate->settled_ns, now_ns);
  vg_gate_settle(device, now_ns);
  vg_gate_unlock_all(locked);
  pthread_mutex_unlock(&gate->mutex);
}

void vg_gate_lock_all(const struct vg_device *device, struct vg_work **ret_first) {
  *ret_first = first(device); /* a work that is added later has no launches before */
  for (struct vg_work *work = *ret_first; work; work = work->next) vg_work_lock(work);
}

/* With its lock. */
static void publish_and_unlock(struct vg_work *work) {
  vg_gate_publish(work);
  vg_unlock(&work->lock);
}

void vg_gate_unlock_all(struct vg_work *locked) {
  for (struct vg_work *work = locked; work; work = work->next) publish_and_unlock(work);
}

uint64_t vg_gate_outstanding(const struct vg_device *device) {
  uint64_t sum_ns = 0;
  for (const struct vg_work *work = first(device); work; work = work->next) sum_ns += vg_work_outstanding(work);
  return sum_ns;
}

uint64_t vg_gate_publish(struct vg_work *work) {
  uint64_t *sum_at = &work->device->gate->published_ns;
  uint64_t added_ns = work->outstanding_ns - work->published_ns; /* modulo 2^64, as the sum is */
  work->published_ns = work->outstanding_ns;
  uint64_t sum_ns = added_ns ? __atomic_add_fetch(sum_at, added_ns, __ATOMIC_RELAXED) : VG_LOAD_RELAXED(sum_at);
  return sum_ns - work->published_ns;
}

uint64_t vg_gate_launched(const struct vg_device *device) {
  uint64_t sum = 0;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_work_lock(work);
    sum += work->launched;
    vg_unlock(&work->lock);
  }
  return sum;
}

uint64_t vg_gate_reap(struct vg_device *device, uint64_t now_ns) {
  uint64_t left_ns = 0, most_ns = 0, done_ns = 0, launches = 0, waiting_ns = 0, counts_ns = 0;
  struct vg_process_totals together = {.alone = vg_gate_is_alone(device), .accepted_ns = device->gate->accepted_ns};
  struct vg_gate_state *gate = device->gate;
  uint64_t sure_ns = now_ns;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_work_lock(work);
    vg_work_reap(work, now_ns);
    if (work->moved_ns > together.moved_ns) together.moved_ns = work->moved_ns;
    together.left_ns += work->outstanding_ns;
    if (together.alone) vg_work_add_pieces(work, &together);
    waiting_ns += vg_work_waiting(work, &counts_ns);
    vg_gate_take_news(work, &done_ns, &launches);
    if (VG_UNLIKELY(gate->measures)) vg_work_take_runs(work, &gate->runs, &sure_ns);
    vg_work_take_graphs(work, &gate->graphs);
    vg_unlock(&work->lock);
  }
  for (struct vg_work *work = gate->measures ? first(device) : NULL; work; work = work->next) {
    vg_lock(&work->lock);
    vg_work_serve_graphs(work, &gate->graphs, &gate->runs);
    vg_unlock(&work->lock);
  }
  gate->graphs.again_ns = 0;
  if (VG_UNLIKELY(gate->measures)) vg_gate_settle(device, sure_ns);
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    vg_work_review_stale(work, &together, now_ns);
    uint64_t progress_ns = vg_work_progress(work, now_ns);
    if (progress_ns > most_ns) most_ns = progress_ns;
    left_ns += work->outstanding_ns;
    if (together.alone) left_ns -= vg_work_unmarked(work); /* a launch that waited for it might wait for the program */
    publish_and_unlock(work);
  }
  VG_STORE_RELAXED(&gate->waits, waiting_ns > 0);
  gate->waiting_ns = counts_ns;
  vg_gate_report_news(device, done_ns, launches);
  return left_ns > most_ns ? left_ns - most_ns : 0;
}

void vg_gate_looked_late(struct vg_device *device, uint64_t due_ns, uint64_t now_ns) {
  if (now_ns < due_ns + LATE_LEAST_NS) return;
  uint64_t left_ns = 0, seen_ns = due_ns;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_work_lock(work);
    bool pending = vg_work_pending(work, &seen_ns);
    left_ns += work->outstanding_ns;
    vg_unlock(&work->lock);
    if (pending) return;
  }
  vg_gate_take_back(device, now_ns - vg_gate_busy_end(device, left_ns, seen_ns, now_ns));
}

void vg_gate_launched_late(struct vg_device *device, struct vg_work *work) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_work_lock(work);
  uint64_t continued_ns = work->continued_ns, seen_ns = work->paused_ns, left_ns = work->continued_left_ns;
  work->continued_ns = 0;
  uint64_t done_ns = 0, launches = 0;
  vg_gate_take_news(work, &done_ns, &launches);
  vg_unlock(&work->lock);
  vg_gate_report_news(device, done_ns, launches);
  bool others = vg_gate_outstanding(device) > vg_work_outstanding(work);
  if (!others) vg_gate_take_back(device, continued_ns - vg_gate_busy_end(device, left_ns, seen_ns, continued_ns));
  pthread_mutex_unlock(&device->gate->mutex);
}

uint64_t vg_gate_seen(const struct vg_device *device, uint64_t now_ns) {
  uint64_t sum_ns = 0;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_work_lock(work);
    sum_ns += vg_work_seen(work, now_ns);
    vg_unlock(&work->lock);
  }
  return sum_ns;
}

bool vg_gate_settled(const struct vg_device *device, uint64_t since_ns, uint64_t now_ns) {
  bool settled = !VG_LOAD_RELAXED(&device->gate->solo_dirty) || now_ns > since_ns + UNCOUNTED_NS;
  for (struct vg_work *work = first(device); work && settled; work = work->next) {
    vg_work_lock(work);
    settled = vg_work_settled(work, since_ns, now_ns);
    vg_unlock(&work->lock);
  }
  return settled;
}

void vg_gate_forget_context(struct vg_device *device, CUcontext context) {
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_work_lock(work);
    vg_work_forget_context(work, context);
    publish_and_unlock(work);
  }
}

void vg_gate_take_news(struct vg_work *work, uint64_t *done_ns, uint64_t *launches) {
  *done_ns += work->done_ns;
  *launches += work->launched - work->reported;
  work->done_ns = 0;
  work->reported = work->launched;
}

/* ---- with the locks of all ---- */

uint64_t vg_gate_running(const struct vg_work *locked) {
  uint64_t sum_ns = 0;
  for (const struct vg_work *work = locked; work; work = work->next) sum_ns += vg_work_running(work);
  return sum_ns;
}

uint64_t vg_gate_launched_all(const struct vg_work *locked) {
  uint64_t sum = 0;
  for (const struct vg_work *work = locked; work; work = work->next) sum += work->launched;
  return sum;
}

/* A thread counts in its tally and then looks whether counted_word is still there. Here it is taken away, and only then
 * are the tallies read. The barrier, which all running threads pass, stands between the two halves of each side: a
 * thread that counted before it is seen here, and one that counts after it finds the word gone. A thread that is alone
 * with its work needs none. */
void vg_gate_stop_tallies(struct vg_device *device, struct vg_work *locked) {
  VG_STORE(&device->counted_word, VG_GATE_NO_WORD);
  bool alone = !locked || (!locked->next && locked == vg_gate_work_here(device));
  if (!alone) vg_prim_membarrier();
  for (struct vg_work *work = locked; work; work = work->next) vg_work_take_tally(work);
}

/* What waited when it was last looked at may run by now. */
static void review_waiting(struct vg_device *device, struct vg_work *locked) {
  uint64_t now_ns = vg_prim_now_ns(), waiting_ns = 0, counts_ns = 0;
  struct vg_gate_state *gate = device->gate;
  for (struct vg_work *work = locked; work; work = work->next) {
    vg_work_reap_waiting(work, now_ns);
    waiting_ns += vg_work_waiting(work, &counts_ns);
  }
  if (waiting_ns && !gate->waits) gate->waits_since_ns = gate->waits_seen_ns = now_ns;
  VG_STORE_RELAXED(&gate->waits, waiting_ns > 0);
  gate->waiting_ns = counts_ns;
}

bool vg_gate_none_runs(struct vg_device *device, struct vg_work *locked) {
  if (vg_gate_running(locked)) return false;
  if (VG_UNLIKELY(vg_gate_may_wait(device))) review_waiting(device, locked);
  if (vg_gate_running(locked)) return false;
  vg_gate_stop_tallies(device, locked);
  bool none = vg_gate_running(locked) == 0;
  if (!none) vg_gate_set_counted_word(device);
  return none;
}

void vg_gate_clear_all(struct vg_work *locked, uint64_t done_ns, bool earlier) {
  for (struct vg_work *work = locked; work; work = work->next) vg_work_clear(work, done_ns, earlier);
}

void vg_gate_report_all(struct vg_device *device, struct vg_work *locked) {
  struct vg_gate_state *gate = device->gate;
  uint64_t done_ns = 0, launches = 0, sure_ns = vg_prim_now_ns();
  for (struct vg_work *work = locked; work; work = work->next) {
    vg_gate_take_news(work, &done_ns, &launches);
    if (VG_UNLIKELY(gate->measures)) vg_work_take_runs(work, &gate->runs, &sure_ns);
    vg_work_take_graphs(work, &gate->graphs);
  }
  for (struct vg_work *work = gate->measures ? locked : NULL; work; work = work->next)
    vg_work_serve_graphs(work, &gate->graphs, &gate->runs);
  gate->graphs.again_ns = 0;
  if (VG_UNLIKELY(gate->measures)) vg_gate_settle(device, sure_ns);
  vg_gate_report_news(device, done_ns, launches);
}
