/*
 * arbiter.c - the arbiter's thread (DESIGN D4, D6): reads what the tenants report, lets arbiter_core.c and
 * arbiter_memory.c decide, and publishes gates and credit. One per device, in the daemon, without the interpreter.
 *
 * One mutex guards everything; Python's calls take it for microseconds. The tenants' pages are hostile: every word is
 * copied once and validated. Doorbells are one-shot in epoll and re-armed at a bounded rate, so that a tenant that
 * rings for ever costs a few percent of a core.
 */
#define _GNU_SOURCE
#include "arbiter.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "arbiter_core.h"
#include "arbiter_memory.h"
#include "arbiter_trace.h"
#include "prim.h"

#define PROCESSES_MAX 1024
#define RINGS_PER_MS 20 /* per process; beyond it the doorbell rests until the next millisecond */

struct process {
  uint64_t id;
  struct vg_core_slice *slice; /* its place in the core stays while it has processes */
  struct vg_control_header *header;
  struct vg_control_device *control;
  const struct vg_report_device *report;
  int doorbell_fd;
  struct vg_memory_row memory;
  uint32_t published_word;
  bool armed;
  uint64_t ring_window_ns;
  uint32_t rings;
  uint64_t read_ns; /* when its page was read last */
  /* last validated counters, summed over the pages */
  uint64_t busy_ns, active_ns, done_ns, launches, waited_ns, peak_bytes, denied;
  uint32_t contexts, waiting, wait_counts[VG_WAIT_BUCKETS];
};

struct vg_arbiter {
  pthread_mutex_t mutex;
  pthread_t thread;
  bool running, stop;
  int epoll_fd, timer_fd, wake_fd;
  struct vg_core core;
  struct vg_memory_slice memory_slices[VG_CORE_SLICES_MAX];
  struct process *processes[PROCESSES_MAX];
  int process_count;
  /* of each slice of the core: */
  uint32_t waiting[VG_CORE_SLICES_MAX]; /* threads at the gate */
  bool draining[VG_CORE_SLICES_MAX];    /* after the last round */
  struct vg_trace trace;
  bool coast_stale; /* slices or attachments changed: timetables must be rewritten */
};

/* ---- reading the report pages ---- */

/* A counter that a tenant may only raise; anything else is ignored. */
static uint64_t raise_counter(uint64_t *counter, const uint64_t *reported) {
  uint64_t value = VG_LOAD_RELAXED(reported);
  uint64_t before = *counter;
  if (value > before) *counter = value;
  return *counter - before;
}

static void read_wait_counts(struct process *process) {
  uint64_t *totals = process->slice->stats.wait_counts;
  for (int i = 0; i < VG_WAIT_BUCKETS; i++) {
    uint32_t count = VG_LOAD_RELAXED(&process->report->wait_counts[i]);
    if (count <= process->wait_counts[i]) continue;
    totals[i] += count - process->wait_counts[i];
    process->wait_counts[i] = count;
  }
}

/* A span that a tenant accumulates (begun at since) goes on no faster than the clock and never backwards, whatever the
 * page says. Returns what has come to it. */
static uint64_t advance_span(uint64_t *span_ns, const uint64_t *total_at, const uint64_t *since_at, uint64_t begin_ns,
                             uint64_t now_ns) {
  uint64_t total_ns = VG_LOAD(total_at); /* before since, which is taken back before the span is added */
  uint64_t since_ns = VG_LOAD(since_at);
  if (since_ns && since_ns < now_ns) total_ns += now_ns - since_ns;
  if (total_ns <= *span_ns) return 0;
  uint64_t more_ns = total_ns - *span_ns, most_ns = now_ns - begin_ns;
  if (more_ns > most_ns) more_ns = most_ns;
  *span_ns += more_ns;
  return more_ns;
}

static void read_usage(struct process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  struct vg_core_slice *slice = process->slice;
  uint64_t begin_ns = process->read_ns;
  process->read_ns = now_ns;
  slice->busy_total_ns += advance_span(&process->busy_ns, &report->busy_ns, &report->busy_since_ns, begin_ns, now_ns);
  slice->active_total_ns +=
      advance_span(&process->active_ns, &report->active_ns, &report->active_since_ns, begin_ns, now_ns);
  /* Work takes no more of the device than the time in which it was outstanding. */
  uint64_t done_ns = VG_LOAD_RELAXED(&report->done_ns);
  if (done_ns > process->busy_ns) done_ns = process->busy_ns;
  if (done_ns <= process->done_ns) return;
  slice->done_total_ns += done_ns - process->done_ns;
  process->done_ns = done_ns;
}

