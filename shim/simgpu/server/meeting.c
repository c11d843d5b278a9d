/*
 * meeting.c - the list of meetings: which kernels take part in which. Called by ready.c when a kernel enters the SMs'
 * queue or leaves it.
 */
#include "simgpu/server/meeting.h"
#include <stdlib.h>

struct meeting *meetings;

/* Whose meetings a kernel takes part in. */
static uint64_t group_of(const struct stream *stream) {
  const struct entry *head = &stream->queue[stream->first];
  return head->group ? head->group : (uint64_t)stream->process->group;
}

static bool has_left(const struct process *process, uint64_t group) {
  uint32_t kept = process->disbanded_count < SIM_DISBANDED_MAX ? process->disbanded_count : SIM_DISBANDED_MAX;
  for (uint32_t i = 0; i < kept; i++)
    if (process->disbanded[i] == group) return true;
  return false;
}

static bool may_join(const struct meeting *meeting, const struct stream *stream) {
  const struct entry *head = &stream->queue[stream->first];
  if (meeting->group != group_of(stream) || meeting->is_of_a_name != (head->group != 0)) return false;
  if (meeting->number != head->target || meeting->size != head->meet) return false;
  for (uint32_t i = 0; i < meeting->count; i++)
    if (meeting->members[i]->context->device == stream->context->device) return false;
  return meeting->count < meeting->size;
}

void meet_join(struct stream *stream) {
  const struct entry *head = &stream->queue[stream->first];
  struct meeting *meeting = meetings;
  if (head->group && has_left(stream->process, head->group)) return; /* it runs by itself */
  while (meeting && !may_join(meeting, stream)) meeting = meeting->next;
  if (!meeting) {
    meeting = calloc(1, sizeof *meeting);
    if (!meeting) return; /* it runs by itself */
    *meeting = (struct meeting){.next = meetings,
                                .group = group_of(stream),
                                .is_of_a_name = head->group != 0,
                                .number = head->target,
                                .size = head->meet};
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

bool meet_is_awaited(const struct stream *stream) {
  return stream->meeting && stream->meeting->count < stream->meeting->size;
}

void meet_disband(struct process *process, uint64_t group) {
  if (group == 0 || has_left(process, group)) return;
  process->disbanded[process->disbanded_count++ % SIM_DISBANDED_MAX] = group;
  for (struct meeting *meeting = meetings, *next; meeting; meeting = next) {
    next = meeting->next; /* the last one to leave frees it */
    if (!meeting->is_of_a_name || meeting->group != group) continue;
    for (uint32_t i = meeting->count; i-- > 0;)
      if (meeting->members[i]->process == process) meet_leave(meeting->members[i]);
  }
}
