/*
 * arbiter.c - the arbiter's thread (DESIGN D4, D6): reads what the tenants report, lets policy.c and memory.c decide,
 * and publishes gates and credit (pages.c). One per device, in the daemon, without the interpreter.
 *
 * One mutex guards everything; Python's calls take it for microseconds. Doorbells are one-shot in epoll and re-armed at
 * a bounded rate, so that a tenant that rings all the time costs a few percent of a core.
 */
#define _GNU_SOURCE
#include "arbiter/arbiter.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "arbiter/gang.h"
#include "arbiter/gaps.h"
#include "arbiter/links.h"
#include "arbiter/memory_pages.h"
#include "arbiter/overlap.h"
#include "arbiter/pages.h"
#include "arbiter/policy.h"
#include "arbiter/residence.h"
#include "arbiter/state.h"
#include "base/prim.h"

#define RINGS_PER_MS 20      /* per slice, however many processes it has: beyond it their doorbells are not armed */
#define STILL_RINGS_PER_MS 1 /* of a process that claims to wait and does not work: each costs a round */
#define WAKE_EVENT UINT64_MAX
#define TIMER_EVENT (UINT64_MAX - 1)

/* ---- one round ---- */

static void count_drains(struct vg_arbiter *arbiter) {
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    bool draining = slice->present && (slice->gate.state == VG_CORE_DRAINING || slice->gate.state == VG_CORE_OVERLAP);
    if (arbiter->lanes[i].draining && !draining) {
      uint64_t drained_ns = slice->in.drained_ns, close_ns = slice->gate.close_ns;
      uint64_t drain_ns =
          drained_ns > close_ns ? drained_ns - close_ns : 0; /* earlier where a gap was left out since */
      slice->stats.drains++;
      slice->stats.drain_total_ns += drain_ns;
      if (drain_ns > slice->stats.drain_max_ns) slice->stats.drain_max_ns = drain_ns;
    }
    arbiter->lanes[i].draining = draining;
  }
}

static uint64_t earlier(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Gates first, since threads wait for them. Returns when the next round is due, a heartbeat later at the latest while
 * any process is read: time is charged to idle slices, too. */
static uint64_t one_round(struct vg_arbiter *arbiter, uint64_t now_ns) {
  arbiter->hurry = false;
  if (vg_core_stood_still(&arbiter->core, now_ns)) vg_pages_end_gap(arbiter, now_ns);
  vg_pages_read(arbiter, now_ns);
  vg_gang_round_begins(arbiter);
  vg_record_inputs(&arbiter->recorder, &arbiter->core);
  uint64_t deadline_ns = vg_core_step(&arbiter->core, now_ns);
  vg_record_step(&arbiter->recorder, &arbiter->core, now_ns, deadline_ns);
  vg_pages_publish(arbiter);
  vg_pages_publish_busy(arbiter, now_ns);
  deadline_ns = earlier(deadline_ns, vg_gang_round_ends(arbiter, now_ns));
  deadline_ns = earlier(deadline_ns, vg_links_round(arbiter, now_ns));
  count_drains(arbiter);
  vg_trace_round(&arbiter->trace, &arbiter->core, arbiter->waiting, now_ns);
  if (arbiter->memory_stale || now_ns >= arbiter->memory_due_ns) vg_pages_memory(arbiter, now_ns);
  if (arbiter->hurry) return now_ns;
  return earlier(now_ns + vg_pages_period_ns(arbiter), earlier(deadline_ns, arbiter->memory_due_ns));
}

/* ---- the thread ---- */

/* epoll's name of a doorbell: the process's index and id, since another process may have the index by then. */
static uint64_t event_of(const struct vg_process *process) {
  return process->id << 32 | (uint32_t)process->index;
}

static void arm(struct vg_arbiter *arbiter, struct vg_process *process) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = event_of(process)};
  epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_MOD, process->doorbell_fd, &event);
  arbiter->due[process->index] &= ~VG_DUE_DOORBELL;
}

