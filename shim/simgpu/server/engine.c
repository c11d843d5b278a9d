/*
 * engine.c - the devices' SMs and copy engines. Called by main.c once per round. Time is decided retroactively: a round
 * that comes late continues each engine where its decided time ended, so that the server's own wake-ups never make a
 * device idle. Never decided: which context gets the SMs at a time later than now + LOOK_AHEAD_NS. Once a context has
 * its slice, its queued kernels are decided up to the end of the slice, because nothing can come between; but for
 * kernels that meet (meet.c): these stop their device's clock until all devices concerned have reached them.
 *
 * Events are written by the work queue of their context, as kernels are begun: in its slices, so that a pair of events
 * does not measure how long the kernel between them waited for another context. They take no time, and a context that
 * has nothing but events needs no slice for them.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <stddef.h>

static bool comes_first(const struct stream *one, const struct stream *other) {
  if (meet_is_awaited(one) != meet_is_awaited(other)) return meet_is_awaited(other);
  return one->priority < other->priority || (one->priority == other->priority && one->order < other->order);
}

/* The stream whose kernel runs next in a context: the preempted one, else by priority and order of submission; those
 * that wait for kernels of other devices last. */
static struct stream *pick_stream(const struct context *context, uint64_t at_ns) {
  if (context->preempted && !meet_is_awaited(context->preempted)) return context->preempted;
  struct stream *best = context->preempted;
  for (struct stream *stream = context->ready.first; stream; stream = stream->next) {
    if (stream->ready_ns > at_ns) continue;
    if (!best || comes_first(stream, best)) best = stream;
  }
  return best;
}

static struct stream *pick_event(const struct context *context, uint64_t at_ns) {
  struct stream *stream = context->events.first;
  while (stream && stream->ready_ns > at_ns) stream = stream->next;
  return stream;
}

/* Round robin: the first context after the last one that has something ready at at_ns; the last one comes last. */
static struct context *pick_context(const struct device *device, uint64_t at_ns) {
  struct context *first = NULL;
  for (struct context *context = device->ready; context; context = context->next_ready) {
    if (!pick_stream(context, at_ns) && !pick_event(context, at_ns)) continue;
    if (!device->last || context->order < device->last->order) return context;
    if (!first) first = context;
  }
  return first;
}

static uint64_t earliest_of(const struct stream_list *list, uint64_t earliest_ns) {
  for (const struct stream *stream = list->first; stream; stream = stream->next)
    if (stream->ready_ns < earliest_ns) earliest_ns = stream->ready_ns;
  return earliest_ns;
}

/* When the first kernel or event of all contexts is ready, or NEVER. */
static uint64_t earliest_ready(const struct device *device) {
  uint64_t earliest_ns = NEVER;
  for (const struct context *context = device->ready; context; context = context->next_ready)
    earliest_ns = earliest_of(&context->events, earliest_of(&context->ready, earliest_ns));
  return earliest_ns;
}

/* Writes those events of a context that are ready at until_ns, none before from_ns. */
static void write_events(struct context *context, uint64_t from_ns, uint64_t until_ns) {
  for (struct stream *stream; (stream = pick_event(context, until_ns));) {
    engine_decisions++;
    engine_leave_event(stream);
    queue_complete(stream, stream->ready_ns > from_ns ? stream->ready_ns : from_ns);
  }
}

static bool is_followed_by_kernel(const struct stream *stream) {
  uint32_t i = 0;
  while (i < stream->count && stream->queue[(stream->first + i) % stream->capacity].op == SIM_OP_RECORD) i++;
  return i < stream->count && stream->queue[(stream->first + i) % stream->capacity].op == SIM_OP_KERNEL;
}

/* Whether a context has a kernel ready, or one right behind an event that is. */
static bool needs_slice(const struct context *context, uint64_t at_ns) {
  if (pick_stream(context, at_ns)) return true;
  for (const struct stream *stream = context->events.first; stream; stream = stream->next)
    if (stream->ready_ns <= at_ns && is_followed_by_kernel(stream)) return true;
  return false;
}

static void run_portion(struct device *device, struct stream *stream) {
  uint64_t room_ns = device->slice_end_ns - device->sm_ns;
  uint64_t run_ns = stream->left_ns < room_ns ? stream->left_ns : room_ns;
  stream->left_ns -= run_ns;
  stream->context->preempted = stream;
  engine_advance(device, device->sm_ns + run_ns);
  if (stream->left_ns == 0) engine_complete(stream);
}

