/*
 * pool.h - stream-ordered allocations, for the other families of memory hooks.
 */
#ifndef VG_HOOK_POOL_H
#define VG_HOOK_POOL_H
#include "session/session.h"

extern uint32_t vg_pool_frees_begun, vg_pool_frees_done; /* calls that free memory of pools: before and after each */
/* What the driver holds in pools of a device may have changed: asks, and brings the account to it. */
void vg_pool_refresh(struct vg_device *device);
void vg_pool_forked_child(void);

#endif
