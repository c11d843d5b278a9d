/*
 * core.h - what the core files of the simulated driver share among themselves; cuda/ sees sim.h only. link.c: the
 * connection; submit.c: the ring; point.c: waiting; agent.c: host work in stream order; device.c: who is seen.
 */
#ifndef VG_SIM_CORE_H
#define VG_SIM_CORE_H
#include "simgpu/constants.h"
#include "simgpu/sim.h"
#include "simgpu/wire.h"

#define SIM_STREAM_MAGIC 0x53545245u
#define SIM_CONTEXT_MAGIC 0x43545854u
#define SIM_EVENT_MAGIC 0x45564e54u
#define SIM_POOL_MAGIC 0x504f4f4cu

/* ---- link.c ---- */

struct sim_link {
  int socket;
  int kick; /* eventfd of the server */
  struct sim_ring *ring;
  const struct sim_completions *done;
  const struct sim_page *page;
  bool gone; /* the server has ended: nothing completes any more, waiters are let go */
};
extern struct sim_link sim_link;

CUresult sim_link_open(void); /* CUDA_ERROR_NO_DEVICE: no server there */
/* 0 or -errno: -ENOMEM as the server decides, -EPIPE when it is gone. */
int sim_link_request(enum sim_request_kind kind, int device, uint32_t context, uint64_t bytes);
/* The whole of it: send_fd goes along unless it is -1; ret_fd may be NULL, else the answer brings a descriptor. */
int sim_link_exchange(struct sim_request *request, int send_fd, struct sim_reply *ret_reply, int *ret_fd);
void sim_link_wake(void); /* the server is to look at the ring again */
void sim_link_kick(void);
void sim_link_check(void); /* sets gone when the server has ended */

/* ---- state.c ---- */

CUresult sim_started(void);           /* as sim_ready(), but never blocks */
void sim_start(const uint32_t *page); /* cuInit has succeeded: *page is 1 from now on, and 0 in a forked child */

/* ---- device.c ---- */

void sim_devices_find(void); /* applies CUDA_VISIBLE_DEVICES */
uint64_t sim_device_free_bytes(int index);

/* ---- submit.c ---- */

struct sim_stream *sim_stream_list_lock(struct sim_context *context);
void sim_stream_open(struct sim_stream *stream); /* binds its slot to its context at the server */
void sim_submit_release(uint32_t slot, uint64_t effective_ns);
/* Counts these. What was done before comes before whatever waits for the stream, by way of the server: ThreadSanitizer
 * cannot see that, and sees it by this. */
extern uint32_t sim_released;
/* A marker (returned) and a hold behind it: the agent does something when the marker is reached, then releases. */
void sim_submit_hold(struct sim_stream *stream, struct sim_point *ret_reached);
void sim_submit_record_local(struct sim_stream *stream, struct sim_event *event); /* not event->ipc */
void sim_submit_order(struct sim_stream *stream); /* what the legacy stream and blocking ones wait for of each other */
CUresult sim_submit_record_all(struct sim_context *context, struct sim_event *event); /* after all streams */
CUresult sim_submit_wait_all(struct sim_context *context, struct sim_point point);    /* before all further work */
void sim_spin_until(uint64_t time_ns);

/* ---- point.c ---- */

bool sim_point_time(struct sim_point point, uint64_t *ret_time_ns); /* false: not yet decided; 0: long ago */
bool sim_point_query(struct sim_point point); /* sim_point_done, and asks the server when it is undecided */
/* The agent's sleep: until something of this process is decided after bell was read, or deadline. */
uint32_t sim_bell_announce(void);
void sim_bell_sleep(uint32_t bell, uint64_t deadline_ns);
void sim_bell_retire(void);
CUresult sim_context_waited(const struct sim_context *context); /* sim_waited(), or the error that the context keeps */
CUresult sim_waited(void); /* CUDA_SUCCESS, or what a wait answers once the server is gone */

/* ---- stream.c, context.c ---- */