static void read_process(struct vg_arbiter *arbiter, struct process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  struct vg_core_slice *slice = process->slice;
  slice->stats.launches += raise_counter(&process->launches, &report->launches);
  slice->stats.throttled_ns += raise_counter(&process->waited_ns, &report->waited_ns);
  read_wait_counts(process);
  raise_counter(&process->peak_bytes, &report->peak_bytes);
  raise_counter(&process->denied, &report->denied);
  process->contexts = VG_LOAD_RELAXED(&report->contexts);
  process->waiting = VG_LOAD(&report->waiting);
  uint32_t want_seq = VG_LOAD(&report->want_seq); /* before want_bytes, which the tenant writes first */
  vg_memory_row_update(&process->memory, VG_LOAD(&report->returned_bytes), VG_LOAD(&report->used_bytes),
                       VG_LOAD(&report->want_bytes), want_seq, now_ns);
  read_usage(process, now_ns);
  slice->attached = true;
  arbiter->waiting[slice - arbiter->core.slices] += process->waiting;
  slice->wants |= process->waiting > 0;
  slice->outstanding |= VG_LOAD(&report->outstanding) != 0;
  /* Without a context nothing of it can be on the device; and one that hides the device (CUDA_VISIBLE_DEVICES) never
   * answers here: no drain of its slice would end, and half of what the next one uses would be charged to it. */
  if (!process->contexts) return;
  bool open = (process->published_word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
  uint32_t quiet_word = open ? VG_LOAD(&report->given_up_word) : VG_LOAD(&report->drained_word);
  if (!open && VG_LOAD(&report->noticed_word) == process->published_word) {
    slice->noticed = true;
    uint64_t expected_ns = VG_LOAD(&report->drain_expected_ns);
    if (expected_ns > slice->drain_expected_ns) slice->drain_expected_ns = expected_ns;
  }
  if (open && quiet_word == process->published_word && process->waiting) slice->regrets = true;
  if (quiet_word != process->published_word || process->published_word != slice->word) slice->quiet = false;
  uint64_t drained_ns = VG_LOAD(&report->drained_ns);
  if (!open && drained_ns > slice->drained_ns) slice->drained_ns = drained_ns < now_ns ? drained_ns : now_ns;
}

static void read_all(struct vg_arbiter *arbiter, uint64_t now_ns) {
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    slice->attached = slice->wants = slice->outstanding = slice->regrets = slice->noticed = false;
    slice->quiet = true;
    slice->drained_ns = slice->close_ns;
    slice->drain_expected_ns = 0;
    arbiter->waiting[i] = 0;
  }
  for (int i = 0; i < arbiter->process_count; i++) read_process(arbiter, arbiter->processes[i], now_ns);
}

/* ---- publishing ---- */

static void ring_helper(struct process *process) {
  __atomic_add_fetch(&process->header->bell, 1, __ATOMIC_RELEASE);
  vg_prim_futex_wake(&process->header->bell, 1);
}

