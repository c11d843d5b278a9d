/*
 * sim.h - the inside of the simulated driver's client library: what its entry points build upon (the core lies in
 * shim/simgpu, the rest in shim/simgpu/cuda). One process = one connection to vgpu-simd; work is written into a ring
 * that only this process writes, completion times come back in memory that only the server writes.
 *
 * Must hold: entry points check sim_enter() first; nothing is started before cuInit; effects of copies and kernels on
 * memory are applied at submission, in program order, only time is simulated; no busy waiting but the launch cost.
 */
#ifndef VG_SIM_H
#define VG_SIM_H
#include "gen/abi/simgpu_bodies.h" /* before the names of entry points: cuX is the body of cuX in the files that include this */

#include "base/prim.h"
#include "gen/abi/cuda_abi.h"
#include "simgpu/base/slab.h"
#include "simgpu/base/strict.h"
#include <stddef.h>
#include <sys/types.h>

#define SIM_PUBLIC __attribute__((visibility("default")))

/* A point in a stream: everything submitted to it up to and including seq. seq 0 = nothing, always done. */
struct sim_point {
  uint32_t slot;
  uint64_t seq;
};

struct sim_stream {
  struct sim_object object;
  uint32_t slot; /* its place in the shared completion area */
  struct sim_context *context;
  struct sim_context *green; /* made in it, or NULL: context is then the primary one */
  bool orphan;               /* its green context is gone: answers CONTEXT_IS_DESTROYED until the primary one goes */
  struct sim_stream *next;   /* of the context */
  unsigned flags;            /* CU_STREAM_NON_BLOCKING or 0 */
  int priority;
  uint64_t id;             /* cuStreamGetId */
  uint64_t legacy_seen;    /* the legacy stream's seq that this (blocking) stream already waits for */
  uint64_t seen_by_legacy; /* this stream's seq that the legacy stream already waits for */
  void *capture;           /* owned by cuda/: not NULL while a capture is on (see the capture hooks below) */
};

struct sim_context {
  struct sim_object object;
  struct sim_context *home; /* itself; of a green context the primary one, which owns everything but streams */
  int device;               /* index of the server's device */
  int ordinal;              /* what this process calls it: CUdevice */
  uint32_t server_id;       /* its number at the server, unique in this process */
  unsigned flags;
  bool primary;
  uint32_t users;                  /* cuCtxAttach counts them, of one that was created */
  unsigned sm_count, sm_alignment; /* of a green one: its part of the SMs */
  struct sim_stream *standard;     /* of a green one: its default stream; else NULL: legacy */
  uint64_t id;                     /* cuCtxGetId */
  struct sim_stream legacy;        /* handles 0 and CU_STREAM_LEGACY */
  struct sim_stream join;          /* core's own, for cuCtxRecordEvent: waits for all others */
  struct sim_point entry;          /* what streams made from now on wait for (cuCtxWaitEvent) */
  struct sim_stream *streams;      /* created ones and per-thread defaults, under sim_lock() */
  struct sim_context *next;        /* all contexts, under sim_lock() */
  CUresult sticky;                 /* CUDA_SUCCESS, or the error that every further call answers */
  size_t limits[16];               /* CUlimit */
  CUfunc_cache cache_config;
  uint64_t peers; /* bit of a context's server_id: peer access to it is on */
  void *wide;     /* for cuda/: per-context data of theirs (modules ...); sim_modules_destroy() frees it */
};

/* Stream 0 of its context? */
static inline bool sim_stream_is_default(const struct sim_stream *stream) {
  return stream == (stream->green ? stream->green->standard : &stream->context->legacy);
}

struct sim_event {
  struct sim_object object;
  uint32_t slot; /* its place in the shared event area */
  unsigned flags;
  struct sim_context *context;
  uint32_t generation;       /* how often it was recorded; 0 = never */
  struct sim_point point;    /* the last record */
  void *capture;             /* owned by cuda/: recorded into a capture */
  struct sim_ipc_event *ipc; /* other processes may record it, too (ipc_event.c); else NULL */
};

/* ---- entering: what every entry point does first ---- */

extern __thread struct sim_context *sim_current; /* do not use before sim_enter() said CUDA_SUCCESS */
/* cuInit was called here: CUDA_SUCCESS, NOT_INITIALIZED (also in a forked child). Blocks while the process is locked.
 */