/* A doorbell rings once each time it is armed; those of a slice are armed a bounded number of times in a millisecond.
 */
static bool arm_within_rate(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  struct vg_lane *lane = vg_lane_of(arbiter, process->slice);
  if (now_ns >= lane->ring_window_ns + VG_NS_PER_MS) {
    lane->ring_window_ns = now_ns;
    lane->arms = 0;
  }
  if (lane->arms >= (process->still_ns < VG_STILL_NS ? RINGS_PER_MS : STILL_RINGS_PER_MS)) return false;
  lane->arms++;
  lane->arm_index = process->index + 1;
  arm(arbiter, process);
  return true;
}

static void answer_doorbell(struct vg_arbiter *arbiter, uint64_t event, uint64_t now_ns) {
  struct vg_process *process = arbiter->processes[(uint32_t)event % VG_PROCESSES_MAX];
  if (!process || event_of(process) != event) return;
  vg_prim_eventfd_drain_shared(process->doorbell_fd);
  arbiter->due[process->index] |= VG_DUE_PAGE;
  vg_pages_wake(arbiter, process, now_ns);
  process->rang = true;
  if (!arm_within_rate(arbiter, process, now_ns)) arbiter->due[process->index] |= VG_DUE_DOORBELL;
}

/* Doorbells beyond the rate are armed a millisecond later, those of a slice by turns; returns when that is. */
static uint64_t arm_rested(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < arbiter->process_end; i++) {
      if (!(arbiter->due[i] & VG_DUE_DOORBELL)) continue;
      const struct vg_lane *lane = vg_lane_of(arbiter, arbiter->processes[i]->slice);
      if (round == 0 && i < lane->arm_index) continue;
      if (!arm_within_rate(arbiter, arbiter->processes[i], now_ns))
        deadline_ns = earlier(deadline_ns, lane->ring_window_ns + VG_NS_PER_MS);
    }
  return deadline_ns;
}

