/*
 * ready.c - which heads of streams are with an engine: lists of those that need a device's SMs and of events, by
 * context, and of those that wait for the engine of copies on the device; copies between host and device are with a
 * link. Called by queue.c, which hands heads over, and by engine.c, which
 * decides them.
 */
#include "simgpu/server/server.h"

static void list_add(struct stream_list *list, struct stream *stream) {
  stream->previous = NULL;
  stream->next = list->first;
  if (list->first) list->first->previous = stream;
  list->first = stream;
}

static void list_remove(struct stream_list *list, struct stream *stream) {
  if (stream->previous) stream->previous->next = stream->next;
  if (stream->next) stream->next->previous = stream->previous;
  if (list->first == stream) list->first = stream->next;
}

static void context_ready(struct context *context) {
  struct context **link = &context->device->ready;
  while (*link && (*link)->order > context->order) link = &(*link)->next_ready;
  context->next_ready = *link;
  *link = context;
}

static void context_not_ready(struct context *context) {
  struct context **link = &context->device->ready;
  while (*link != context) link = &(*link)->next_ready;
  *link = context->next_ready;
}

static bool is_ready(const struct context *context) {
  return context->ready.first || context->events.first;
}

static void add_to(struct context *context, struct stream_list *list, struct stream *stream) {
  if (!is_ready(context)) context_ready(context);
  list_add(list, stream);
}

static void remove_from(struct context *context, struct stream_list *list, struct stream *stream) {
  list_remove(list, stream);
  if (!is_ready(context)) context_not_ready(context);
}

void engine_leave_sm(struct stream *stream) {
  remove_from(stream->context, &stream->context->ready, stream);
}

void engine_add_sm(struct stream *stream) {
  stream->state = STREAM_ON_SM;
  if (stream->queue[stream->first].meet) meet_join(stream);
  add_to(stream->context, &stream->context->ready, stream);
}

void engine_add_event(struct stream *stream) {
  stream->state = STREAM_AT_EVENT;
  add_to(stream->context, &stream->context->events, stream);
}

void engine_leave_event(struct stream *stream) {
  remove_from(stream->context, &stream->context->events, stream);
}

void engine_leave_copy(struct stream *stream) {
  list_remove(&stream->context->device->engine.pending, stream);
}

static void cross_link(struct stream *stream, const struct entry *entry) {
  double most_part = entry->pageable ? SIM_PAGEABLE_PART : 1;
  stream->state = STREAM_ON_LINK;
  stream->transfer = (struct transfer){.user = &stream->context->links[entry->engine],
                                       .process = stream->process,
                                       .device = stream->context->device,
                                       .stream = stream,
                                       .bytes = entry->amount,
                                       .ready_ns = stream->ready_ns,
                                       .most_part = most_part,
                                       .left_ns = (double)entry->cost_ns * most_part};
  link_add(&stream->context->device->links[entry->engine], &stream->transfer);
}

void engine_add_copy(struct stream *stream) {
  const struct entry *entry = &stream->queue[stream->first];
  if (entry->engine != SIM_ENGINE_ON_DEVICE) {
    cross_link(stream, entry);
    return;
  }
  stream->state = STREAM_ON_COPY;
  list_add(&stream->context->device->engine.pending, stream);
}

void engine_remove(struct stream *stream) {
  if (stream->state == STREAM_ON_SM) {
    engine_leave_sm(stream);
    if (stream->context->preempted == stream) stream->context->preempted = NULL;
    if (stream->meeting) meet_leave(stream);
  } else if (stream->state == STREAM_AT_EVENT) {
    engine_leave_event(stream);
  } else if (stream->state == STREAM_ON_COPY) {
    engine_leave_copy(stream);
  } else if (stream->state == STREAM_ON_LINK) {
    link_remove(&stream->transfer, vg_prim_now_ns());
  } else {
    return;
  }
  stream->state = STREAM_IDLE;
}

void engine_remove_context(struct context *context) {
  struct device *device = context->device;
  struct context **link = &device->contexts;
  while (*link && *link != context) link = &(*link)->next;
  if (*link) *link = context->next;
  if (device->running == context) device->running = NULL;
  if (device->last == context) device->last = NULL;
}
