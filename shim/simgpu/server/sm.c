/*
 * sm.c - what a decision about a device's SMs does: the running context has used them up to a time, or the kernel that
 * runs is done. Called by engine.c and meet.c.
 */
#include "simgpu/server/server.h"

uint64_t engine_decisions;

void engine_advance(struct device *device, uint64_t until_ns) {
  report_busy(device, device->running, device->sm_ns, until_ns);
  device->sm_ns = until_ns;
  engine_decisions++;
}

void engine_complete(struct stream *stream) {
  struct context *context = stream->context;
  context->preempted = NULL;
  engine_decisions++;
  engine_leave_sm(stream);
  queue_complete(stream, context->device->sm_ns);
}