static void publish_gate(struct process *process, const struct vg_core_slice *slice) {
  struct vg_control_device *control = process->control;
  VG_STORE_RELAXED(&control->bound_ns, slice->bound_ns);
  bool helper = VG_LOAD_RELAXED(&control->neighbour_waits) != slice->neighbour_waits ||
                VG_LOAD_RELAXED(&control->watch) != slice->watch;
  VG_STORE(&control->neighbour_waits, slice->neighbour_waits);
  VG_STORE(&control->watch, slice->watch);
  if (process->published_word != slice->word) {
    process->published_word = slice->word;
    VG_STORE(&control->gate, slice->word);
    if ((slice->word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED)
      helper = true; /* somebody must see to the drain */
    else
      vg_prim_futex_wake(&control->gate, INT_MAX);
  }
  if (helper) ring_helper(process);
}

static void publish_memory(struct process *process, const struct vg_memory_slice *slice) {
  struct vg_control_device *control = process->control;
  const struct vg_memory_row *row = &process->memory;
  VG_STORE_RELAXED(&control->limit_bytes, slice->max_bytes);
  VG_STORE_RELAXED(&control->slice_used_bytes, slice->used_bytes - row->used_bytes);
  VG_STORE_RELAXED(&control->coast_bytes, row->coast_bytes);
  VG_STORE(&control->granted_bytes, row->granted_bytes);
  if (VG_LOAD_RELAXED(&control->want_answered) != row->want_answered) {
    VG_STORE(&control->want_answered, row->want_answered);
    vg_prim_futex_wake(&control->want_answered, INT_MAX);
  }
  bool pressed = VG_LOAD_RELAXED(&control->memory_pressure) != 0;
  VG_STORE(&control->memory_pressure, row->pressure);
  if (row->pressure && !pressed) ring_helper(process);
}

static void publish_coast(struct vg_arbiter *arbiter, struct process *process) {
  struct vg_control_device *control = process->control;
  struct vg_coast_slot slots[VG_COAST_SLOTS_MAX];
  int count = vg_core_coast_slots(&arbiter->core, process->slice->id, slots, VG_COAST_SLOTS_MAX);
  uint32_t seq = control->coast_seq;
  VG_STORE_RELAXED(&control->coast_seq, seq + 1);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  VG_STORE_RELAXED(&control->coast_period_us, VG_CORE_COAST_PERIOD_US);
  VG_STORE_RELAXED(&control->coast_slot_count, (uint32_t)count);
  for (int i = 0; i < count; i++) {
    VG_STORE_RELAXED(&control->coast_slots[i].begin_us, slots[i].begin_us);
    VG_STORE_RELAXED(&control->coast_slots[i].end_us, slots[i].end_us);
  }
  VG_STORE(&control->coast_seq, seq + 2);
}

static void publish_process(struct vg_arbiter *arbiter, struct process *process, uint64_t now_ns) {
  const struct vg_core_slice *slice = process->slice;
  VG_STORE_RELAXED(&process->control->min_milli, slice->params.min_milli);
  VG_STORE_RELAXED(&process->control->max_milli, slice->params.max_milli);
  VG_STORE(&process->control->heartbeat_ns, now_ns);
  if (arbiter->coast_stale) publish_coast(arbiter, process);
  publish_memory(process, &arbiter->memory_slices[slice - arbiter->core.slices]);
  publish_gate(process, slice);
}

static void publish_all(struct vg_arbiter *arbiter, uint64_t now_ns) {
  for (int i = 0; i < arbiter->process_count; i++) publish_process(arbiter, arbiter->processes[i], now_ns);
  arbiter->coast_stale = false;
}

/* ---- one round ---- */

static uint64_t memory_round(struct vg_arbiter *arbiter, uint64_t now_ns) {
  struct vg_memory_row *rows[PROCESSES_MAX];
  for (int i = 0; i < arbiter->process_count; i++) rows[i] = &arbiter->processes[i]->memory;
  struct vg_memory_table table = {
      .total_bytes = arbiter->core.params.memory_total_bytes,
      .slices = arbiter->memory_slices,
      .slice_count = arbiter->core.slice_count,
      .rows = rows,
      .row_count = arbiter->process_count,
  };
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    arbiter->memory_slices[i] = (struct vg_memory_slice){
        .id = slice->present ? slice->id : UINT64_MAX,
        .min_bytes = slice->present ? slice->params.mem_min_bytes : 0,
        .max_bytes = slice->present ? slice->params.mem_max_bytes : 0,
    };
  }
  uint64_t deadline_ns = vg_memory_table_step(&table, now_ns);
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    uint64_t *peak_bytes = &arbiter->core.slices[i].stats.mem_peak_bytes;
    if (arbiter->memory_slices[i].used_bytes > *peak_bytes) *peak_bytes = arbiter->memory_slices[i].used_bytes;
  }
  for (int i = 0; i < arbiter->process_count; i++)
    arbiter->processes[i]->slice->stats.mem_denied += arbiter->processes[i]->memory.denied;
  return deadline_ns;
}

