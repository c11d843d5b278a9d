/*
 * gate.c - see gate.h. The launching side: accepting gate words, waiting at a closed gate, the bound on outstanding
 * work, giving a lease up. The helper's side is helper.c.
 *
 * A gate word is accepted once per lease by storing it in open_word; the fast path is "the word is the one I have
 * accepted". In-flight marks: a thread marks its own line before it looks at the gate and clears it after the driver
 * call; whoever wants to know that no launch is under way (the helper after a close, a thread that gives up) makes all
 * threads pass a barrier and then reads the lines. Nobody waits for anything while its own mark is set.
 */
#include "gate/gate.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "context/context.h"
#include "gate/state.h"
#include "gen/abi/real.h"

#define WAIT_ROUND_NS (100 * VG_NS_PER_MS) /* how long a thread sleeps at the gate before it looks around */
#define COAST_BOUND_NS 2000000ull
#define LOOSE_BOUND_NS 2000000ull
#define PIECE_MAX_NS 8000000ull
#define FIRST_RUNS_NS VG_NS_PER_S
#define FIRST_BEGINS_NS (20 * VG_NS_PER_MS)
#define FIRST_LOOK_LEAST_NS 20000ull
#define FIRST_LOOK_MOST_NS 1000000ull
#define COAST_LOOK_NS 1000000ull /* in its own slot: how often a waiting thread looks what has completed */

struct vg_device *vg_gate_only_device;
static struct vg_gate_line *lines; /* all lines ever made; never freed, reused by later threads */
static __thread struct vg_gate_line *own_line __attribute__((tls_model("initial-exec")));
static pthread_key_t line_key;
static pthread_once_t line_once = PTHREAD_ONCE_INIT;
uint32_t vg_gate_captures;
pthread_mutex_t vg_gate_capture_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- per-thread lines ---- */

static void line_free(void *line) {
  own_line = NULL; /* another destructor of this thread may launch yet: it gets a line of its own again */
  VG_STORE(&((struct vg_gate_line *)line)->device, NULL);
  VG_STORE(&((struct vg_gate_line *)line)->owned, 0);
}

static void make_key(void) {
  pthread_key_create(&line_key, line_free);
}