static void set_timer(struct vg_arbiter *arbiter, uint64_t deadline_ns) {
  arbiter->timer_ns = deadline_ns;
  struct itimerspec spec = {
      .it_value = {.tv_sec = (time_t)(deadline_ns / VG_NS_PER_S), .tv_nsec = (long)(deadline_ns % VG_NS_PER_S)}};
  timerfd_settime(arbiter->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* A late hand-over is charged to the slice that held the device meanwhile; this says how often that happens. */
static void note_late(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint64_t late_ns = now_ns - arbiter->timer_ns;
  if (now_ns < arbiter->timer_ns || late_ns < VG_LATE_NS) return;
  arbiter->late_count++;
  if (late_ns > arbiter->late_max_ns) arbiter->late_max_ns = late_ns;
  vg_trace_late(&arbiter->trace, now_ns, late_ns);
}

static void count_locked(struct vg_arbiter *arbiter, size_t bytes, bool locked) {
  *(locked ? &arbiter->locked_bytes : &arbiter->unlocked_bytes) += bytes;
}

static void *run(void *argument) {
  struct vg_arbiter *arbiter = argument;
  vg_prim_thread_name("vgpu-arbiter");
  vg_prim_timer_slack_ns(1);
  arbiter->thread_priority.priority = 1; /* ahead of the thread that admits programs */
  vg_thread_priority_begin(&arbiter->thread_priority, vg_prim_now_ns());
  bool locked;
  size_t stack_bytes = vg_thread_priority_lock_stack(&locked);
  struct epoll_event events[32];
  pthread_mutex_lock(&arbiter->mutex);
  count_locked(arbiter, stack_bytes, locked);
  while (!arbiter->stop) {
    uint64_t now_ns = vg_prim_now_ns();
    if (now_ns >= arbiter->round_due_ns) arbiter->round_due_ns = one_round(arbiter, now_ns);
    if (now_ns >= arbiter->beat_due_ns && vg_pages_beat(arbiter, now_ns)) arbiter->round_due_ns = now_ns;
    uint64_t rested_ns = arm_rested(arbiter, now_ns);
    set_timer(arbiter, earlier(rested_ns, earlier(arbiter->round_due_ns, arbiter->beat_due_ns)));
    vg_thread_priority_watch(&arbiter->thread_priority, now_ns, vg_thread_priority_used_ns);
    pthread_mutex_unlock(&arbiter->mutex);
    int count = epoll_wait(arbiter->epoll_fd, events, 32, -1);
    pthread_mutex_lock(&arbiter->mutex);
    now_ns = vg_prim_now_ns();
    for (int i = 0; i < count; i++) {
      if (events[i].data.u64 == TIMER_EVENT) {
        vg_prim_eventfd_drain(arbiter->timer_fd);
        note_late(arbiter, now_ns);
        continue;
      }
      arbiter->round_due_ns = now_ns;
      if (events[i].data.u64 == WAKE_EVENT) {
        vg_prim_eventfd_drain(arbiter->wake_fd);
        vg_pages_beat_soon(arbiter, now_ns); /* processes and timetables may have changed */
      } else
        answer_doorbell(arbiter, events[i].data.u64, now_ns);
    }
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return NULL;
}

static int watch(struct vg_arbiter *arbiter, int fd, uint64_t name) {
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = name};
  return epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* A thread that holds the mutex runs with the arbiter's priority while that waits for it: other threads could keep it
 * from a processor meanwhile, and the device would idle. */
static void init_mutex(pthread_mutex_t *mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

struct vg_arbiter *vg_arbiter_new(const struct vg_arbiter_params *params) {
  struct vg_arbiter *arbiter = calloc(1, sizeof *arbiter);
  if (!arbiter) return NULL;
  init_mutex(&arbiter->mutex);
  count_locked(arbiter, sizeof *arbiter, mlock(arbiter, sizeof *arbiter) == 0);
  vg_core_init(&arbiter->core, params, vg_prim_now_ns());
  vg_residence_init(arbiter);
  arbiter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  arbiter->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  arbiter->wake_fd = vg_prim_eventfd();
  if (arbiter->epoll_fd < 0 || arbiter->timer_fd < 0 || arbiter->wake_fd < 0 ||
      watch(arbiter, arbiter->timer_fd, TIMER_EVENT) || watch(arbiter, arbiter->wake_fd, WAKE_EVENT)) {
    vg_arbiter_free(arbiter);
    return NULL;
  }
  return arbiter;
}

int vg_arbiter_start(struct vg_arbiter *arbiter) {
  sigset_t all, before;
  if (arbiter->running) return -EALREADY;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the interpreter handles signals */
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
  vg_gang_arbiter_gone(arbiter);
  for (int i = 0; i < arbiter->process_end; i++) free(arbiter->processes[i]);
  vg_trace_switch(&arbiter->trace, false);
  vg_record_end(&arbiter->recorder);
  vg_prim_close(arbiter->epoll_fd);
  vg_prim_close(arbiter->timer_fd);
  vg_prim_close(arbiter->wake_fd);
  pthread_mutex_destroy(&arbiter->mutex);
  munlock(arbiter, sizeof *arbiter);
  free(arbiter);
}

/* ---- what Python calls ---- */

int vg_arbiter_set_params(struct vg_arbiter *arbiter, const struct vg_arbiter_params *params) {
  pthread_mutex_lock(&arbiter->mutex);
  arbiter->core.params = *params;
  vg_record_params(&arbiter->recorder, &arbiter->core);
  arbiter->memory_stale = true;
  return vg_arbiter_leave(arbiter, 0);
}

int vg_arbiter_slice_set(struct vg_arbiter *arbiter, uint64_t slice_id, const struct vg_slice_params *params) {
  if (params->min_milli > params->max_milli || params->max_milli > 1000 || !params->max_milli ||
      params->mem_min_bytes > params->mem_max_bytes || params->gang > VG_GANG_OPEN || params->leaves > 1 ||
      params->moves_itself > 1 || params->copy_min_milli > 1000 || params->copy_max_milli > 1000)
    return -EINVAL;
  pthread_mutex_lock(&arbiter->mutex);
  vg_record_inputs(&arbiter->recorder,
                   &arbiter->core); /* a new slice's gate depends on which slices have processes by now */
  const struct vg_core_slice *before = vg_core_find(&arbiter->core, slice_id);
  bool comes = before && before->params.away && !params->away;
  struct vg_core_slice *slice = vg_core_set(&arbiter->core, slice_id, params);
  if (!slice) return vg_arbiter_leave(arbiter, -ENOSPC);
  if (comes) arbiter->space_bytes = 0; /* was for it: from now on its claim counts by itself, and is asked for once */
  if (!slice->stats.last_work_ns) slice->stats.last_work_ns = vg_prim_now_ns();
  vg_record_set(&arbiter->recorder, slice_id, params);
  vg_residence_set(arbiter, slice);
  arbiter->links_due_ns = 0;
  vg_lane_of(arbiter, slice)->stale = true;
  arbiter->memory_stale = true;
  arbiter->coast_version++;
  return vg_arbiter_leave(arbiter, 0);
}

static struct vg_memory_slice *memory_of(struct vg_arbiter *arbiter, const struct vg_core_slice *slice) {
  return &arbiter->memory_slices[vg_lane_of(arbiter, slice) - arbiter->lanes];
}

int vg_arbiter_slice_unattributed(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t bytes) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  if (!slice) return vg_arbiter_leave(arbiter, -ENOENT);
  memory_of(arbiter, slice)->unattributed_bytes = bytes;
  arbiter->memory_stale = true;
  return vg_arbiter_leave(arbiter, 0);
}

int vg_arbiter_slice_remove(struct vg_arbiter *arbiter, uint64_t slice_id) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  if (!slice) return vg_arbiter_leave(arbiter, -ENOENT);
  if (vg_lane_of(arbiter, slice)->first) return vg_arbiter_leave(arbiter, -EBUSY);
  vg_lane_of(arbiter, slice)->draining = false;
  memory_of(arbiter, slice)->unattributed_bytes = memory_of(arbiter, slice)->disconnected_bytes = 0;
  memory_of(arbiter, slice)->reclaim = (struct vg_reclaim){0};
  memory_of(arbiter, slice)->shortages = 0;
  vg_core_remove(&arbiter->core, slice_id);
  vg_record_remove(&arbiter->recorder, slice_id);
  arbiter->memory_stale = true;
  arbiter->coast_version++;
  return vg_arbiter_leave(arbiter, 0);
}

static struct vg_process *find_process(const struct vg_arbiter *arbiter, uint64_t process_id) {
  for (int i = 0; i < arbiter->process_end; i++)
    if (arbiter->ids[i] == process_id && arbiter->processes[i]) return arbiter->processes[i];
  return NULL;
}

static int free_index(const struct vg_arbiter *arbiter) {
  int index = 0;
  while (index < VG_PROCESSES_MAX && arbiter->processes[index]) index++;
  return index;
}

static int add_locked(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t slice_id) {
  uint64_t now_ns = vg_prim_now_ns();
  process->slice = vg_core_find(&arbiter->core, slice_id);
  process->index = free_index(arbiter);
  if (!process->slice) return -ENOENT;
  if (find_process(arbiter, process->id)) return -EEXIST;
  if (process->index == VG_PROCESSES_MAX) return -ENOSPC;
  struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = event_of(process)};
  if (epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_ADD, process->doorbell_fd, &event) < 0) return -errno;
  struct vg_lane *lane = vg_lane_of(arbiter, process->slice);
  int place = (int)(lane - arbiter->lanes);
  arbiter->processes[process->index] = process;
  arbiter->ids[process->index] = process->id;
  arbiter->due[process->index] = VG_DUE_PAGE;
  arbiter->calm[process->index] = 0;
  arbiter->lane_of[process->index] = (uint8_t)place;
  if (process->index == arbiter->process_end) arbiter->process_end++;
  process->memory.slice = place;
  process->counted_ns = now_ns;
  if (!lane->first) lane->move_word = 0; /* of programs that have ended */
  process->next = lane->first;
  lane->first = process;
  lane->stale = true;
  process->slice->in.attached = true;
  arbiter->coast_version++;
  /* The page is complete before the tenant sees it; the thread's next round, which is due at once, does the rest. */
  vg_pages_begin(arbiter, process, now_ns);
  return 0;
}

