/*
 * stream.h - streams and events (stream.c, event.c), work in them (submit.c, record.c), waiting for it (point.c), and
 * what a thread of this process does in their order (agent.c).
 */
#ifndef VG_SIM_STREAM_H
#define VG_SIM_STREAM_H
#include "simgpu/process/current.h"

#define SIM_STREAM_MAGIC 0x53545245u
#define SIM_EVENT_MAGIC 0x45564e54u

struct sim_event {
  struct sim_object object;
  uint32_t slot; /* its place in the shared event area */
  unsigned flags;
  struct sim_context *context;
  uint32_t generation;       /* how often it was recorded; 0 = never */
  struct sim_point point;    /* the last record */
  void *capture;             /* a struct sim_mark once it was recorded into a capture (capture_rules.h); else NULL */
  struct sim_ipc_event *ipc; /* other processes may record it, too (event_page.c); else NULL */
};

/* ---- stream.c, event.c ---- */

/* Stream handle of an entry point; per_thread: its name ends in _ptsz. CUDA_ERROR_INVALID_HANDLE otherwise. */
CUresult sim_stream_find(CUstream handle, bool per_thread, struct sim_stream **ret_stream);
CUresult sim_stream_find_created(CUstream handle, struct sim_stream **ret_stream); /* by cuStreamCreate */
CUresult sim_stream_make(struct sim_context *context, unsigned flags, int priority, struct sim_stream **ret_stream);
void sim_stream_end(struct sim_stream *stream); /* a created one */
void sim_stream_init(struct sim_stream *stream, struct sim_context *context, uint32_t slot);
uint32_t sim_slot_take(void); /* UINT32_MAX: none left */
void sim_slot_give(uint32_t slot);
void sim_streams_destroy(struct sim_context *context);
void sim_streams_orphan(struct sim_context *green); /* it is gone, and they are of no more use */

struct sim_event *sim_event_find(CUevent handle); /* NULL: not a live event */
CUresult sim_event_make(struct sim_context *context, unsigned flags, struct sim_ipc_event *ipc, CUevent *ret_handle);
void sim_event_end(struct sim_event *event);
void sim_events_destroy(struct sim_context *context);

/* ---- submit.c, record.c: all return CUDA_SUCCESS or the code that the entry point answers ---- */

enum sim_copy { SIM_COPY_TO_DEVICE, SIM_COPY_FROM_DEVICE, SIM_COPY_ON_DEVICE, SIM_COPY_ON_HOST, SIM_COPY_PEER };

struct sim_copy_way {
  enum sim_copy kind;
  bool pageable; /* its host memory is not pinned */
};

/* Which kernels run only together (server/meet.c). */
struct sim_meeting {
  uint16_t devices; /* 0: the kernel runs by itself */
  uint32_t number;  /* in the group */
  uint64_t group;   /* 0: that of the process, which counts by itself */
};

/* What a kernel costs and has. */
struct sim_work {
  uint64_t cost_ns; /* of all SMs */
  uint64_t flops;   /* operations, which are only counted; 0: not known */
};

/* A kernel that needs work.cost_ns of all SMs, while all kernels of its meeting run. Spends the launch cost and blocks
 * while 1024 launches are not completed. */
CUresult sim_submit_kernel(struct sim_stream *stream, struct sim_work work, struct sim_meeting meeting);
/* One launch of a whole graph costs the host one launch: sim_submit_launch_begin(), then the nodes with cost but
 * without host cost. */
CUresult sim_submit_launch_begin(struct sim_stream *stream);
CUresult sim_submit_node(struct sim_stream *stream, struct sim_work work, struct sim_meeting meeting);
/* Kernels of this process wait for no others in meetings of that group, from now on. */
void sim_submit_disband(uint64_t group);
/* Time of a link or a copy engine for so many bytes; the bytes themselves are moved by the caller (sim_copy_bytes). */
CUresult sim_submit_copy(struct sim_stream *stream, struct sim_copy_way way, uint64_t bytes);
void sim_submit_use(struct sim_stream *stream, CUdeviceptr base); /* its next kernel uses this managed memory */
CUresult sim_submit_memset(struct sim_stream *stream, uint64_t bytes);
CUresult sim_submit_marker(struct sim_stream *stream, struct sim_point *ret_point); /* takes no time */
CUresult sim_submit_wait(struct sim_stream *stream, struct sim_point point);        /* until point is complete */
void sim_submit_leave(struct sim_stream *stream); /* it is destroyed; its context still waits for its work */
CUresult sim_submit_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_submit_wait_event(struct sim_stream *stream, const struct sim_event *event); /* until its last record */
void sim_submit_record_local(struct sim_stream *stream, struct sim_event *event);         /* not event->ipc */
void sim_submit_order(struct sim_stream *stream); /* what the legacy stream and blocking ones wait for of each other */
CUresult sim_submit_record_all(struct sim_context *context, struct sim_event *event); /* after all streams */
CUresult sim_submit_wait_all(struct sim_context *context, struct sim_point point);    /* before all further work */

struct sim_point sim_stream_point(const struct sim_stream *stream); /* the last that was submitted */
void sim_stream_open(struct sim_stream *stream);                    /* binds its slot to its context at the server */
void sim_stream_wait(struct sim_stream *stream);                    /* with the legacy stream's implicit order */
void sim_context_wait(struct sim_context *context);

void sim_submit_release(uint32_t slot, uint64_t effective_ns);
/* Counts these. What was done before comes before whatever waits for the stream, by way of the server: ThreadSanitizer
 * cannot see that, and sees it by this. */
extern uint32_t sim_released;
/* A marker (returned) and a hold behind it: the agent does something when the marker is reached, then releases. */
void sim_submit_hold(struct sim_stream *stream, struct sim_point *ret_reached);

/* ---- point.c ---- */

bool sim_point_done(struct sim_point point);                        /* its simulated completion is not in the future */
void sim_point_wait(struct sim_point point);                        /* sleeps until then */
bool sim_point_time(struct sim_point point, uint64_t *ret_time_ns); /* false: not yet decided; 0: long ago */
bool sim_point_query(struct sim_point point); /* sim_point_done, and asks the server when it is undecided */
/* What a program's synchronisation does besides: pools give back what they keep too much of, once there are some. */
void sim_wait_hook_set(void (*hook)(struct sim_context *context));
void sim_wait_hook_run(struct sim_context *context);
/* The agent's sleep: until something of this process is decided after bell was read, or deadline. */
uint32_t sim_bell_announce(void);
void sim_bell_sleep(uint32_t bell, uint64_t deadline_ns);
void sim_bell_retire(void);

/* ---- agent.c ---- */

/* callback(argument) runs in a thread of this process at its simulated time; the stream continues when it has returned.
 * even_then: also when the context has faulted. */
CUresult sim_submit_callback(struct sim_stream *stream, void (*callback)(void *), void *argument, bool even_then);
CUresult sim_agent_write(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes);
CUresult sim_agent_wait(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes, unsigned flags);
/* sim_context_fault() once the stream has come so far. */
CUresult sim_stream_fault(struct sim_stream *stream, CUresult code);

#endif
