/*
 * free_room.h - whether bytes fit into what a context or a pool has taken of the device, as far as can be known.
 */
#ifndef VG_HOOK_FREE_ROOM_H
#define VG_HOOK_FREE_ROOM_H
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

bool vg_room_by_address(const struct vg_device *device, CUcontext context, uint64_t bytes);
bool vg_room_in_pool(const struct vg_device *device, CUmemoryPool pool, uint64_t held_bytes, uint64_t bytes);

#endif
