/* vmm.h - physical memory by handle; among vmm.c (addresses and maps), vmm_physical.c and multicast.c. */
#ifndef VG_SIM_VMM_H
#define VG_SIM_VMM_H
#include "simgpu/arena/share.h"

struct sim_physical {
  struct sim_object object;
  CUmemAllocationProp prop;
  int device; /* the server's index; -1: memory of the host */
  uint64_t bytes;
  uint64_t offset;                        /* in the arena */
  int fd;                                 /* of its maker's arena */
  bool imported;                          /* fd is its own */
  uint32_t references;                    /* handles given out, maps, bindings to multicast objects */
  struct sim_share share;                 /* key 0: not shared */
  void *multicast;                        /* multicast.c: it is such an object and no memory; else NULL */
  void (*multicast_end)(void *multicast); /* the last reference is gone: what is bound is released */
};

void sim_physicals_lock(void);
void sim_physicals_unlock(void);
/* Under that lock. */
struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle handle); /* NULL: no live one */
struct sim_physical *sim_physical_new(uint64_t bytes);                       /* one reference, nothing behind it */
void sim_physical_drop(struct sim_physical *physical);                       /* a reference less */
CUresult sim_physical_share(struct sim_physical *physical);                  /* for other processes */
/* vmm.c: what is mapped there, under that lock. */
struct sim_physical *sim_physical_mapped_at(CUdeviceptr address, uint64_t bytes, uint64_t *ret_offset);
/* For other processes: of a mapping that begins where its memory begins. Takes the lock itself. */
CUresult sim_physical_share_at(CUdeviceptr address, uint64_t bytes, uint64_t *ret_key);

bool sim_whole(uint64_t bytes); /* of granules */

#endif
