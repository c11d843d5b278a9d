/*
 * movable.h - large allocations of cuMemAlloc that the shim can take off the device and bring back to the same address,
 * for slices whose memory leaves the device where the driver has no checkpoint (VG_WATCH_MOVES). An allocation is a
 * range of addresses, reserved as long as it lives, and physical memory that is mapped there while it is on the device.
 *
 * Made and freed by the memory hooks, within calls that wait while the memory is away; moved by the helper thread
 * (move.c), when no such call is under way.
 */
#ifndef VG_MOVABLE_H
#define VG_MOVABLE_H
#include "gate/residence.h"
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

struct vg_movable {
  struct vg_movable *next, **link; /* of all, newest first */
  CUdeviceptr address;
  uint64_t bytes; /* whole granules */
  struct vg_device *device;
  CUcontext context; /* in which it was made, and with which it ends */
  CUdevice ordinal;
  void *host;      /* its contents, while it is away or on its way; else NULL */
  CUevent freeing; /* behind what its context had to do when it was to be freed; NULL: it is not, or not known yet */
  bool is_mapped;
};

/* Are large allocations to be made so? */
static inline bool vg_movable_is_wanted(void) {
  return VG_LOAD_RELAXED(&vg_residence_moves) != 0;
}

/* bytes: a multiple of the granule. NOT_SUPPORTED: the driver cannot, or the process is not moved any more. */
CUresult vg_movable_make(struct vg_device *device, CUcontext context, uint64_t bytes, struct vg_movable **ret_movable);
/* As cuMemFree, waits for the work of its context. On failure it is as before; NOT_READY: a stream captures, which that
 * would end. */
CUresult vg_movable_free(struct vg_movable *movable);
/* The same without waiting. NOT_READY: not yet. */
CUresult vg_movable_try_free(struct vg_movable *movable);
void vg_movable_drop(struct vg_movable *movable); /* its context has ended */
/* The program gives memory at this address to others, as VG_STAYS_SHARED: if it is such an allocation, the process is
 * not moved from now on. */
void vg_movable_share(CUdeviceptr address);
bool vg_movable_exist(void); /* any at all */
/* Is the address in such an allocation? To the program it is memory of cuMemAlloc, which has no handle. */
bool vg_movable_has(CUdeviceptr address);

/* ---- for move.c ---- */

struct vg_movable *vg_movable_first(void);      /* the list stands still while the memory is out, see residence.h */
void vg_movable_show(struct vg_device *device); /* on a page that may be new: their bytes */
bool vg_movable_are_shared(void);
CUresult vg_movable_map(struct vg_movable *movable);   /* new physical memory at its address */
CUresult vg_movable_unmap(struct vg_movable *movable); /* frees its physical memory */
void vg_movable_forked_child(void);

#endif
