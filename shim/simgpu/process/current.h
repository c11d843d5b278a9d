/*
 * current.h - contexts as every entry point meets them: what one is, with the streams that it holds; which one a thread
 * works in (current.c); errors that one keeps (sticky.c). contexts/ makes and ends them.
 */
#ifndef VG_SIM_CURRENT_H
#define VG_SIM_CURRENT_H
#include "simgpu/process/process.h"

#define SIM_CONTEXT_MAGIC 0x43545854u

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
  void *capture;           /* a struct sim_tail while it is captured (streams/capture_rules.h); else NULL */
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
  struct sim_stream join;          /* the driver's own, for cuCtxRecordEvent: waits for all others */
  struct sim_point entry;          /* what streams made from now on wait for (cuCtxWaitEvent) */
  struct sim_stream *streams;      /* created ones and per-thread defaults, under sim_lock() */
  struct sim_context *next;        /* all contexts, under sim_lock() */
  CUresult sticky;                 /* CUDA_SUCCESS, or the error that every further call answers */
  size_t limits[16];               /* CUlimit */
  CUfunc_cache cache_config;
  uint64_t peers; /* bit of a context's server_id: peer access to it is on */
  void *wide;     /* modules/: the modules that are loaded in it; sim_modules_destroy() frees it */
};

/* Stream 0 of its context? */
static inline bool sim_stream_is_default(const struct sim_stream *stream) {
  return stream == (stream->green ? stream->green->standard : &stream->context->legacy);
}

/* ---- current.c ---- */

extern __thread struct sim_context *sim_current; /* do not use before sim_enter() said CUDA_SUCCESS */
/* sim_ready(), and the thread has a live context: else INVALID_CONTEXT. Of a green one the answer is its home. */
CUresult sim_enter(struct sim_context **ret_context);
struct sim_context *sim_context_find(CUcontext handle); /* NULL: not a live context; handle NULL = current */
uint64_t sim_next_id(void);
extern struct sim_slab sim_contexts;

/* ---- sticky.c ---- */

bool sim_is_sticky(CUresult code);
/* CUDA_SUCCESS, or the error that it keeps */
static inline CUresult sim_context_state(const struct sim_context *context) {
  return VG_LOAD_RELAXED(&context->home->sticky);
}
/* A kernel of the context has faulted: what it had queued is dropped, every further call in it answers the code. */
void sim_context_fault(struct sim_context *context, CUresult code);
void sim_fault_struck(CUresult code); /* a fault on request (entries/fault.c), at a launch or a wait */
CUresult sim_context_waited(const struct sim_context *context); /* sim_waited(), or the error that the context keeps */

#endif