CUresult sim_stream_make(struct sim_context *context, unsigned flags, int priority, struct sim_stream **ret_stream);
CUresult sim_stream_find_created(CUstream handle, struct sim_stream **ret_stream); /* by cuStreamCreate */
void sim_stream_end(struct sim_stream *stream);                                    /* a created one */
void sim_stream_init(struct sim_stream *stream, struct sim_context *context, uint32_t slot);
uint32_t sim_slot_take(void); /* UINT32_MAX: none left */
void sim_slot_give(uint32_t slot);
void sim_streams_destroy(struct sim_context *context);
void sim_streams_orphan(struct sim_context *green); /* it is gone, and they are of no more use */
/* Green contexts: with the home retained, which destroying releases. */
CUresult sim_green_make(CUdevice ordinal, unsigned sm_count, unsigned sm_alignment, struct sim_context **ret_green);
CUresult sim_green_find(CUgreenCtx handle, struct sim_context **ret_green);
void sim_green_destroy(struct sim_context *green);
void sim_event_end(struct sim_event *event);
void sim_events_destroy(struct sim_context *context);
uint64_t sim_next_id(void);
extern struct sim_slab sim_contexts; /* enter.c */

void sim_log(const char *text); /* logs.c */

/* ---- managed.c, copy_batch.c: what all batches check ---- */

bool sim_runs_valid(const size_t *runs, size_t run_count, size_t count); /* runs begin at 0, and rise, below count */
bool sim_copy_attributes_valid(CUmemcpySrcAccessOrder order, unsigned flags);
CUresult sim_batch_stream(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream); /* not the legacy one */

/* ---- memory.c, pool.c ---- */

