/*
 * wait.c - everything that a launch waits for before its driver call: that the gate opens, that less is outstanding
 * than the bound allows, and that the first launch of its function has been timed. No lock is held and the thread's own
 * in-flight mark is not set while it waits.
 */
#include "gate/state.h"
#include "gate/thread_work.h"

#define WAIT_ROUND_NS (100 * VG_NS_PER_MS) /* how long a thread sleeps at the gate before it looks around */
#define COAST_LOOK_NS 1000000ull           /* in its own slot: how often a waiting thread looks for completed work */
#define LOOSE_BOUND_NS 2000000ull
#define FIRST_LOOK_NS 10000ull
#define ALONE_LOOK_NS 1000000ull /* how often a waiting thread of a slice that is alone looks for progress */
#define PIECE_MAX_NS 8000000ull
#define FIRST_RUNS_NS VG_NS_PER_S
#define FIRST_BEGINS_NS (20 * VG_NS_PER_MS)
#define FIRST_LOOK_LEAST_NS 20000ull
#define FIRST_LOOK_MOST_NS 1000000ull

/* ---- at the closed gate ---- */

static bool is_open(uint32_t word) {
  return (word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

/* Is it this tenant's turn in the timetable? *ret_until_ns is when its turn ends, else when it begins. */
static bool coast_turn(const struct vg_device *device, uint64_t now_ns, uint64_t *ret_until_ns) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t seq, period_us, count;
  struct vg_coast_slot slots[VG_COAST_SLOTS_MAX];
  do { /* without a daemon there is no writer, so an odd count means that it died while writing: take what is there */
    seq = VG_LOAD(&control->coast_seq);
    period_us = VG_LOAD_RELAXED(&control->coast_period_us);
    count = VG_LOAD_RELAXED(&control->coast_slot_count);
    for (int i = 0; i < VG_COAST_SLOTS_MAX; i++) {
      slots[i].begin_us = VG_LOAD_RELAXED(&control->coast_slots[i].begin_us);
      slots[i].end_us = VG_LOAD_RELAXED(&control->coast_slots[i].end_us);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
  } while (seq != VG_LOAD_RELAXED(&control->coast_seq));
  *ret_until_ns = now_ns + WAIT_ROUND_NS;
  if (!period_us || count > VG_COAST_SLOTS_MAX) return false;
  uint64_t period_ns = period_us * VG_NS_PER_US;
  uint64_t start_ns = now_ns - now_ns % period_ns, best_ns = UINT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t begin_ns = start_ns + slots[i].begin_us * VG_NS_PER_US, end_ns = start_ns + slots[i].end_us * VG_NS_PER_US;
    if (now_ns >= begin_ns && now_ns < end_ns) {
      *ret_until_ns = end_ns;
      return true;
    }
    if (begin_ns <= now_ns) begin_ns += period_ns;
    if (begin_ns < best_ns) best_ns = begin_ns;
  }
  if (count) *ret_until_ns = best_ns;
  return false;
}

/* While coasting: admits a launch in the tenant's own slot as long as the outstanding work fits into the rest of it. */
static bool coast_admits(struct vg_device *device, uint64_t now_ns, uint64_t *ret_deadline_ns) {
  uint64_t until_ns;
  if (!coast_turn(device, now_ns, &until_ns)) {
    *ret_deadline_ns = until_ns;
    return false;
  }
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_reap(device, now_ns); /* no other thread does while this one waits */
  uint64_t seen_ns = vg_gate_seen(device, now_ns);
  pthread_mutex_unlock(&gate->mutex);
  *ret_deadline_ns = until_ns < now_ns + COAST_LOOK_NS ? until_ns : now_ns + COAST_LOOK_NS;
  return now_ns + seen_ns < until_ns;
}

/* Under the mutex: a thread that gives a word up first clears open_word and then looks for launches in flight. A thread
 * that accepted the word in between would launch under a word that was given up. */
static bool accept_word(struct vg_device *device, uint32_t word) {
  pthread_mutex_lock(&device->gate->mutex);
  bool accepted = word != VG_LOAD_RELAXED(&VG_LOAD(&device->report)->given_up_word);
  accepted = accepted && !VG_LOAD(&vg_residence_is_out); /* then this is a gate of a daemon that does not know it */
  if (accepted) {
    vg_gate_renew_waiting(device);
    device->gate->deep = true;
    device->gate->shallow_since_ns = 0;
    vg_gate_set_open_word(device, word);
    vg_gate_wake_helper(device);
  }
  pthread_mutex_unlock(&device->gate->mutex);
  return accepted;
}

static void begin_wait(struct vg_device *device, uint64_t now_ns) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_wait_begins(device, now_ns);
  pthread_mutex_unlock(&device->gate->mutex);
}