/* A page that has to be fetched first would delay all slices. What RLIMIT_MEMLOCK does not allow stays as it is. */
static bool lock_pages(const struct vg_control_header *header, const struct vg_control_device *control,
                       const struct vg_report_device *report) {
  return mlock(header, sizeof *header) == 0 && mlock(control, sizeof *control) == 0 &&
         mlock(report, sizeof *report) == 0;
}

static void count_pages(struct vg_arbiter *arbiter, const struct vg_process *process, int sign) {
  size_t bytes = sizeof *process->header + sizeof *process->control + sizeof *process->report;
  uint64_t *count = process->locked ? &arbiter->locked_bytes : &arbiter->unlocked_bytes;
  *count = sign > 0 ? *count + bytes : *count - bytes;
}

int vg_arbiter_process_join(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t process_id,
                            struct vg_control_header *header, struct vg_control_device *control,
                            struct vg_report_device *report, int doorbell_fd, uint64_t held_bytes, int locked) {
  struct vg_process *process = calloc(1, sizeof *process);
  if (!process) return -ENOMEM;
  process->id = process_id;
  process->header = header;
  process->control = control;
  process->report = report;
  process->doorbell_fd = doorbell_fd;
  process->memory.granted_bytes = held_bytes;
  process->locked = locked;
  pthread_mutex_lock(&arbiter->mutex);
  int result = add_locked(arbiter, process, slice_id);
  if (!result) count_pages(arbiter, process, 1);
  if (result) free(process);
  pthread_mutex_unlock(&arbiter->mutex);
  return result;
}

