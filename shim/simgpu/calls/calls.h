/*
 * calls.h - what files of entry points have of each other. An entry point lies in the folder of the thing that it is
 * about; here lie those that need more: they give work to streams, or nodes to a capture, or end a context with all
 * that is in it.
 */
#ifndef VG_SIM_CALLS_H
#define VG_SIM_CALLS_H
#include "simgpu/contexts/context.h"
#include "simgpu/streams/stream.h"

/* copy.c, copy_batch.c */
enum sim_copy sim_copy_kind(CUdeviceptr destination, CUdeviceptr source);
bool sim_copy_attributes_valid(CUmemcpySrcAccessOrder order, unsigned flags);

/* copy_shape.c: what every copy with a shape does; waits: it is no form with Async */
CUresult sim_copy_shaped(CUstream handle, bool is_per_thread, const CUDA_MEMCPY3D *copy, bool waits);

size_t sim_pitch(size_t width_bytes, size_t height, unsigned element_bytes); /* alloc.c; 0: not valid, or too much */

/* context.c: green contexts, with the home retained, which destroying releases */
CUresult sim_green_make(CUdevice ordinal, unsigned sm_count, unsigned sm_alignment, struct sim_context **ret_green);
CUresult sim_green_find(CUgreenCtx handle, struct sim_context **ret_green);
void sim_green_destroy(struct sim_context *green);

#endif
