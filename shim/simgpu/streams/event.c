/*
 * event.c - events: made, found, ended. A record of one is a point in a stream and a place where the server writes its
 * simulated time.
 */
#include "simgpu/base/slab.h"
#include "simgpu/contexts/context.h"
#include "simgpu/streams/event_page.h"
#include "simgpu/streams/stream.h"

static struct sim_slab events = SIM_SLAB(sizeof(struct sim_event), SIM_EVENTS_MAX);

struct sim_event *sim_event_find(CUevent handle) {
  return sim_slab_find(&events, handle, SIM_EVENT_MAGIC);
}

CUresult sim_event_make(struct sim_context *context, unsigned flags, struct sim_ipc_event *ipc, CUevent *ret_handle) {
  struct sim_event *event = sim_slab_get(&events, SIM_EVENT_MAGIC);
  if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
  event->slot = sim_slab_index(&events, event);
  event->flags = flags;
  event->context = context;
  event->ipc = ipc;
  CUresult result = flags & CU_EVENT_INTERPROCESS && !ipc ? sim_ipc_event_begin(event) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    *ret_handle = (CUevent)event;
  else
    sim_slab_put(&events, event);
  return result;
}

void sim_event_end(struct sim_event *event) {
  sim_ipc_event_end(event);
  sim_slab_put(&events, event);
}

void sim_events_destroy(struct sim_context *context) {
  for (uint32_t i = 0; i < events.used; i++) {
    struct sim_event *event = (struct sim_event *)(events.base + (size_t)i * events.object_bytes);
    if (event->object.magic == SIM_EVENT_MAGIC && event->context == context) sim_event_end(event);
  }
}