CUresult sim_ready(void);
/* ... and the thread has a live context: else INVALID_CONTEXT. Of a green one the answer is its home. */
CUresult sim_enter(struct sim_context **ret_context);
struct sim_context *sim_context_find(CUcontext handle); /* NULL: not a live context; handle NULL = current */
/* Stream handle of an entry point; per_thread: its name ends in _ptsz. CUDA_ERROR_INVALID_HANDLE otherwise. */
CUresult sim_stream_find(CUstream handle, bool per_thread, struct sim_stream **ret_stream);
struct sim_event *sim_event_find(CUevent handle); /* NULL: not a live event */
void sim_lock(void); /* the process-wide lock of the object lists; short, never held while waiting */
void sim_unlock(void);

/* ---- errors that a context keeps (sticky.c) ---- */

bool sim_is_sticky(CUresult code);
/* CUDA_SUCCESS, or the error that it keeps */
static inline CUresult sim_context_state(const struct sim_context *context) {
  return VG_LOAD_RELAXED(&context->home->sticky);
}
/* A kernel of the context has faulted: what it had queued is dropped, every further call in it answers the code. */
void sim_context_fault(struct sim_context *context, CUresult code);
void sim_fault_struck(CUresult code); /* a fault on request (entries/fault.c), at a launch or a wait */
CUresult sim_stream_fault(struct sim_stream *stream, CUresult code); /* the same once the stream has come so far */

/* ---- devices of this process, in the order and number that CUDA_VISIBLE_DEVICES leaves ---- */

struct sim_device {
  int index; /* the server's */
  char name[64];
  CUuuid uuid;
  uint64_t memory_bytes;
  int sm_count;
  CUcontext primary; /* NULL while not retained */
  int primary_references;
  unsigned primary_flags;
};
int sim_device_count(void);
struct sim_device *sim_device(CUdevice ordinal); /* NULL: no such device */
const char *sim_model_path(void);                /* the kernel model file named in the server's configuration, or "" */
uint64_t sim_launch_cost_ns(void);

/* ---- submitting: all return CUDA_SUCCESS or the code that the entry point answers ---- */

enum sim_copy { SIM_COPY_TO_DEVICE, SIM_COPY_FROM_DEVICE, SIM_COPY_ON_DEVICE, SIM_COPY_ON_HOST, SIM_COPY_PEER };

/* A kernel that needs cost_ns of all SMs; meet not 0: while all kernels of its meeting run, one on each of so many
 * devices. Spends the launch cost and blocks while 1024 launches are not completed. */
CUresult sim_submit_kernel(struct sim_stream *stream, uint64_t cost_ns, uint16_t meet);
/* One launch of a whole graph costs the host one launch: sim_submit_launch_begin(), then the nodes with cost but
 * without host cost. */
CUresult sim_submit_launch_begin(struct sim_stream *stream);
CUresult sim_submit_node(struct sim_stream *stream, uint64_t cost_ns, uint16_t meet);
/* Copy-engine time for so many bytes; the bytes themselves are moved by the caller (sim_copy_bytes). */
CUresult sim_submit_copy(struct sim_stream *stream, enum sim_copy kind, uint64_t bytes);
CUresult sim_submit_memset(struct sim_stream *stream, uint64_t bytes);
/* callback(argument) runs in a thread of this process at its simulated time; the stream goes on when it has returned.
 * even_then: also when the context has faulted. */
CUresult sim_submit_callback(struct sim_stream *stream, void (*callback)(void *), void *argument, bool even_then);
CUresult sim_submit_marker(struct sim_stream *stream, struct sim_point *ret_point); /* takes no time */
CUresult sim_submit_wait(struct sim_stream *stream, struct sim_point point);        /* until point is complete */
CUresult sim_submit_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_submit_wait_event(struct sim_stream *stream, const struct sim_event *event); /* until its last record */
/* Moves the bytes of a copy at once and says which engine it needs. */
CUresult sim_copy_bytes(const CUDA_MEMCPY3D *copy, enum sim_copy *ret_kind);
bool sim_array_known(CUarray handle);
CUresult sim_set_bytes(const CUDA_MEMSET_NODE_PARAMS *set); /* the same for a memset */
enum sim_copy sim_copy_kind(CUdeviceptr destination, CUdeviceptr source);

