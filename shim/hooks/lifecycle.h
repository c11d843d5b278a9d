/*
 * lifecycle.h - events that concern every family of memory hooks.
 */
#ifndef VG_HOOK_LIFECYCLE_H
#define VG_HOOK_LIFECYCLE_H
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

/* After the driver has destroyed a context: returns all that it held to the ledger. */
void vg_lifecycle_context_gone(struct vg_device *device, CUcontext context);
/* What the driver holds in pools and for graphs of a device may have changed: asks, and brings the account to it. */
void vg_lifecycle_refresh(struct vg_device *device);
/* In the child of a fork: nothing of the parent's is there; locks may have been held by threads that do not exist. */
void vg_lifecycle_forked_child(void);

#endif