static void count_drains(struct vg_arbiter *arbiter) {
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    bool draining = slice->present && (slice->state == VG_CORE_DRAINING || slice->state == VG_CORE_OVERLAP);
    if (arbiter->draining[i] && !draining) {
      uint64_t drain_ns = slice->drained_ns - slice->close_ns;
      slice->stats.drains++;
      slice->stats.drain_total_ns += drain_ns;
      if (drain_ns > slice->stats.drain_max_ns) slice->stats.drain_max_ns = drain_ns;
    }
    arbiter->draining[i] = draining;
  }
}

static uint64_t one_round(struct vg_arbiter *arbiter, uint64_t now_ns) {
  read_all(arbiter, now_ns);
  uint64_t deadline_ns = vg_core_step(&arbiter->core, now_ns);
  count_drains(arbiter);
  uint64_t memory_ns = memory_round(arbiter, now_ns);
  if (memory_ns < deadline_ns) deadline_ns = memory_ns;
  publish_all(arbiter, now_ns);
  vg_trace_round(&arbiter->trace, &arbiter->core, arbiter->waiting, now_ns);
  uint64_t heartbeat_ns = now_ns + arbiter->core.params.heartbeat_ns;
  return heartbeat_ns < deadline_ns ? heartbeat_ns : deadline_ns;
}

/* ---- the thread ---- */

static void arm(struct vg_arbiter *arbiter, struct process *process) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = process->id};
  process->armed = epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_MOD, process->doorbell_fd, &event) == 0;
}

static void answer_doorbell(struct vg_arbiter *arbiter, uint64_t process_id, uint64_t now_ns) {
  for (int i = 0; i < arbiter->process_count; i++) {
    struct process *process = arbiter->processes[i];
    if (process->id != process_id) continue;
    process->armed = false;
    vg_prim_eventfd_drain_shared(process->doorbell_fd);
    if (now_ns >= process->ring_window_ns + VG_NS_PER_MS) {
      process->ring_window_ns = now_ns;
      process->rings = 0;
    }
    if (++process->rings <= RINGS_PER_MS) arm(arbiter, process);
  }
}

/* Doorbells that rest are armed again a millisecond later; returns when that is. */
static uint64_t arm_rested(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  for (int i = 0; i < arbiter->process_count; i++) {
    struct process *process = arbiter->processes[i];
    if (process->armed) continue;
    uint64_t due_ns = process->ring_window_ns + VG_NS_PER_MS;
    if (now_ns >= due_ns)
      arm(arbiter, process);
    else if (due_ns < deadline_ns)
      deadline_ns = due_ns;
  }
  return deadline_ns;
}

