/*
 * queue.c - streams: commands are taken from the rings, and every stream's head is either decided at once (it takes no
 * time), handed to an engine, or left waiting. Called by engine.c's round. Whatever a process writes into its ring, the
 * worst that may happen is that this process is disconnected.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct stream *work_list;

static void work_add(struct stream *stream) {
  if (stream->on_work_list) return;
  stream->on_work_list = true;
  stream->next_work = work_list;
  work_list = stream;
}

static uint64_t later(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static void publish(struct stream *stream, uint64_t done_ns) {
  struct sim_stream_state *state = &stream->process->completions->streams[stream->slot];
  stream->done_seq++;
  stream->done_ns = done_ns;
  VG_STORE_RELAXED(&state->times[stream->done_seq % SIM_STREAM_TIMES], done_ns);
  VG_STORE(&state->decided_seq, stream->done_seq);
  stream->process->decided = true;
}

static void publish_event(struct stream *stream, const struct entry *entry, uint64_t done_ns) {
  struct sim_event_state *state = &stream->process->completions->events[entry->target];
  if (state->generation >= entry->value) return; /* a later record on another stream was faster */
  VG_STORE_RELAXED(&state->time_ns, done_ns);
  VG_STORE(&state->generation, entry->value);
}

static void wake_waiters(struct stream *stream) {
  struct stream **link = &stream->waiters;
  while (*link) {
    struct stream *waiter = *link;
    if (waiter->queue[waiter->first].value > stream->done_seq) {
      link = &waiter->next_waiter;
      continue;
    }
    *link = waiter->next_waiter;
    waiter->waits_for = NULL;
    waiter->state = STREAM_IDLE;
    work_add(waiter);
  }
}

static void finish(struct stream *stream, uint64_t done_ns) {
  const struct entry *entry = &stream->queue[stream->first];
  if (entry->op == SIM_OP_RECORD) publish_event(stream, entry, done_ns);
  if (entry->op == SIM_OP_KERNEL || entry->op == SIM_OP_COPY) stream->copied = entry->op == SIM_OP_COPY;
  stream->first = (stream->first + 1) % stream->capacity;
  stream->count--;
  stream->process->queued--;
  stream->state = STREAM_IDLE;
  publish(stream, done_ns);
  wake_waiters(stream);
}

/* The time at which sequence number seq of a stream was done, as far as it is still known. */
static uint64_t time_of(const struct stream *stream, uint64_t seq) {
  if (seq == 0 || seq + SIM_STREAM_TIMES <= stream->done_seq) return 0;
  return stream->process->completions->streams[stream->slot].times[seq % SIM_STREAM_TIMES];
}

/* WAIT: true when the head can be decided now, then *ret_ns is when. */
static bool wait_is_over(struct stream *stream, const struct entry *entry, uint64_t *ret_ns) {
  struct stream *target = stream->process->streams[entry->target];
  if (!target || entry->value <= target->done_seq) {
    *ret_ns = later(*ret_ns, target ? time_of(target, entry->value) : 0);
    return true;
  }
  stream->state = STREAM_WAITS;
  stream->waits_for = target;
  stream->next_waiter = target->waiters;
  target->waiters = stream;
  return false;
}

static bool hold_is_over(struct stream *stream, uint64_t *ret_ns) {
  if (stream->releases == 0) {
    stream->state = STREAM_HELD;
    return false;
  }
  stream->releases--;
  *ret_ns = later(*ret_ns, stream->release_ns);
  return true;
}

static void advance(struct stream *stream) {
  while (stream->count > 0 && (stream->state == STREAM_IDLE || stream->state == STREAM_HELD)) {
    struct entry *entry = &stream->queue[stream->first];
    uint64_t ready_ns = later(entry->submit_ns, stream->done_ns);
    stream->ready_ns = ready_ns;
    switch (entry->op) {
    case SIM_OP_KERNEL:
      if (!stream->context) break;
      stream->left_ns = entry->cost_ns + stream->fetch_ns;
      stream->fetch_ns = 0;
      stream->order = entry->value;
      engine_add_sm(stream);
      return;
    case SIM_OP_COPY:
      if (!stream->context) break;
      engine_add_copy(stream);
      return;
    case SIM_OP_USE:
      stream->fetch_ns += managed_use(stream->process, entry->value);
      break;
    case SIM_OP_RECORD:
      if (!stream->context || stream->copied) break;
      engine_add_event(stream);
      return;
    case SIM_OP_WAIT:
      if (!wait_is_over(stream, entry, &ready_ns)) return;
      break;
    case SIM_OP_HOLD:
      if (!hold_is_over(stream, &ready_ns)) return;
      break;
    default:
      break;
    }
    finish(stream, ready_ns);
  }
}

