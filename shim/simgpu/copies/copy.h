/*
 * copy.h - what files of copies have of each other: copy_shape.c, copy_batch.c.
 */
#ifndef VG_SIM_COPY_H
#define VG_SIM_COPY_H
#include "simgpu/streams/stream.h"

/* What every copy with a shape does; waits: it is no form with Async. */
CUresult sim_copy_shaped(CUstream handle, bool is_per_thread, const CUDA_MEMCPY3D *copy, bool waits);
bool sim_copy_attributes_valid(CUmemcpySrcAccessOrder order, unsigned flags);

#endif
