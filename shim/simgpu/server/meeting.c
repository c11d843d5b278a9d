/*
 * meeting.c - the list of meetings: which kernels take part in which. Called by ready.c when a kernel enters the SMs'
 * queue or leaves it.
 */
#include "simgpu/server/meeting.h"
#include <stdlib.h>

struct meeting *meetings;

static bool may_join(const struct meeting *meeting, const struct stream *stream) {
  const struct entry *head = &stream->queue[stream->first];
  if (meeting->group != stream->process->group || meeting->number != head->target || meeting->size != head->meet)
    return false;
  for (uint32_t i = 0; i < meeting->count; i++)
    if (meeting->members[i]->context->device == stream->context->device) return false;
  return meeting->count < meeting->size;
}

void meet_join(struct stream *stream) {
  const struct entry *head = &stream->queue[stream->first];
  struct meeting *meeting = meetings;
  while (meeting && !may_join(meeting, stream)) meeting = meeting->next;
  if (!meeting) {
    meeting = calloc(1, sizeof *meeting);
    if (!meeting) return; /* it runs by itself */
    *meeting =
        (struct meeting){.next = meetings, .group = stream->process->group, .number = head->target, .size = head->meet};
    meetings = meeting;
  }
  meeting->members[meeting->count++] = stream;
  if (head->cost_ns > meeting->left_ns) meeting->left_ns = head->cost_ns;
  stream->meeting = meeting;
}

void meet_leave(struct stream *stream) {
  struct meeting *meeting = stream->meeting;
  struct device *device = stream->context->device;
  if (device->meets == stream) device->meets = NULL;
  stream->meeting = NULL;
  uint32_t at = 0;
  while (meeting->members[at] != stream) at++;
  meeting->members[at] = meeting->members[--meeting->count];
  if (meeting->count > 0) return;
  struct meeting **link = &meetings;
  while (*link != meeting) link = &(*link)->next;
  *link = meeting->next;
  free(meeting);
}