static void set_timer(struct vg_arbiter *arbiter, uint64_t deadline_ns) {
  struct itimerspec spec = {
      .it_value = {.tv_sec = (time_t)(deadline_ns / VG_NS_PER_S), .tv_nsec = (long)(deadline_ns % VG_NS_PER_S)}};
  timerfd_settime(arbiter->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void *run(void *argument) {
  struct vg_arbiter *arbiter = argument;
  vg_prim_thread_name("vgpu-arbiter");
  vg_prim_timer_slack_ns(1);
  /* Where it is allowed: a hand-over must not wait behind the tenants' own threads. Bounded by the doorbells' rate. */
  struct sched_param priority = {.sched_priority = 1};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
  struct epoll_event events[32];
  pthread_mutex_lock(&arbiter->mutex);
  while (!arbiter->stop) {
    uint64_t now_ns = vg_prim_now_ns();
    uint64_t deadline_ns = one_round(arbiter, now_ns);
    uint64_t rested_ns = arm_rested(arbiter, now_ns);
    set_timer(arbiter, rested_ns < deadline_ns ? rested_ns : deadline_ns);
    pthread_mutex_unlock(&arbiter->mutex);
    int count = epoll_wait(arbiter->epoll_fd, events, 32, -1);
    pthread_mutex_lock(&arbiter->mutex);
    now_ns = vg_prim_now_ns();
    for (int i = 0; i < count; i++) {
      if (events[i].data.u64 == UINT64_MAX) {
        vg_prim_eventfd_drain(arbiter->wake_fd);
        vg_prim_eventfd_drain(arbiter->timer_fd);
      } else {
        answer_doorbell(arbiter, events[i].data.u64, now_ns);
      }
    }
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return NULL;
}

static int watch(struct vg_arbiter *arbiter, int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
  return epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

struct vg_arbiter *vg_arbiter_new(const struct vg_arbiter_params *params) {
  struct vg_arbiter *arbiter = calloc(1, sizeof *arbiter);
  if (!arbiter) return NULL;
  pthread_mutex_init(&arbiter->mutex, NULL);
  vg_core_init(&arbiter->core, params, vg_prim_now_ns());
  arbiter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  arbiter->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  arbiter->wake_fd = vg_prim_eventfd();
  if (arbiter->epoll_fd < 0 || arbiter->timer_fd < 0 || arbiter->wake_fd < 0 || watch(arbiter, arbiter->timer_fd) ||
      watch(arbiter, arbiter->wake_fd)) {
    vg_arbiter_free(arbiter);
    return NULL;
  }
  return arbiter;
}

int vg_arbiter_start(struct vg_arbiter *arbiter) {
  sigset_t all, before;
  if (arbiter->running) return -EALREADY;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the interpreter's business */
  int error = pthread_create(&arbiter->thread, NULL, run, arbiter);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  arbiter->running = error == 0;
  return -error;
}

void vg_arbiter_free(struct vg_arbiter *arbiter) {
  if (!arbiter) return;
  if (arbiter->running) {
    pthread_mutex_lock(&arbiter->mutex);
    arbiter->stop = true;
    pthread_mutex_unlock(&arbiter->mutex);
    vg_prim_eventfd_ring(arbiter->wake_fd);
    pthread_join(arbiter->thread, NULL);
  }
  for (int i = 0; i < arbiter->process_count; i++) free(arbiter->processes[i]);
  vg_trace_switch(&arbiter->trace, false);
  vg_prim_close(arbiter->epoll_fd);
  vg_prim_close(arbiter->timer_fd);
  vg_prim_close(arbiter->wake_fd);
  pthread_mutex_destroy(&arbiter->mutex);
  free(arbiter);
}

/* ---- what Python calls ---- */

static int leave(struct vg_arbiter *arbiter, int result) {
  pthread_mutex_unlock(&arbiter->mutex);
  vg_prim_eventfd_ring(arbiter->wake_fd);
  return result;
}

int vg_arbiter_set_params(struct vg_arbiter *arbiter, const struct vg_arbiter_params *params) {
  pthread_mutex_lock(&arbiter->mutex);
  arbiter->core.params = *params;
  return leave(arbiter, 0);
}

int vg_arbiter_slice_set(struct vg_arbiter *arbiter, uint64_t slice_id, const struct vg_slice_params *params) {
  if (params->min_milli > params->max_milli || params->max_milli > 1000 || !params->max_milli ||
      params->mem_min_bytes > params->mem_max_bytes)
    return -EINVAL;
  pthread_mutex_lock(&arbiter->mutex);
  arbiter->coast_stale = true;
  return leave(arbiter, vg_core_set(&arbiter->core, slice_id, params) ? 0 : -ENOSPC);
}

int vg_arbiter_slice_remove(struct vg_arbiter *arbiter, uint64_t slice_id) {
  pthread_mutex_lock(&arbiter->mutex);
  for (int i = 0; i < arbiter->process_count; i++)
    if (arbiter->processes[i]->slice->id == slice_id) return leave(arbiter, -EBUSY);
  struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  if (!slice) return leave(arbiter, -ENOENT);
  arbiter->draining[slice - arbiter->core.slices] = false;
  vg_core_remove(&arbiter->core, slice_id);
  arbiter->coast_stale = true;
  return leave(arbiter, 0);
}

static struct process *find_process(const struct vg_arbiter *arbiter, uint64_t process_id, int *ret_index) {
  for (int i = 0; i < arbiter->process_count; i++) {
    if (arbiter->processes[i]->id != process_id) continue;
    if (ret_index) *ret_index = i;
    return arbiter->processes[i];
  }
  return NULL;
}

static int add_locked(struct vg_arbiter *arbiter, struct process *process, uint64_t slice_id) {
  process->slice = vg_core_find(&arbiter->core, slice_id);
  if (!process->slice) return -ENOENT;
  if (find_process(arbiter, process->id, NULL)) return -EEXIST;
  if (arbiter->process_count == PROCESSES_MAX) return -ENOSPC;
  struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = process->id};
  if (epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_ADD, process->doorbell_fd, &event) < 0) return -errno;
  process->armed = true;
  process->read_ns = vg_prim_now_ns();
  arbiter->processes[arbiter->process_count++] = process;
  arbiter->coast_stale = true;
  /* The page is complete before the tenant sees it; the thread's next round, which is about to come, does the rest. */
  process->slice->attached = true;
  memory_round(arbiter, vg_prim_now_ns());
  publish_process(arbiter, process, vg_prim_now_ns());
  return 0;
}

int vg_arbiter_process_add(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t process_id,
                           struct vg_control_header *header, struct vg_control_device *control,
                           struct vg_report_device *report, int doorbell_fd, uint64_t held_bytes) {
  if (process_id == UINT64_MAX) return -EINVAL;
  struct process *process = calloc(1, sizeof *process);
  if (!process) return -ENOMEM;
  process->id = process_id;
  process->header = header;
  process->control = control;
  process->report = report;
  process->doorbell_fd = doorbell_fd;
  process->memory = (struct vg_memory_row){.slice_id = slice_id, .granted_bytes = held_bytes};
  pthread_mutex_lock(&arbiter->mutex);
  int result = add_locked(arbiter, process, slice_id);
  if (result) free(process);
  return leave(arbiter, result);
}

int vg_arbiter_process_remove(struct vg_arbiter *arbiter, uint64_t process_id) {
  int index = 0;
  pthread_mutex_lock(&arbiter->mutex);
  struct process *process = find_process(arbiter, process_id, &index);
  if (!process) return leave(arbiter, -ENOENT);
  epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_DEL, process->doorbell_fd, NULL);
  arbiter->processes[index] = arbiter->processes[--arbiter->process_count];
  arbiter->coast_stale = true;
  free(process);
  return leave(arbiter, 0);
}

static void add_process_stats(struct vg_slice_stats *stats, const struct process *process) {
  stats->mem_held_bytes += process->memory.granted_bytes - process->memory.returned_bytes;
  stats->mem_used_bytes += process->memory.used_bytes;
  stats->processes++;
}

int vg_arbiter_slice_stats(struct vg_arbiter *arbiter, uint64_t slice_id, struct vg_slice_stats *ret_stats) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  int result = slice ? 0 : -ENOENT;
  if (slice) {
    *ret_stats = slice->stats;
    ret_stats->gate = slice->word & VG_GATE_STATE_MASK;
    for (int i = 0; i < arbiter->process_count; i++)
      if (arbiter->processes[i]->slice == slice) add_process_stats(ret_stats, arbiter->processes[i]);
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return result;
}

int vg_arbiter_process_stats(struct vg_arbiter *arbiter, uint64_t process_id, struct vg_process_stats *ret_stats) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct process *process = find_process(arbiter, process_id, NULL);
  if (process)
    *ret_stats = (struct vg_process_stats){
        .launches = process->launches,
        .throttled_ns = process->waited_ns,
        .busy_ns = process->busy_ns,
        .mem_held_bytes = process->memory.granted_bytes - process->memory.returned_bytes,
        .mem_used_bytes = process->memory.used_bytes,
        .mem_peak_bytes = process->peak_bytes,
        .denied = process->denied,
        .contexts = process->contexts,
        .waiting = process->waiting,
    };
  pthread_mutex_unlock(&arbiter->mutex);
  return process ? 0 : -ENOENT;
}

int vg_arbiter_trace(struct vg_arbiter *arbiter, int on) {
  pthread_mutex_lock(&arbiter->mutex);
  return leave(arbiter, vg_trace_switch(&arbiter->trace, on != 0));
}

int vg_arbiter_trace_read(struct vg_arbiter *arbiter, struct vg_trace_event *ret_events, int capacity) {
  pthread_mutex_lock(&arbiter->mutex);
  int count = vg_trace_read(&arbiter->trace, ret_events, capacity);
  pthread_mutex_unlock(&arbiter->mutex);
  return count;
}