static struct vg_gate_line *make_line(void) {
  pthread_once(&line_once, make_key);
  struct vg_gate_line *line = VG_LOAD(&lines);
  for (; line; line = line->next) {
    uint32_t nobody = 0;
    if (__atomic_compare_exchange_n(&line->owned, &nobody, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
  }
  if (!line) {
    line = aligned_alloc(64, sizeof *line);
    if (!line) return NULL;
    *line = (struct vg_gate_line){.owned = 1, .next = VG_LOAD(&lines)};
    while (!__atomic_compare_exchange_n(&lines, &line->next, line, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
  }
  pthread_setspecific(line_key, line);
  own_line = line;
  return line;
}

static struct vg_gate_line *this_line(void) {
  return own_line ? own_line : make_line();
}

const struct vg_gate_line *vg_gate_own_line(void) {
  return own_line;
}

bool vg_gate_in_flight(const struct vg_device *device) {
  vg_prim_membarrier();
  for (struct vg_gate_line *line = VG_LOAD(&lines); line; line = line->next)
    if (line != own_line && VG_LOAD(&line->device) == device) return true;
  return false;
}

/* ---- attach ---- */

int vg_gate_attach(struct vg_device *device) {
  if (!device->gate) {
    device->gate = aligned_alloc(64, sizeof *device->gate);
    if (!device->gate) return -ENOMEM;
    memset(device->gate, 0, sizeof *device->gate);
    pthread_mutex_init(&device->gate->mutex, NULL);
  }
  vg_prim_membarrier_register();
  VG_STORE(&device->open_word, VG_GATE_NO_WORD);
  VG_STORE(&device->gate_word, &device->control->gate);
  if (vg_session.device_count == 1) VG_STORE(&vg_gate_only_device, device);
  return 0;
}

bool vg_gate_solo_elsewhere(void) {
  const struct vg_device *device = vg_context_device();
  return !device || vg_gate_solo_device(device);
}

/* ---- giving up ---- */

bool vg_gate_give_up(struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t word = VG_LOAD(&device->open_word);
  if (word == VG_GATE_NO_WORD || VG_LOAD_RELAXED(&control->neighbour_waits) == VG_NOBODY_WAITS) return false;
  VG_STORE(&device->open_word, VG_GATE_NO_WORD);
  if (vg_gate_in_flight(device)) {
    VG_STORE(&device->open_word, word);
    return false;
  }
  VG_STORE(&VG_LOAD(&device->report)->given_up_word, word);
  vg_prim_eventfd_ring(device->doorbell_fd);
  return true;
}

/* ---- at the closed gate ---- */

static bool is_open(uint32_t word) {
  return (word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

/* Is it this tenant's turn in the timetable, and until when? Else when does its turn begin? */
static bool coast_turn(const struct vg_device *device, uint64_t now_ns, uint64_t *ret_until_ns) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t seq, period_us, count;
  struct vg_coast_slot slots[VG_COAST_SLOTS_MAX];
  do { /* the writer is gone when this is read, so an odd count means that it died in between: take what is there */
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

/* While coasting: admits a launch in the tenant's own slot as long as what is outstanding fits into the rest of it. */
static bool coast_admits(struct vg_device *device, uint64_t now_ns, uint64_t *ret_deadline_ns) {
  uint64_t until_ns;
  if (!coast_turn(device, now_ns, &until_ns)) {
    *ret_deadline_ns = until_ns;
    return false;
  }
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_reap(device, now_ns); /* nobody else does while we wait */
  uint64_t seen_ns = vg_gate_seen(device, now_ns);
  pthread_mutex_unlock(&gate->mutex);
  *ret_deadline_ns = until_ns < now_ns + COAST_LOOK_NS ? until_ns : now_ns + COAST_LOOK_NS;
  return now_ns + seen_ns < until_ns;
}

/* Under the mutex, for whoever gives a word up first refuses it and then looks who is on his way: a thread that came in
 * between would go on under a word that is not ours any more. */
static bool accept_word(struct vg_device *device, uint32_t word) {
  pthread_mutex_lock(&device->gate->mutex);
  bool accepted = word != VG_LOAD_RELAXED(&VG_LOAD(&device->report)->given_up_word);
  if (accepted) {
    VG_STORE(&device->open_word, word);
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

/* Waits until the gate may be passed. True: the present word has been accepted. False: pass this once (coasting, or in
 * a gang whose devices are not equally far). */
static bool acquire(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  uint64_t begun_ns = 0;
  bool accepted = true;
  for (;;) {
    const uint32_t *word_at = VG_LOAD(&device->gate_word);
    struct vg_report_device *report = VG_LOAD(&device->report);
    uint32_t word = VG_LOAD(word_at);
    if (is_open(word) && accept_word(device, word)) break;
    uint64_t now_ns = vg_prim_now_ns(), deadline_ns = now_ns + WAIT_ROUND_NS;
    if (!begun_ns) begin_wait(device, begun_ns = now_ns);
    if (VG_LOAD(&gate->coasting)) {
      accepted = false;
      if (coast_admits(device, now_ns, &deadline_ns)) break;
      vg_prim_futex_wait(word_at, word, deadline_ns);
      accepted = true;
      continue;
    }
    if (vg_gate_gang_passes(device, word)) {
      accepted = false;
      break;
    }
    __atomic_add_fetch(&report->waiting, 1, __ATOMIC_ACQ_REL);
    vg_prim_eventfd_ring(device->doorbell_fd);
    vg_prim_futex_wait(word_at, word, deadline_ns);
    __atomic_sub_fetch(&report->waiting, 1, __ATOMIC_ACQ_REL);
  }
  if (begun_ns) end_wait(device, begun_ns);
  return accepted;
}

/* ---- the bound on outstanding work ---- */

static uint64_t bound_of(const struct vg_device *device) {
  uint64_t bound_ns = VG_LOAD_RELAXED(&VG_LOAD(&device->control)->bound_ns);
  return bound_ns && !VG_LOAD_RELAXED(&device->gate->coasting) ? bound_ns : COAST_BOUND_NS;
}

static uint64_t reaped_remaining(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  uint64_t remaining_ns = vg_gate_reap(device, now_ns);
  pthread_mutex_unlock(&gate->mutex);
  return remaining_ns;
}

/* Each thread knows its own part and remembers that of the others for as long as it takes to launch a marker's worth.
 */
static void look_at_others(const struct vg_device *device, struct vg_work *work) {
  work->others_ns = vg_gate_outstanding(device) - VG_LOAD_RELAXED(&work->outstanding_ns);
}

/* A program that launches graphs of some milliseconds prepares the next one while the last one runs: one may always be
 * queued behind the one that runs, or the device would stand still for as long as the program thinks. Long pieces and
 * tight bounds are kept to. */
static uint64_t bound_for(const struct vg_device *device, const struct vg_estimate *estimate) {
  uint64_t bound_ns = bound_of(device), cost_ns = VG_LOAD_RELAXED(&estimate->cost_ns);
  return bound_ns >= LOOSE_BOUND_NS && cost_ns > bound_ns && cost_ns <= PIECE_MAX_NS ? cost_ns : bound_ns;
}

/* Paces and never blocks for ever: twice the bound later than what is outstanding should have come down to it, the
 * launch goes on all the same. */
static void wait_bound(struct vg_device *device, struct vg_work *work, const struct vg_estimate *estimate) {
  if (VG_LIKELY(VG_LOAD_RELAXED(&work->outstanding_ns) + work->others_ns < bound_of(device))) return;
  uint64_t bound_ns = bound_for(device, estimate);
  uint64_t now_ns = vg_prim_now_ns(), remaining_ns = reaped_remaining(device, now_ns);
  uint64_t deadline_ns = now_ns + bound_ns + (remaining_ns > bound_ns ? remaining_ns : bound_ns);
  while (remaining_ns >= bound_ns && now_ns < deadline_ns) {
    uint64_t pause_ns = remaining_ns - bound_ns / 2;
    if (pause_ns > bound_ns / 2) pause_ns = bound_ns / 2;
    vg_prim_sleep_until_ns(now_ns + pause_ns < deadline_ns ? now_ns + pause_ns : deadline_ns);
    now_ns = vg_prim_now_ns();
    remaining_ns = reaped_remaining(device, now_ns);
  }
  look_at_others(device, work);
}

static enum vg_timed find_first(struct vg_device *device, const struct vg_estimate *estimate) {
  enum vg_timed found = VG_TIMED_NONE;
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_reap(device, vg_prim_now_ns());
  for (struct vg_work *work = VG_LOAD(&device->gate->works); work && found == VG_TIMED_NONE; work = work->next) {
    vg_lock(&work->lock);
    found = vg_work_timed(work, estimate->function, estimate->grid_class);
    vg_unlock(&work->lock);
  }
  pthread_mutex_unlock(&device->gate->mutex);
  return found;
}

/* A kernel that has never been seen to end may take seconds, and no one can take it back: the next one of its kind
 * waits for that, though not for ever; and only a moment if it does not even begin, for its stream may wait for us. */
static void wait_first(struct vg_device *device, const struct vg_estimate *estimate) {
  if (VG_LIKELY(VG_LOAD_RELAXED(&estimate->count))) return;
  uint64_t begun_ns = vg_prim_now_ns(), now_ns = begun_ns;
  for (enum vg_timed first; (first = find_first(device, estimate)) != VG_TIMED_NONE; now_ns = vg_prim_now_ns()) {
    if (now_ns > begun_ns + (first == VG_TIMED_RUNS ? FIRST_RUNS_NS : FIRST_BEGINS_NS)) return;
    uint64_t pause_ns = (now_ns - begun_ns) / 8;
    if (pause_ns < FIRST_LOOK_LEAST_NS) pause_ns = FIRST_LOOK_LEAST_NS;
    vg_prim_sleep_until_ns(now_ns + (pause_ns < FIRST_LOOK_MOST_NS ? pause_ns : FIRST_LOOK_MOST_NS));
  }
}

/* ---- a launch ---- */

/* A launch into a capturing stream runs nothing now: its graph will pass the gate. */
static bool captures(CUstream stream, bool per_thread) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_captures))) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result =
      per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status) : REAL(cuStreamIsCapturing)(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct vg_work *work_on(struct vg_gate_line *line, struct vg_device *device) {
  struct vg_work **place = &line->works[device - vg_session.devices];
  if (VG_UNLIKELY(!*place)) *place = vg_gate_new_work(device);
  return *place;
}

static void begin_timing(struct vg_ticket *ticket, struct vg_gate_line *line) {
  vg_lock(&ticket->work->lock);
  struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, line);
  ticket->timing_begin = vg_work_time_begin(stream, ticket->estimate);
  vg_unlock(&ticket->work->lock);
}

static bool is_accepted(const struct vg_device *device) {
  return VG_LOAD(VG_LOAD(&device->gate_word)) == VG_LOAD_RELAXED(&device->open_word);
}

/* Before the first launch where nothing is outstanding. The arbiter closes the gate and then looks whether anything is
 * outstanding, so this comes before another look at the gate: one of the two sees the other. False: it was closed. */
static bool begin_busy(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_become_busy(device, vg_prim_now_ns());
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  bool accepted = is_accepted(device) || VG_LOAD_RELAXED(&gate->coasting);
  vg_gate_lock_all(device, &locked);
  bool nothing = vg_gate_left(locked) == 0 && !VG_LOAD_RELAXED(&gate->solo_dirty);
  if (!accepted && nothing) vg_gate_become_idle(device, vg_prim_now_ns());
  vg_gate_unlock_all(locked);
  pthread_mutex_unlock(&gate->mutex);
  return accepted;
}

static bool is_solo(const struct vg_device *device) {
  return (VG_LOAD_RELAXED(&device->open_word) & VG_GATE_STATE_MASK) == VG_GATE_SOLO;
}

/* A launch may go on under the word that is accepted. */
static bool may_launch(struct vg_device *device) {
  if (VG_UNLIKELY(!is_accepted(device))) return false;
  if (VG_UNLIKELY(is_solo(device))) return true; /* is not counted */
  return VG_LIKELY(VG_LOAD_RELAXED(&device->gate->busy.since_ns) != 0) || begin_busy(device);
}

void vg_gate_enter(struct vg_ticket *ticket, CUstream stream, bool per_thread, const void *function, uint64_t threads) {
  *ticket = (struct vg_ticket){.device = vg_context_device(), .stream = stream, .per_thread = per_thread};
  struct vg_device *device = ticket->device;
  struct vg_gate_line *line = device ? this_line() : NULL;
  struct vg_work *work = line ? work_on(line, device) : NULL;
  if (!work || captures(stream, per_thread)) {
    ticket->device = NULL;
    return;
  }
  ticket->estimate = vg_work_estimate(work, function, threads);
  wait_first(device, ticket->estimate);
  for (;;) {
    wait_bound(device, work, ticket->estimate);
    VG_STORE_RELAXED(&line->device, device);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* mark before look; the reader's membarrier does the rest */
    if (VG_LIKELY(may_launch(device))) break;
    VG_STORE(&line->device, NULL);
    if (acquire(device)) continue;
    VG_STORE_RELAXED(&line->device, device);
    break;
  }
  if (VG_UNLIKELY(is_solo(device))) {
    VG_STORE_RELAXED(&device->gate->solo_dirty, true);
    return; /* neither estimates nor markers */
  }
  ticket->work = work;
  if (vg_estimate_timing_due(ticket->estimate)) begin_timing(ticket, line);
}

/* A launch has been counted where another thread has waited for all that was there before. */
static void stay_busy(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_lock_all(device, &locked);
  bool busy = vg_gate_left(locked) != 0; /* or has it waited for this one, too? */
  vg_gate_unlock_all(locked);
  if (busy) vg_gate_become_busy(device, vg_prim_now_ns());
  pthread_mutex_unlock(&gate->mutex);
}

/* Counts a launch that has gone to the driver. */
static void count(struct vg_ticket *ticket) {
  struct vg_device *device = ticket->device;
  struct vg_work *work = ticket->work;
  struct vg_gate_state *gate = device->gate;
  bool capturing = VG_LOAD_RELAXED(&vg_gate_captures) != 0;
  vg_lock(&work->lock);
  struct vg_stream *stream = vg_work_stream(work, ticket->stream, ticket->per_thread, own_line);
  stream->programmatic |= ticket->programmatic;
  stream->last_epoch = VG_LOAD(&gate->epoch);
  bool marked = vg_work_launched(work, stream, ticket->estimate, ticket->timing_begin, bound_of(device), capturing);
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&gate->coasting))) work->last_launch_ns = vg_prim_now_ns();
  bool busy = VG_LOAD_RELAXED(&gate->busy.since_ns) != 0;
  vg_unlock(&work->lock);
  if (marked) look_at_others(device, work);
  if (VG_UNLIKELY(!busy)) stay_busy(device);
  if (VG_UNLIKELY(vg_gate_gang_counts(device)) && ticket->kernel) vg_gate_gang_kernel(device, ticket->estimate);
}

void vg_gate_leave(struct vg_ticket *ticket, CUresult result) {
  if (!ticket->device) return;
  if (!ticket->work)
    __atomic_add_fetch(&VG_LOAD(&ticket->device->report)->launches, 1, __ATOMIC_RELAXED);
  else if (result == CUDA_SUCCESS)
    count(ticket);
  else
    vg_work_refused(ticket->estimate, ticket->timing_begin);
  VG_STORE(&own_line->device, NULL);
}

/* ---- contexts, captures, forks ---- */

void vg_gate_context_gone(struct vg_device *device, CUcontext context) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_forget_context(device, context);
  vg_probe_forget_context(&device->gate->probes, context);
  pthread_mutex_unlock(&device->gate->mutex);
}

/* The mutex keeps the helper's own driver calls out of the moment in which a capture begins. */
void vg_gate_capture_begin(void) {
  pthread_mutex_lock(&vg_gate_capture_mutex);
  __atomic_add_fetch(&vg_gate_captures, 1, __ATOMIC_ACQ_REL);
  pthread_mutex_unlock(&vg_gate_capture_mutex);
}

void vg_gate_capture_end(void) {
  __atomic_sub_fetch(&vg_gate_captures, 1, __ATOMIC_ACQ_REL);
}

void vg_gate_forked_child(void) {
  /* The parent's other threads are not here: their locks and marks mean nothing. */
  for (struct vg_gate_line *line = VG_LOAD(&lines); line; line = line->next) {
    line->device = NULL;
    memset(line->works, 0, sizeof line->works);
  }
  pthread_mutex_init(&vg_gate_capture_mutex, NULL);
  vg_gate_captures = 0;
  vg_gate_sync_forked_child();
  VG_STORE(&vg_gate_only_device, NULL);
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) vg_session.devices[i].gate = NULL;
}