static void work_all(void) {
  while (work_list) {
    struct stream *stream = work_list;
    work_list = stream->next_work;
    stream->on_work_list = false;
    advance(stream);
  }
}

void queue_complete(struct stream *stream, uint64_t done_ns) {
  finish(stream, done_ns);
  work_add(stream);
  work_all();
}

static struct stream *stream_make(struct process *process, uint32_t slot) {
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) return NULL;
  stream->slot = slot;
  stream->process = process;
  process->streams[slot] = stream;
  return stream;
}

static int grow(struct stream *stream) {
  uint32_t capacity = stream->capacity ? stream->capacity * 2 : 32;
  if (capacity > 2 * SIM_STREAM_TIMES) return -EPROTO;
  struct entry *queue = malloc(capacity * sizeof *queue);
  if (!queue) return -ENOMEM;
  for (uint32_t i = 0; i < stream->count; i++) queue[i] = stream->queue[(stream->first + i) % stream->capacity];
  free(stream->queue);
  stream->queue = queue;
  stream->capacity = capacity;
  stream->first = 0;
  return 0;
}

static int enqueue(struct stream *stream, const struct sim_command *command, uint64_t order) {
  if (command->op == SIM_OP_WAIT && command->target >= SIM_STREAMS_MAX) return -EPROTO;
  if (command->op == SIM_OP_RECORD && command->target >= SIM_EVENTS_MAX) return -EPROTO;
  if (command->op == SIM_OP_COPY && command->engine >= SIM_COPY_ENGINES) return -EPROTO;
  if (stream->count == stream->capacity) {
    int rc = grow(stream);
    if (rc < 0) return rc;
  }
  bool is_work = command->op == SIM_OP_KERNEL || command->op == SIM_OP_COPY;
  if (is_work && stream->context) report_work(stream->context->device, command);
  struct entry *entry = &stream->queue[(stream->first + stream->count) % stream->capacity];
  *entry = (struct entry){.submit_ns = command->submit_ns,
                          .cost_ns = (command->cost_ns + server.config.speed - 1) / server.config.speed,
                          .value = command->op == SIM_OP_KERNEL ? order : command->value,
                          .group = command->group,
                          .target = command->target,
                          .op = command->op,
                          .engine = command->engine,
                          .pageable = command->pageable != 0,
                          .amount = command->amount,
                          .meet = command->op == SIM_OP_KERNEL ? command->meet : 0};
  if (entry->meet && !entry->group && stream->context) entry->target = stream->context->meetings++;
  stream->count++;
  stream->process->queued++;
  if (stream->count == 1) work_add(stream);
  return 0;
}

static int take(struct process *process, const struct sim_command *command) {
  if (command->stream >= SIM_STREAMS_MAX) return -EPROTO;
  struct stream *stream = process->streams[command->stream];
  if (!stream && !(stream = stream_make(process, command->stream))) return -ENOMEM;
  switch (command->op) {
  case SIM_OP_OPEN:
    if (stream->count > 0 || command->target >= SIM_CONTEXTS_MAX) return -EPROTO;
    stream->context = process->contexts[command->target];
    stream->priority = command->priority;
    stream->releases = 0;
    stream->fetch_ns = 0;
    return 0;
  case SIM_OP_RELEASE:
    stream->releases++;
    stream->release_ns = command->value < command->submit_ns ? command->value : command->submit_ns;
    work_add(stream);
    return 0;
  case SIM_OP_DISBAND:
    meet_disband(process, command->value);
    return 0;
  case SIM_OP_MARKER:
  case SIM_OP_KERNEL:
  case SIM_OP_COPY:
  case SIM_OP_RECORD:
  case SIM_OP_WAIT:
  case SIM_OP_HOLD:
  case SIM_OP_USE:
    return enqueue(stream, command, process->taken);
  default:
    return -EPROTO;
  }
}

static bool is_empty(const struct process *process) {
  return !process->ring || process->dead || __atomic_load_n(&process->ring->head, __ATOMIC_SEQ_CST) == process->taken;
}

