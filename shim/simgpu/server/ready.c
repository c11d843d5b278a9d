/*
 * ready.c - which heads of streams are with an engine: lists of those that need a device's SMs, by context, and of
 * those that wait for a copy engine. Called by queue.c, which hands heads over, and by engine.c, which decides them.
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

void engine_leave_sm(struct stream *stream) {
  list_remove(&stream->context->ready, stream);
  if (!stream->context->ready.first) context_not_ready(stream->context);
}

void engine_add_sm(struct stream *stream) {
  stream->state = STREAM_ON_SM;
  if (stream->queue[stream->first].meet) meet_join(stream);
  if (!stream->context->ready.first) context_ready(stream->context);
  list_add(&stream->context->ready, stream);
}

void engine_leave_copy(struct stream *stream) {
  struct device *device = stream->context->device;
  list_remove(&device->engines[stream->queue[stream->first].engine].pending, stream);
}

void engine_add_copy(struct stream *stream, uint32_t engine) {
  stream->state = STREAM_ON_COPY;
  list_add(&stream->context->device->engines[engine].pending, stream);
}

void engine_remove(struct stream *stream) {
  if (stream->state == STREAM_ON_SM) {
    engine_leave_sm(stream);
    if (stream->context->preempted == stream) stream->context->preempted = NULL;
    if (stream->meeting) meet_leave(stream);
  } else if (stream->state == STREAM_ON_COPY) {
    engine_leave_copy(stream);
  }
  if (stream->state == STREAM_ON_SM || stream->state == STREAM_ON_COPY) stream->state = STREAM_IDLE;
}

void engine_remove_context(struct context *context) {
  struct device *device = context->device;
  struct context **link = &device->contexts;
  while (*link && *link != context) link = &(*link)->next;
  if (*link) *link = context->next;
  if (device->running == context) device->running = NULL;
  if (device->last == context) device->last = NULL;
}
