/*
 * charge.h - device memory that the server is charged for: charge.c, and small.c for requests below one granule.
 */
#ifndef VG_SIM_CHARGE_H
#define VG_SIM_CHARGE_H
#include "simgpu/process/process.h"

/* Device memory that is not host-backed (module images, stacks): charged and given back only. */
CUresult sim_memory_charge(int device, uint64_t bytes);
void sim_memory_refund(int device, uint64_t bytes);

CUresult sim_map_charged(int device, uint64_t bytes, char **ret_map); /* charged at the server, then mapped */
CUresult sim_map_charged_low(int device, uint64_t bytes, char **ret_map);

/* Managed memory: it may be more than fits the device (server/managed.c). No other process can have it. */
CUresult sim_map_managed(int device, uint64_t bytes, char **ret_map);
void sim_unmap_managed(int device, void *map, uint64_t bytes);

/* The end of what sim_map_charged() made; where others share it (share.c), what it costs goes to them. */
void sim_unmap_charged(int device, void *map, uint64_t bytes);

/* ---- small.c: owner is the context or the pool that the granules belong to ---- */

CUresult sim_small_alloc(const void *owner, int device, uint64_t bytes, CUdeviceptr *ret_pointer);
void sim_small_free(CUdeviceptr pointer, uint64_t bytes, bool give_back); /* the granule, when it is empty now */
uint64_t sim_small_bytes(const void *owner);                              /* of all its granules */
void sim_small_trim(const void *owner, uint64_t most_bytes); /* gives empty granules back, so many bytes at most */

#endif
