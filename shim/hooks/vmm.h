/*
 * vmm.h - references to physical memory by its handles, for what keeps it alive (multicast.c, sparse.c).
 */
#ifndef VG_HOOK_VMM_H
#define VG_HOOK_VMM_H
#include <stdbool.h>

#include "gen/abi/cuda_abi.h"

/* One reference more. False: the handle is not known here. */
bool vg_handle_enter(CUmemGenericAllocationHandle handle);
void vg_handle_leave(CUmemGenericAllocationHandle handle);
CUresult vg_handle_retain(CUmemGenericAllocationHandle *handle, void *addr); /* as the program's own calls */
CUresult vg_handle_release(CUmemGenericAllocationHandle handle);
/* Around a driver's call and its accounting. begin_end: calls that end memory without naming its handle; begin_make:
 * calls that make handles; begin_alone: calls that use a handle which another thread may be making or releasing. What
 * they return is for vg_handles_done(). */
unsigned vg_handles_begin_end(void);
unsigned vg_handles_begin_make(void);
unsigned vg_handles_begin_alone(void);
void vg_handles_done(unsigned entered);
void vg_handle_forked_child(void);

#endif