void vg_arbiter_wake(struct vg_arbiter *arbiter) {
  vg_prim_eventfd_ring(arbiter->wake_fd);
}

int vg_arbiter_process_add(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t process_id,
                           struct vg_control_header *header, struct vg_control_device *control,
                           struct vg_report_device *report, int doorbell_fd, uint64_t held_bytes) {
  bool locked = lock_pages(header, control, report); /* not under the mutex: it may wait for our page tables */
  int result =
      vg_arbiter_process_join(arbiter, slice_id, process_id, header, control, report, doorbell_fd, held_bytes, locked);
  vg_arbiter_wake(arbiter);
  return result;
}

static void remove_locked(struct vg_arbiter *arbiter, struct vg_process *process) {
  epoll_ctl(arbiter->epoll_fd, EPOLL_CTL_DEL, process->doorbell_fd, NULL);
  vg_links_read(arbiter, process); /* what it has copied since the last look */
  struct vg_lane *lane = vg_lane_of(arbiter, process->slice);
  struct vg_process **link = &lane->first;
  while (*link != process) link = &(*link)->next;
  *link = process->next;
  vg_overlap_forget(lane, process);
  lane->stale = true;
  count_pages(arbiter, process, -1);
  arbiter->processes[process->index] = NULL;
  arbiter->due[process->index] = 0;
  while (arbiter->process_end && !arbiter->processes[arbiter->process_end - 1]) arbiter->process_end--;
  arbiter->memory_stale = true;
  arbiter->coast_version++;
  free(process);
}

int vg_arbiter_process_remove(struct vg_arbiter *arbiter, uint64_t process_id) {
  pthread_mutex_lock(&arbiter->mutex);
  struct vg_process *process = find_process(arbiter, process_id);
  if (!process) return vg_arbiter_leave(arbiter, -ENOENT);
  remove_locked(arbiter, process);
  return vg_arbiter_leave(arbiter, 0);
}

static uint64_t held_bytes(const struct vg_process *process) {
  return process->memory.granted_bytes - process->memory.returned_bytes;
}

