/*
 * alloc.h - what programs allocate: device memory of contexts (context_memory.c), pools (pool.c), managed memory
 * (managed.c); what their entry points (alloc.c) share.
 */
#ifndef VG_SIM_ALLOC_H
#define VG_SIM_ALLOC_H
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/share.h"
#include "simgpu/process/current.h"
#include "simgpu/streams/stream.h"

CUresult sim_memory_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_alloc_managed(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_alloc_low(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
CUresult sim_memory_free(struct sim_context *context, CUdeviceptr pointer);
void sim_memory_destroy(struct sim_context *context);

size_t sim_pitch(size_t width_bytes, size_t height, unsigned element_bytes); /* alloc.c; 0: not valid, or too much */

/* ---- pool.c ---- */

/* handle NULL: the current pool of the context's device. */
CUresult sim_pool_alloc(CUmemoryPool handle, struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer);
bool sim_pool_free(CUdeviceptr pointer);                          /* false: not from a pool */
void sim_pool_take_back(const struct sim_allocation *allocation); /* already out of the list */

struct sim_pool_sharing {
  struct sim_share share; /* key 0: not shared; of no memory, that goes pointer by pointer */
  bool exportable;
  bool imported; /* another process's */
};
struct sim_pool_sharing *sim_pool_sharing(CUmemoryPool handle, int *ret_device); /* NULL: not a live pool */
CUmemoryPool sim_pool_import(const struct sim_share *share);                     /* NULL: none left */
void sim_pool_unshare(struct sim_pool_sharing *sharing);
void sim_pool_import_end(CUdeviceptr pointer); /* an imported pointer is freed; already out of the list */

/* ---- managed.c: what batches check ---- */

bool sim_runs_valid(const size_t *runs, size_t run_count, size_t count); /* runs begin at 0, and rise, below count */
CUresult sim_batch_stream(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream); /* not the legacy one */

#endif
