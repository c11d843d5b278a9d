/*
 * record.c - recording an event in a stream and waiting for one there, whether it is this process's alone or one that
 * others may record, too (event_page.c). Called by stream and event entry points and by graphs.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/event_page.h"
#include "simgpu/streams/stream.h"

CUresult sim_submit_record(struct sim_stream *stream, struct sim_event *event) {
  sim_submit_record_local(stream, event);
  return event->ipc ? sim_ipc_event_record(stream, event) : sim_waited();
}

CUresult sim_submit_wait_event(struct sim_stream *stream, const struct sim_event *event) {
  if (event->ipc) return sim_ipc_event_wait(stream, event);
  return event->generation == 0 ? CUDA_SUCCESS : sim_submit_wait(stream, event->point);
}