bool queue_take(struct process *process) {
  if (is_empty(process)) return false;
  uint64_t head = VG_LOAD(&process->ring->head);
  int rc = head - process->taken > SIM_RING_COMMANDS ? -EPROTO : 0;
  uint64_t now_ns = vg_prim_now_ns();
  while (rc == 0 && process->taken < head) {
    struct sim_command command = process->ring->commands[process->taken % SIM_RING_COMMANDS];
    if (command.submit_ns > now_ns) command.submit_ns = now_ns; /* nothing is submitted in the future, or long ago */
    if (command.submit_ns + LATE_MAX_NS < now_ns) command.submit_ns = now_ns - LATE_MAX_NS;
    if (command.cost_ns > COST_MAX_NS) command.cost_ns = COST_MAX_NS;
    process->taken++;
    rc = take(process, &command);
    work_all();
  }
  VG_STORE(&process->completions->tail, process->taken);
  if (rc < 0) {
    fprintf(stderr, "vgpu-simd: process %d is disconnected: its command ring is invalid\n", (int)process->pid);
    server.process_died(process);
  }
  return true;
}

/* ---- which processes are looked at ---- */

void queue_wake(struct process *process) {
  if (process->awake || process->dead || !process->completions) return;
  process->awake = true;
  process->next_awake = server.awake;
  server.awake = process;
  process->last_command_ns = vg_prim_now_ns();
  if (process->completions->asleep & 1) __atomic_fetch_add(&process->completions->asleep, 1, __ATOMIC_SEQ_CST);
}

/* From now on its next command comes with a message. False: it has one already. */
static bool doze(struct process *process) {
  if (process->dead) return true;
  __atomic_fetch_add(&process->completions->asleep, 1, __ATOMIC_SEQ_CST);
  if (is_empty(process)) return true;
  __atomic_fetch_add(&process->completions->asleep, 1, __ATOMIC_SEQ_CST);
  return false;
}

bool queue_take_all(uint64_t now_ns) {
  bool any = false;
  for (struct process **link = &server.awake; *link;) {
    struct process *process = *link;
    bool took = queue_take(process);
    if (took) process->last_command_ns = now_ns;
    any |= took;
    bool idle = process->dead || (!process->queued && now_ns > process->last_command_ns + DOZE_NS);
    process->awake = !idle || !doze(process);
    if (process->awake)
      link = &process->next_awake;
    else
      *link = process->next_awake;
  }
  return any;
}

bool queue_doze_all(void) {
  while (server.awake && doze(server.awake)) {
    server.awake->awake = false;
    server.awake = server.awake->next_awake;
  }
  return !server.awake;
}

static void unwait(struct stream *stream) {
  if (!stream->waits_for) return;
  struct stream **link = &stream->waits_for->waiters;
  while (*link != stream) link = &(*link)->next_waiter;
  *link = stream->next_waiter;
  stream->waits_for = NULL;
}

void queue_drop(struct stream *stream) {
  engine_remove(stream);
  unwait(stream);
  stream->state = STREAM_IDLE;
  stream->process->queued -= stream->count;
  stream->count = 0;
}

void queue_fault_context(struct context *context) {
  struct process *process = context->process;
  for (uint32_t slot = 0; slot < SIM_STREAMS_MAX; slot++) {
    struct stream *stream = process->streams[slot];
    if (!stream || stream->context != context) continue;
    engine_remove(stream);
    stream->context = NULL;
    work_add(stream);
  }
  work_all();
}

void queue_close_context(struct context *context, uint64_t now_ns) {
  struct process *process = context->process;
  for (uint32_t slot = 0; slot < SIM_STREAMS_MAX; slot++) {
    struct stream *stream = process->streams[slot];
    if (!stream || stream->context != context) continue;
    engine_remove(stream);
    unwait(stream);
    stream->context = NULL;
    while (stream->count > 0) finish(stream, later(now_ns, stream->done_ns));
  }
  work_all();
}

void queue_bells(void) {
  for (struct process *process = server.awake; process; process = process->next_awake) {
    if (!process->decided || process->dead) continue;
    process->decided = false;
    __atomic_fetch_add(&process->completions->bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&process->ring->waiters, __ATOMIC_SEQ_CST))
      vg_prim_futex_wake(&process->completions->bell, 1 << 30);
  }
}
