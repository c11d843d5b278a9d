/*
 * allocations.h - what a program has allocated or registered: allocations.c; and the strict look at it (base/strict.h):
 * freed.c, strict_memory.c.
 */
#ifndef VG_SIM_ALLOCATIONS_H
#define VG_SIM_ALLOCATIONS_H
#include "simgpu/base/strict.h"
#include "simgpu/process/process.h"

struct sim_allocation {
  CUdeviceptr base;
  uint64_t bytes; /* as asked for */
  uint64_t id;
  struct sim_context *context; /* NULL: of no context (cuMemMap) */
  int device;                  /* of device memory: the server's index */
  unsigned kind;               /* CUmemorytype: CU_MEMORYTYPE_DEVICE or _HOST */
  bool managed;
  bool is_paged;                  /* managed, in blocks that the server knows: not all need be on the device */
  bool owned;                     /* host memory that the driver allocated, not registered */
  unsigned flags;                 /* of cuMemHostAlloc or cuMemHostRegister */
  bool mapped;                    /* by cuMemMap: not to be freed, and ranges may go over neighbours */
  bool is_read_only;              /* by cuMemSetAccess: kernels may write there all the same */
  bool imported;                  /* another process's: not to be freed */
  CUmemoryPool pool;              /* it came from this pool, else NULL */
  bool (*free)(CUdeviceptr base); /* of memory of a graph, else NULL; false: no launch has allocated it */

  bool low;                          /* below 4 GiB, in granules of its own (memory/alloc_first.c) */
  struct sim_external_map *external; /* of another interface's memory (memory/external_memory.c), else NULL */
};

struct sim_allocation *sim_memory_add(const struct sim_allocation *allocation);
/* Takes the allocation that begins there out of the list. */
bool sim_memory_remove(CUdeviceptr base, struct sim_allocation *ret_allocation);
bool sim_memory_find(CUdeviceptr address, struct sim_allocation *ret_allocation); /* the allocation that holds it */
/* Whether [address, address + bytes) lies within one allocation (or registered host memory). */
bool sim_memory_covers(CUdeviceptr address, uint64_t bytes, struct sim_allocation *ret_allocation);
bool sim_memory_of(const struct sim_context *context, struct sim_allocation *ret_allocation); /* any one of it */
void sim_memory_each(void (*use)(void *, const struct sim_allocation *), void *argument);

/* Whether bytes there may be used; reports if that was freed or goes beyond an allocation. Host memory may be used. */
bool sim_strict_range(uint64_t address, uint64_t bytes);
void sim_strict_words(const void *words, uint64_t bytes); /* arguments of a kernel: reports which are freed memory */
void sim_strict_freed(const struct sim_allocation *allocation); /* it was taken out of the list */
bool sim_strict_was_freed(uint64_t address);
void sim_strict_free_refused(CUdeviceptr pointer); /* reports what is wrong with it */

#endif