/* Timers of two devices are never alike: else contexts whose slices meet on both would meet for ever, or never. */
static uint64_t slice_of(const struct device *device) {
  uint64_t slice_ns = server.config.slice_ns;
  if (device->time_slice == SIM_TIME_SLICE_SHORT) slice_ns /= SIM_SLICE_SHORT_PART;
  if (device->time_slice == SIM_TIME_SLICE_MEDIUM) slice_ns *= SIM_SLICE_MEDIUM_TIMES;
  if (device->time_slice == SIM_TIME_SLICE_LONG) slice_ns *= SIM_SLICE_LONG_TIMES;
  return slice_ns + slice_ns / SIM_SLICE_DRIFT * (uint64_t)(device - server.devices);
}

static void run_sm(struct device *device, uint64_t now_ns) {
  device->next_decision_ns = NEVER;
  device->meets = NULL;
  for (;;) {
    struct context *context = device->running;
    if (context)
      write_events(context, device->slice_begin_ns,
                   device->sm_ns < device->slice_end_ns ? device->sm_ns : device->slice_end_ns);
    struct stream *stream =
        context && device->sm_ns < device->slice_end_ns ? pick_stream(context, device->sm_ns) : NULL;
    if (stream && stream->meeting) { /* how far it gets depends on other devices, too */
      context->preempted = stream;
      device->meets = stream;
      device->next_decision_ns = device->slice_end_ns;
      return;
    }
    if (stream) {
      run_portion(device, stream);
      continue;
    }
    uint64_t at_ns = device->sm_ns, earliest_ns = earliest_ready(device);
    if (earliest_ns == NEVER) {
      if (at_ns > now_ns) device->next_decision_ns = at_ns; /* what comes meanwhile is to be decided by then */
      return;
    }
    if (earliest_ns > at_ns) at_ns = earliest_ns;
    if (at_ns > now_ns + LOOK_AHEAD_NS) {
      device->next_decision_ns = at_ns;
      return;
    }
    context = pick_context(device, at_ns);
    if (!needs_slice(context, at_ns)) {
      write_events(context, at_ns, at_ns);
      continue;
    }
    device->sm_ns = at_ns + (device->last && device->last != context ? server.config.switch_ns : 0);
    device->slice_begin_ns = device->sm_ns;
    device->slice_end_ns = device->sm_ns + slice_of(device);
    device->running = context;
    device->last = context;
  }
}

static struct stream *pick_copy(const struct copy_engine *engine) {
  struct stream *best = NULL;
  for (struct stream *stream = engine->pending.first; stream; stream = stream->next)
    if (!best || stream->ready_ns < best->ready_ns) best = stream;
  return best;
}

static void run_copies(struct device *device, uint64_t now_ns) {
  struct copy_engine *engine = &device->engine;
  struct stream *stream;
  while ((stream = pick_copy(engine))) {
    uint64_t begin_ns = stream->ready_ns > engine->free_ns ? stream->ready_ns : engine->free_ns;
    if (begin_ns > now_ns + LOOK_AHEAD_NS) {
      if (begin_ns < device->next_decision_ns) device->next_decision_ns = begin_ns;
      return;
    }
    uint64_t cost_ns = stream->queue[stream->first].cost_ns;
    engine->free_ns = begin_ns + cost_ns;
    device->copy_busy_ns += cost_ns;
    device->changed = true;
    engine_decisions++;
    engine_leave_copy(stream);
    queue_complete(stream, engine->free_ns);
  }
}

static void run_link(struct link *link, uint64_t now_ns) {
  struct transfer *transfer;
  uint64_t end_ns;
  while ((transfer = link_run(link, now_ns, &end_ns))) {
    engine_decisions++;
    if (transfer->stream) queue_complete(transfer->stream, end_ns);
  }
}

static void run_device(struct device *device, uint64_t now_ns) {
  uint64_t before;
  do {
    before = engine_decisions;
    run_sm(device, now_ns);
    run_copies(device, now_ns);
    for (uint32_t i = 0; i < SIM_LINKS; i++) run_link(&device->own_links[i], now_ns);
  } while (engine_decisions != before);
}

void engine_round(uint64_t now_ns) {
  if (queue_take_all(now_ns)) server.last_command_ns = now_ns;
  uint64_t before;
  do { /* work of one device can wait for another's */
    before = engine_decisions;
    for (uint32_t i = 0; i < server.config.device_count; i++) run_device(&server.devices[i], now_ns);
    meet_run();
    if (engine_decisions == before) meet_spin(now_ns);
  } while (engine_decisions != before);
  queue_bells();
}

uint64_t engine_next_ns(void) {
  uint64_t next_ns = NEVER;
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    const struct device *device = &server.devices[i];
    if (device->next_decision_ns < next_ns) next_ns = device->next_decision_ns;
    for (uint32_t j = 0; j < SIM_LINKS; j++)
      if (device->own_links[j].next_decision_ns < next_ns) next_ns = device->own_links[j].next_decision_ns;
  }
  return next_ns;
}