static struct vg_process_stats stats_of(const struct vg_process *process) {
  return (struct vg_process_stats){
      .launches = process->launches,
      .throttled_ns = process->waited_ns,
      .busy_ns = process->busy.counted_ns,
      .mem_granted_bytes = process->memory.granted_bytes,
      .mem_held_bytes = held_bytes(process),
      .mem_used_bytes = process->memory.used_bytes,
      .mem_peak_bytes = process->peak_bytes,
      .denied = process->denied,
      .contexts = VG_LOAD_RELAXED(&process->report->contexts),
      .waiting = process->reported.waiting,
  };
}

int vg_arbiter_process_disconnect(struct vg_arbiter *arbiter, uint64_t process_id, struct vg_process_stats *ret_stats) {
  pthread_mutex_lock(&arbiter->mutex);
  struct vg_process *process = find_process(arbiter, process_id);
  if (!process) return vg_arbiter_leave(arbiter, -ENOENT);
  *ret_stats = stats_of(process);
  memory_of(arbiter, process->slice)->disconnected_bytes += held_bytes(process);
  remove_locked(arbiter, process);
  return vg_arbiter_leave(arbiter, 0);
}

int vg_arbiter_slice_release(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t bytes) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  if (!slice) return vg_arbiter_leave(arbiter, -ENOENT);
  struct vg_memory_slice *memory = memory_of(arbiter, slice);
  memory->disconnected_bytes -= bytes < memory->disconnected_bytes ? bytes : memory->disconnected_bytes;
  arbiter->memory_stale = true;
  return vg_arbiter_leave(arbiter, 0);
}

static struct vg_slice_reclaim reclaim_of(uint64_t slice_id, const struct vg_memory_slice *memory) {
  const struct vg_reclaim *reclaim = &memory->reclaim;
  return (struct vg_slice_reclaim){
      .slice_id = slice_id,
      .last_short_bytes = memory->last_short_bytes,
      .shortages = memory->shortages,
      .remaining_bytes = reclaim->remaining_bytes,
      .asked_bytes = reclaim->asked_bytes,
      .begin_ns = reclaim->begin_ns,
      .deadline_ns = reclaim->deadline_ns,
      .end_count = reclaim->end_count,
      .was_late = reclaim->last_was_late,
      .last_asked_bytes = reclaim->last_asked_bytes,
      .last_returned_bytes = reclaim->last_returned_bytes,
      .last_took_ns = reclaim->last_took_ns,
      .watchers = memory->watchers,
  };
}

int vg_arbiter_slice_stats(struct vg_arbiter *arbiter, uint64_t slice_id, struct vg_slice_stats *ret_stats) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  int result = slice ? 0 : -ENOENT;
  if (slice) {
    for (struct vg_process *process = vg_lane_of(arbiter, slice)->first; process; process = process->next) {
      vg_pages_read_memory(arbiter, process, vg_prim_now_ns());
      vg_links_read(arbiter, process);
    }
    *ret_stats = slice->stats;
    ret_stats->gate = slice->out.word & VG_GATE_STATE_MASK;
    ret_stats->regime = arbiter->core.regime;
    ret_stats->entitlement_milli = slice->out.shown_ppm / 1000;
    ret_stats->lag_ns = slice->out.lag_ns;
    if (slice->in.outstanding) ret_stats->last_work_ns = vg_prim_now_ns();
    uint64_t unattributed_bytes = memory_of(arbiter, slice)->unattributed_bytes;
    ret_stats->mem_unattributed_bytes = unattributed_bytes;
    ret_stats->reclaim = reclaim_of(slice_id, memory_of(arbiter, slice));
    ret_stats->mem_held_bytes = ret_stats->mem_used_bytes =
        unattributed_bytes + memory_of(arbiter, slice)->disconnected_bytes;
    for (const struct vg_process *process = vg_lane_of(arbiter, slice)->first; process; process = process->next) {
      ret_stats->mem_held_bytes += held_bytes(process);
      ret_stats->mem_used_bytes += process->memory.used_bytes;
      ret_stats->pinned_bytes += vg_pages_pinned_bytes(process);
      ret_stats->pinned_denied += VG_LOAD_RELAXED(&process->report->pinned_denied);
      ret_stats->processes++;
      vg_residence_add(vg_lane_of(arbiter, slice), process, ret_stats);
    }
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return result;
}