void sim_memory_destroy(struct sim_context *context);
void sim_limits_fill(struct sim_context *context);      /* context_info.c: the usual ones, a part of what it costs */
void sim_limits_end(const struct sim_context *context); /* gives back what larger ones took */
void sim_arrays_destroy(struct sim_context *context);   /* array.c */
struct sim_allocation *sim_memory_add(const struct sim_allocation *allocation);
/* Takes the allocation that begins there out of the list. */
bool sim_memory_remove(CUdeviceptr base, struct sim_allocation *ret_allocation);
/* Whether [address, address + bytes) lies within one allocation (or registered host memory). */
bool sim_memory_covers(CUdeviceptr address, uint64_t bytes, struct sim_allocation *ret_allocation);
bool sim_memory_of(const struct sim_context *context, struct sim_allocation *ret_allocation); /* any one of it */
void sim_memory_each(void (*use)(void *, const struct sim_allocation *), void *argument);
/* handle NULL: the current pool of the context's device. */
CUresult sim_pool_alloc(CUmemoryPool handle, struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
bool sim_pool_free(CUdeviceptr pointer);                          /* false: not from a pool */
void sim_pool_take_back(const struct sim_allocation *allocation); /* already out of the list */
void sim_pools_trim(struct sim_context *context); /* at synchronisations: down to the release threshold */
/* Addresses that begin at a multiple of alignment, a power of two; NULL: none left. */
char *sim_reserve_aligned(uint64_t bytes, uint64_t alignment, int protection);
char *sim_reserve_bytes(uint64_t bytes, int protection); /* addresses, 2 MiB aligned; NULL: none left */
#define SIM_READ_WRITE 3                                 /* PROT_READ | PROT_WRITE */
void *sim_map_bytes(uint64_t bytes); /* lazily backed, zeroed, 2 MiB aligned; NULL: no address space */
void sim_unmap_bytes(void *map, uint64_t bytes);

static inline uint64_t sim_round_up(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}
size_t sim_pitch(size_t width_bytes, size_t height, unsigned element_bytes); /* alloc.c; 0: not valid, or too much */
/* Device memory that is not charged: whole granules. NULL: no address space. */
char *sim_map_device(uint64_t bytes);
char *sim_map_device_low(uint64_t bytes);         /* below 4 GiB */
void sim_clear_device(void *map, uint64_t bytes); /* its pages go back to the host; it reads as zero */
void sim_unmap_device(void *map, uint64_t bytes);
CUresult sim_map_charged(int device, uint64_t bytes, char **ret_map); /* charged at the server, then mapped */
CUresult sim_map_charged_low(int device, uint64_t bytes, char **ret_map);

/* The end of what sim_map_charged() made; where others share it (share.c), what it costs goes to them. */
void sim_unmap_charged(int device, void *map, uint64_t bytes);

/* ---- arena.c: the file that device memory is made of ---- */

int sim_arena_fd(void);                  /* -1: there cannot be one */
bool sim_arena_is_own(int arena_fd);     /* or another process's */
uint64_t sim_arena_take(uint64_t bytes); /* an offset for physical memory */
bool sim_arena_place(int arena_fd, uint64_t offset, void *place, uint64_t bytes, int protection);

/* ---- share.c: what several processes hold. The server keeps it under a key, with who holds it, and charges the first
 * of these; whoever lets go last drops the contents ---- */

struct sim_share {
  uint64_t key;
  enum sim_share_kind kind;
  int device;   /* the server's index */
  bool charged; /* device memory that the maker has been charged for */
  uint64_t bytes;
  uint64_t offset; /* in the arena of its maker */
  uint64_t tag;    /* of its kind */
  int fd;          /* that arena */
};
CUresult sim_share_make(struct sim_share *share); /* of this process's arena; its key is filled in */
CUresult sim_share_open(uint64_t key, enum sim_share_kind kind, struct sim_share *ret_share); /* the caller closes fd */
void sim_share_close(const struct sim_share *share);  /* one hold less; its maker or opener; does not close fd */
CUresult sim_share_ticket(uint64_t key, int *ret_fd); /* a descriptor that holds it, for other processes */
bool sim_share_ticket_key(int ticket, uint64_t *ret_key);
/* The memory of [base, base + bytes), which sim_map_charged() made, shared from now on: the same one each time. */
CUresult sim_share_memory(int device, void *base, uint64_t bytes, uint64_t *ret_key);
bool sim_share_leave(void *base, uint64_t bytes); /* the maker frees such memory; false: it is not shared */
/* Where a pointer may be mapped from: the unit of sharing around it. */
void sim_share_unit(const struct sim_allocation *allocation, uint64_t *ret_base, uint64_t *ret_bytes);

/* ---- event_page.c: events that other processes may record, too ---- */

CUresult sim_event_make(struct sim_context *context, unsigned flags, struct sim_ipc_event *ipc, CUevent *ret_handle);
CUresult sim_ipc_event_begin(struct sim_event *event); /* makes event->ipc */
void sim_ipc_event_end(struct sim_event *event);
uint64_t sim_ipc_event_key(const struct sim_event *event);
CUresult sim_ipc_event_open(uint64_t key, struct sim_ipc_event **ret_ipc); /* another process's */
void sim_ipc_event_close(struct sim_ipc_event *ipc);                       /* of which no event was made */
CUresult sim_ipc_event_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_ipc_event_wait(struct sim_stream *stream, const struct sim_event *event);
bool sim_ipc_event_done(const struct sim_event *event);
void sim_ipc_event_synchronize(const struct sim_event *event);

/* ---- pool_share.c, and what it needs of pool.c ---- */

struct sim_pool_sharing {
  struct sim_share share; /* key 0: not shared; of no memory, that goes pointer by pointer */
  bool exportable;
  bool imported; /* another process's */
};
struct sim_pool_sharing *sim_pool_sharing(CUmemoryPool handle, int *ret_device); /* NULL: not a live pool */
CUmemoryPool sim_pool_import(const struct sim_share *share);                     /* NULL: no room for one more */
void sim_pool_unshare(struct sim_pool_sharing *sharing);
void sim_pool_import_end(CUdeviceptr pointer); /* an imported pointer is freed; already out of the list */

void sim_ipc_destroy(struct sim_context *context); /* ipc.c: closes what the context has open */

/* ---- small.c: owner is the context or the pool that the granules belong to ---- */

CUresult sim_small_alloc(const void *owner, int device, uint64_t bytes, CUdeviceptr *ret_pointer);
void sim_small_free(CUdeviceptr pointer, uint64_t bytes, bool give_back); /* the granule, when it is empty now */
uint64_t sim_small_bytes(const void *owner);                              /* of all its granules */
void sim_small_trim(const void *owner, uint64_t most_bytes); /* gives empty granules back, so many bytes at most */

/* ---- freed.c, strict_memory.c ---- */

void sim_strict_freed(const struct sim_allocation *allocation); /* it was taken out of the list */
bool sim_strict_was_freed(uint64_t address);
void sim_strict_free_refused(CUdeviceptr pointer); /* reports what is wrong with it */

/* ---- agent.c ---- */

CUresult sim_agent_write(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes);
CUresult sim_agent_wait(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes, unsigned flags);

#endif