struct sim_point sim_stream_point(const struct sim_stream *stream); /* the last that was submitted */
bool sim_point_done(struct sim_point point);                        /* its simulated completion is not in the future */
void sim_point_wait(struct sim_point point);                        /* sleeps until then */
void sim_stream_wait(struct sim_stream *stream);                    /* with the legacy stream's implicit order */
void sim_context_wait(struct sim_context *context);

/* ---- memory ---- */

struct sim_allocation {
  CUdeviceptr base;
  uint64_t bytes; /* as asked for */
  uint64_t id;
  struct sim_context *context; /* NULL: of no context (cuMemMap) */
  int device;                  /* of device memory: the server's index */
  unsigned kind;               /* CUmemorytype: CU_MEMORYTYPE_DEVICE or _HOST */
  bool managed;
  bool owned;        /* host memory that the driver allocated, not registered */
  unsigned flags;    /* of cuMemHostAlloc or cuMemHostRegister */
  bool mapped;       /* by cuMemMap: not to be freed, and ranges may go over neighbours */
  bool imported;     /* another process's: not to be freed */
  CUmemoryPool pool; /* it came from this pool, else NULL */

  bool low;                          /* below 4 GiB, in granules of its own (first.c) */
  struct sim_external_map *external; /* of another interface's memory (external.c), else NULL */
};
CUresult sim_memory_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_alloc_managed(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_alloc_low(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_free(struct sim_context *context, CUdeviceptr pointer);
/* Device memory that is not host-backed (module images, stacks): charged and given back only. */
CUresult sim_memory_charge(int device, uint64_t bytes);
void sim_memory_refund(int device, uint64_t bytes);
bool sim_memory_find(CUdeviceptr address, struct sim_allocation *ret_allocation); /* the allocation that holds it */

/* ---- semaphores of other interfaces (external_semaphore.c): check, then signal or wait in a stream ---- */

CUresult sim_semaphores_check_signal(const CUexternalSemaphore *handles,
                                     const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_semaphores_check_wait(const CUexternalSemaphore *handles,
                                   const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);
CUresult sim_semaphores_signal(struct sim_stream *stream, const CUexternalSemaphore *handles,
                               const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_semaphores_wait(struct sim_stream *stream, const CUexternalSemaphore *handles,
                             const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);

/* ---- capture hooks: called by the core when stream->capture is set, written in cuda/. They make a node instead of
 * doing the work. ---- */

CUresult sim_capture_copy(struct sim_stream *stream, const CUDA_MEMCPY3D *copy);
CUresult sim_capture_memset(struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_capture_callback(struct sim_stream *stream, CUhostFn callback, void *argument);
CUresult sim_capture_alloc(struct sim_stream *stream, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_capture_free(struct sim_stream *stream, CUdeviceptr pointer);
CUresult sim_capture_signal(struct sim_stream *stream, const CUexternalSemaphore *handles,
                            const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_capture_wait_semaphores(struct sim_stream *stream, const CUexternalSemaphore *handles,
                                     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream,
                          struct sim_event *event); /* also when only event->capture is set */
/* A call that may not be made while a stream captures (synchronise, allocate): CUDA_SUCCESS, or the code to answer. */
CUresult sim_capture_unsafe(void);
/* Work is given to a stream that does not capture: refused when that is the legacy stream beside a blocking capture. */
CUresult sim_capture_implicit(struct sim_stream *stream);
CUresult sim_capture_stream_unsafe(struct sim_stream *stream); /* synchronise or query that stream itself */
CUresult sim_capture_context(struct sim_context *context);     /* an event of a whole context: ends its captures */
void sim_capture_stream_destroy(struct sim_stream *stream);    /* ends its capture, or leaves the one that it joined */
/* Is it the legacy stream beside a blocking capture? It may be asked without harm. */
bool sim_capture_has_legacy(const struct sim_stream *stream);
bool sim_graph_memory_free(CUdeviceptr pointer); /* false: no graph has allocated it, or it is free already */
/* The end of a context, each for its own things. */
void sim_capture_context_destroy(struct sim_context *context); /* ends the captures that were begun in it */
void sim_graph_memory_context_destroy(struct sim_context *context);
void sim_modules_destroy(struct sim_context *context); /* frees what cuda/ keeps in context->wide */

#endif