int vg_arbiter_usage(struct vg_arbiter *arbiter, struct vg_slice_usage *ret_usage, int capacity) {
  int count = 0;
  pthread_mutex_lock(&arbiter->mutex);
  for (int i = 0; i < arbiter->core.slice_count && count < capacity; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    if (!slice->present) continue;
    bool solo = (slice->out.word & VG_GATE_STATE_MASK) == VG_GATE_SOLO && vg_lane_of(arbiter, slice)->first;
    ret_usage[count++] = (struct vg_slice_usage){slice->id, slice->stats.charged_ns, solo};
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return count;
}

int vg_arbiter_reclaims(struct vg_arbiter *arbiter, struct vg_slice_reclaim *ret_reclaims, int capacity) {
  int count = 0;
  pthread_mutex_lock(&arbiter->mutex);
  for (int i = 0; i < arbiter->core.slice_count && count < capacity; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    const struct vg_memory_slice *memory = &arbiter->memory_slices[i];
    if (slice->present && (memory->reclaim.serial || memory->shortages))
      ret_reclaims[count++] = reclaim_of(slice->id, memory);
  }
  pthread_mutex_unlock(&arbiter->mutex);
  return count;
}

int vg_arbiter_process_stats(struct vg_arbiter *arbiter, uint64_t process_id, struct vg_process_stats *ret_stats) {
  pthread_mutex_lock(&arbiter->mutex);
  struct vg_process *process = find_process(arbiter, process_id);
  if (process) vg_pages_read_memory(arbiter, process, vg_prim_now_ns());
  if (process) *ret_stats = stats_of(process);
  pthread_mutex_unlock(&arbiter->mutex);
  return process ? 0 : -ENOENT;
}

void vg_arbiter_thread_state(struct vg_arbiter *arbiter, struct vg_arbiter_thread_state *ret_state) {
  pthread_mutex_lock(&arbiter->mutex);
  *ret_state = (struct vg_arbiter_thread_state){
      .scheduling = VG_LOAD_RELAXED(&arbiter->thread_priority.scheduling),
      .steps_down = VG_LOAD_RELAXED(&arbiter->thread_priority.steps_down),
      .locked_bytes = arbiter->locked_bytes,
      .unlocked_bytes = arbiter->unlocked_bytes,
      .late_count = arbiter->late_count,
      .late_max_ns = arbiter->late_max_ns,
  };
  pthread_mutex_unlock(&arbiter->mutex);
}

int vg_arbiter_trace(struct vg_arbiter *arbiter, int on) {
  pthread_mutex_lock(&arbiter->mutex);
  return vg_arbiter_leave(arbiter, vg_trace_switch(&arbiter->trace, on != 0));
}

int vg_arbiter_trace_read(struct vg_arbiter *arbiter, struct vg_trace_event *ret_events, int capacity) {
  pthread_mutex_lock(&arbiter->mutex);
  int count = vg_trace_read(&arbiter->trace, ret_events, capacity);
  pthread_mutex_unlock(&arbiter->mutex);
  return count;
}

int vg_arbiter_record(struct vg_arbiter *arbiter, int fd) {
  pthread_mutex_lock(&arbiter->mutex);
  vg_record_end(&arbiter->recorder);
  if (fd < 0) return vg_arbiter_leave(arbiter, 0);
  for (int i = 0; i < arbiter->core.slice_count; i++)
    if (arbiter->core.slices[i].present) return vg_arbiter_leave(arbiter, -EBUSY);
  struct vg_arbiter_params params = arbiter->core.params;
  vg_core_init(&arbiter->core, &params, vg_prim_now_ns());
  return vg_arbiter_leave(arbiter, vg_record_begin(&arbiter->recorder, &arbiter->core, fd));
}