static void end_wait(struct vg_device *device, uint64_t begun_ns) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_wait_ends(device, begun_ns, vg_prim_now_ns());
  pthread_mutex_unlock(&device->gate->mutex);
}

static enum vg_passage wait_at_closed_gate(struct vg_device *device) {
  for (;;) {
    const uint32_t *word_at = VG_LOAD(&device->gate_word);
    struct vg_report_device *report = VG_LOAD(&device->report);
    uint32_t word = VG_LOAD(word_at);
    if (is_open(word) && accept_word(device, word)) return VG_PASSAGE_ACCEPTED;
    uint64_t now_ns = vg_prim_now_ns(), deadline_ns = now_ns + WAIT_ROUND_NS;
    if (VG_LOAD(&device->gate->coasting)) {
      if (coast_admits(device, now_ns, &deadline_ns)) return VG_PASSAGE_PASS_ONCE;
      vg_prim_futex_wait(word_at, word, deadline_ns);
      continue;
    }
    if (vg_gate_gang_passes(device, word)) return VG_PASSAGE_PASS_ONCE;
    __atomic_add_fetch(&report->waiting, 1, __ATOMIC_ACQ_REL);
    vg_prim_eventfd_ring(device->doorbell_fd);
    vg_prim_futex_wait(word_at, word, deadline_ns);
    __atomic_sub_fetch(&report->waiting, 1, __ATOMIC_ACQ_REL);
  }
}

enum vg_passage vg_gate_wait_until_admitted(struct vg_device *device) {
  uint32_t word = VG_LOAD(VG_LOAD(&device->gate_word));
  if (is_open(word) && accept_word(device, word)) return VG_PASSAGE_ACCEPTED; /* no wait to report */
  uint64_t begun_ns = vg_prim_now_ns();
  begin_wait(device, begun_ns);
  enum vg_passage passage = wait_at_closed_gate(device);
  end_wait(device, begun_ns);
  return passage;
}

/* ---- the bound on outstanding work ---- */

/* due_ns: when this thread meant to look, which may be some time ago. In a slice that is alone, a thread takes over
 * what another one has found a moment ago, if that was too much: hundreds of waiting threads would keep the processors
 * busy with looking. */
static uint64_t reaped_remaining(struct vg_device *device, uint64_t due_ns, uint64_t now_ns, uint64_t bound_ns,
                                 bool alone) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  if (!alone || gate->reaped_left_ns < bound_ns || now_ns >= gate->reaped_ns + ALONE_LOOK_NS / 2) {
    gate->reaped_left_ns = vg_gate_reap(device, now_ns);
    gate->reaped_ns = now_ns;
    vg_gate_rest(device, now_ns);
    vg_gate_looked_late(device, due_ns, now_ns);
  }
  uint64_t remaining_ns = gate->reaped_left_ns;
  pthread_mutex_unlock(&gate->mutex);
  return remaining_ns;
}

/* A program that launches graphs of some milliseconds prepares the next one while the last one runs: one may always be
 * queued behind the one that runs, else the device would be idle while the program prepares. For longer pieces and
 * tighter bounds the bound holds. */
static uint64_t bound_for(uint64_t bound_ns, const struct vg_estimate *estimate) {
  uint64_t cost_ns = VG_LOAD_RELAXED(&estimate->cost_ns);
  return bound_ns >= LOOSE_BOUND_NS && cost_ns > bound_ns && cost_ns <= PIECE_MAX_NS ? cost_ns : bound_ns;
}

/* In a slice that is alone the launch of a thread that has little outstanding itself does not wait for the others, and
 * none waits for streams without progress. */
static bool may_pass_alone(const struct vg_device *device, const struct vg_work *work) {
  uint64_t part_ns = VG_SOLO_BOUND_NS / (VG_LOAD(&device->gate->works)->rank + 1);
  return vg_work_outstanding(work) < part_ns || VG_LOAD(VG_LOAD(&device->gate_word)) != VG_LOAD(&device->open_word);
}

/* Some of the outstanding work waits for something else, perhaps for this very launch: streams of threads that wait for
 * each other need a launch of each, so each thread has its part of the bound. */
