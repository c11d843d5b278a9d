/*
 * event_page.h - events that other processes may record, too.
 */
#ifndef VG_SIM_EVENT_PAGE_H
#define VG_SIM_EVENT_PAGE_H
#include "simgpu/streams/stream.h"

CUresult sim_ipc_event_begin(struct sim_event *event); /* makes event->ipc */
void sim_ipc_event_end(struct sim_event *event);
uint64_t sim_ipc_event_key(const struct sim_event *event);
CUresult sim_ipc_event_open(uint64_t key, struct sim_ipc_event **ret_ipc); /* another process's */
void sim_ipc_event_close(struct sim_ipc_event *ipc);                       /* of which no event was made */
CUresult sim_ipc_event_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_ipc_event_wait(struct sim_stream *stream, const struct sim_event *event);
bool sim_ipc_event_done(const struct sim_event *event);
void sim_ipc_event_synchronize(const struct sim_event *event);

#endif
