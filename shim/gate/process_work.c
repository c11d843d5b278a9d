/*
 * process_work.c - the outstanding work of all threads of this process on a device. Under the gate's mutex; each
 * thread's work is locked for a moment. Only code that holds the locks of all works (lock_all) may decide that no work
 * is outstanding: a launch is counted under its thread's lock, which then sees whether the device counts as idle.
 */
#include "gate/state.h"

#define LATE_LEAST_NS 200000ull  /* of a look at outstanding work: less is no delay worth a second look */
#define UNCOUNTED_NS VG_NS_PER_S /* for launches that passed uncounted while the driver may not be asked */

static struct vg_work *first(const struct vg_device *device) {
  return VG_LOAD(&device->gate->works);
}

struct vg_work *vg_gate_new_work(struct vg_device *device) {
  struct vg_work *work = vg_work_new();
  if (!work) return NULL;
  work->next = first(device);
  while (!__atomic_compare_exchange_n(&device->gate->works, &work->next, work, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
  }
  return work;
}

void vg_gate_lock_all(const struct vg_device *device, struct vg_work **ret_first) {
  *ret_first = first(device); /* a work that is added later has no launches before */
  for (struct vg_work *work = *ret_first; work; work = work->next) vg_lock(&work->lock);
}

void vg_gate_unlock_all(struct vg_work *locked) {
  for (struct vg_work *work = locked; work; work = work->next) vg_unlock(&work->lock);
}

uint64_t vg_gate_outstanding(const struct vg_device *device) {
  uint64_t sum_ns = 0;
  for (const struct vg_work *work = first(device); work; work = work->next)
    sum_ns += VG_LOAD_RELAXED(&work->outstanding_ns);
  return sum_ns;
}

void vg_gate_refresh_other_threads(const struct vg_device *device, struct vg_work *work) {
  work->others_ns = vg_gate_outstanding(device) - VG_LOAD_RELAXED(&work->outstanding_ns);
}

uint64_t vg_gate_launched(const struct vg_device *device) {
  uint64_t sum = 0;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    sum += work->launched;
    vg_unlock(&work->lock);
  }
  return sum;
}

uint64_t vg_gate_reap(struct vg_device *device, uint64_t now_ns) {
  uint64_t left_ns = 0, most_ns = 0, moved_ns = 0, together_ns = 0, done_ns = 0, launches = 0;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    vg_work_reap(work, now_ns);
    if (work->moved_ns > moved_ns) moved_ns = work->moved_ns;
    together_ns += work->outstanding_ns;
    vg_gate_take_news(work, &done_ns, &launches);
    vg_unlock(&work->lock);
  }
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    vg_work_review_stale(work, moved_ns, together_ns, now_ns);
    uint64_t progress_ns = vg_work_progress(work, now_ns);
    if (progress_ns > most_ns) most_ns = progress_ns;
    left_ns += work->outstanding_ns;
    vg_unlock(&work->lock);
  }
  vg_gate_report_news(device, done_ns, launches);
  return left_ns > most_ns ? left_ns - most_ns : 0;
}

void vg_gate_looked_late(struct vg_device *device, uint64_t due_ns, uint64_t now_ns) {
  if (now_ns < due_ns + LATE_LEAST_NS) return;
  uint64_t left_ns = 0, seen_ns = due_ns;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    bool pending = vg_work_pending(work, &seen_ns);
    left_ns += work->outstanding_ns;
    vg_unlock(&work->lock);
    if (pending) return;
  }
  vg_gate_take_back(device, now_ns - vg_gate_busy_end(device, left_ns, seen_ns, now_ns));
}

void vg_gate_launched_late(struct vg_device *device, struct vg_work *work) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_lock(&work->lock);
  uint64_t continued_ns = work->continued_ns, seen_ns = work->paused_ns, left_ns = work->continued_left_ns;
  work->continued_ns = 0;
  uint64_t done_ns = 0, launches = 0;
  vg_gate_take_news(work, &done_ns, &launches);
  vg_unlock(&work->lock);
  vg_gate_report_news(device, done_ns, launches);
  bool others = vg_gate_outstanding(device) > VG_LOAD_RELAXED(&work->outstanding_ns);
  if (!others) vg_gate_take_back(device, continued_ns - vg_gate_busy_end(device, left_ns, seen_ns, continued_ns));
  pthread_mutex_unlock(&device->gate->mutex);
}

uint64_t vg_gate_seen(const struct vg_device *device, uint64_t now_ns) {
  uint64_t sum_ns = 0;
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    sum_ns += vg_work_seen(work, now_ns);
    vg_unlock(&work->lock);
  }
  return sum_ns;
}

bool vg_gate_settled(const struct vg_device *device, uint64_t since_ns, uint64_t now_ns) {
  bool settled = !VG_LOAD_RELAXED(&device->gate->solo_dirty) || now_ns > since_ns + UNCOUNTED_NS;
  for (struct vg_work *work = first(device); work && settled; work = work->next) {
    vg_lock(&work->lock);
    settled = vg_work_settled(work, since_ns, now_ns);
    vg_unlock(&work->lock);
  }
  return settled;
}

void vg_gate_forget_context(struct vg_device *device, CUcontext context) {
  for (struct vg_work *work = first(device); work; work = work->next) {
    vg_lock(&work->lock);
    vg_work_forget_context(work, context);
    vg_unlock(&work->lock);
  }
}

void vg_gate_take_news(struct vg_work *work, uint64_t *done_ns, uint64_t *launches) {
  *done_ns += work->done_ns;
  *launches += work->launched - work->reported;
  work->done_ns = 0;
  work->reported = work->launched;
}

/* ---- with the locks of all ---- */

uint64_t vg_gate_left(const struct vg_work *locked) {
  uint64_t sum_ns = 0;
  for (const struct vg_work *work = locked; work; work = work->next)
    for (int i = 0; i < VG_WORK_STREAMS; i++)
      if (work->streams[i].used) sum_ns += work->streams[i].cost_ns;
  return sum_ns;
}

uint64_t vg_gate_launched_all(const struct vg_work *locked) {
  uint64_t sum = 0;
  for (const struct vg_work *work = locked; work; work = work->next) sum += work->launched;
  return sum;
}

void vg_gate_clear_all(struct vg_work *locked) {
  for (struct vg_work *work = locked; work; work = work->next) vg_work_clear(work);
}

void vg_gate_report_all(struct vg_device *device, struct vg_work *locked) {
  uint64_t done_ns = 0, launches = 0;
  for (struct vg_work *work = locked; work; work = work->next) vg_gate_take_news(work, &done_ns, &launches);
  vg_gate_report_news(device, done_ns, launches);
}