static bool may_pass_waiting(const struct vg_device *device, const struct vg_work *work, uint64_t bound_ns) {
  uint64_t part_ns = bound_ns / (VG_LOAD(&device->gate->works)->rank + 1);
  return VG_LOAD_RELAXED(&device->gate->waits) && vg_work_outstanding(work) < part_ns;
}

static uint64_t pause_for(uint64_t remaining_ns, uint64_t bound_ns, bool alone) {
  if (alone) return ALONE_LOOK_NS;
  uint64_t pause_ns = remaining_ns - bound_ns / 2;
  return pause_ns < bound_ns / 2 ? pause_ns : bound_ns / 2;
}

/* Paces and never blocks for ever: twice the bound after the outstanding work should have come down to it, the launch
 * continues all the same. */
uint64_t vg_gate_wait_for_bound(struct vg_device *device, struct vg_work *work, const struct vg_estimate *estimate,
                                uint64_t bound_ns) {
  bool alone = vg_gate_is_alone(device);
  if (alone && may_pass_alone(device, work)) return 0;
  bound_ns = bound_for(bound_ns, estimate);
  uint64_t now_ns = vg_prim_now_ns(), remaining_ns = reaped_remaining(device, now_ns, now_ns, bound_ns, alone);
  uint64_t deadline_ns = now_ns + bound_ns + (remaining_ns > bound_ns ? remaining_ns : bound_ns);
  uint64_t look_ns = FIRST_LOOK_NS;
  while (remaining_ns >= bound_ns && now_ns < deadline_ns && !(alone && may_pass_alone(device, work)) &&
         !may_pass_waiting(device, work, bound_ns)) {
    uint64_t pause_ns = pause_for(remaining_ns, bound_ns, alone);
    /* Of kernels shorter than their launches the estimates are too long, and all may have completed soon. */
    if (look_ns < pause_ns) pause_ns = look_ns;
    look_ns *= 4;
    uint64_t due_ns = now_ns + pause_ns < deadline_ns ? now_ns + pause_ns : deadline_ns;
    vg_prim_sleep_until_ns(due_ns);
    now_ns = vg_prim_now_ns();
    remaining_ns = reaped_remaining(device, due_ns, now_ns, bound_ns, alone);
  }
  work->waited_ns = now_ns;
  vg_work_lock(work);
  work->other_threads_ns = vg_gate_publish(work);
  uint64_t outstanding_ns = work->outstanding_ns + work->other_threads_ns;
  vg_unlock(&work->lock);
  return !alone && outstanding_ns > remaining_ns ? outstanding_ns - remaining_ns : 0;
}

static enum vg_timed find_first(struct vg_device *device, const struct vg_estimate *estimate) {
  enum vg_timed found = VG_TIMED_NONE;
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_reap(device, vg_prim_now_ns());
  for (struct vg_work *work = VG_LOAD(&device->gate->works); work && found == VG_TIMED_NONE; work = work->next) {
    vg_work_lock(work);
    found = vg_work_timed(work, estimate->function, estimate->grid_class);
    vg_unlock(&work->lock);
  }
  pthread_mutex_unlock(&device->gate->mutex);
  return found;
}

/* A kernel that has never been seen to end may take seconds and cannot be taken back: the next launch of the same
 * function waits for the first one to end, with a limit; only a moment if it does not even begin, since its stream may
 * wait for this thread. */
void vg_gate_wait_for_first_timing(struct vg_device *device, struct vg_work *work, const struct vg_estimate *estimate) {
  uint64_t begun_ns = vg_prim_now_ns(), now_ns = begun_ns;
  for (enum vg_timed first; (first = find_first(device, estimate)) != VG_TIMED_NONE; now_ns = vg_prim_now_ns()) {
    if (now_ns > begun_ns + (first == VG_TIMED_RUNS ? FIRST_RUNS_NS : FIRST_BEGINS_NS)) return;
    uint64_t pause_ns = (now_ns - begun_ns) / 8;
    if (pause_ns < FIRST_LOOK_LEAST_NS) pause_ns = FIRST_LOOK_LEAST_NS;
    vg_prim_sleep_until_ns(now_ns + (pause_ns < FIRST_LOOK_MOST_NS ? pause_ns : FIRST_LOOK_MOST_NS));
    work->waited_ns = vg_prim_now_ns();
  }
}
