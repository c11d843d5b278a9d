/*
 * bytes.h - the bytes of copies and memsets, moved at once: copy_bytes.c, set_bytes.c. The time that they take is the
 * stream's (sim_submit_copy, sim_submit_memset).
 */
#ifndef VG_SIM_BYTES_H
#define VG_SIM_BYTES_H
#include "simgpu/streams/stream.h"

/* Says which engine the copy needs. */
CUresult sim_copy_bytes(const CUDA_MEMCPY3D *copy, struct sim_copy_way *ret_way);
CUresult sim_set_bytes(const CUDA_MEMSET_NODE_PARAMS *set);
/* What a copy means for the bytes that have a meaning (process/values.h). */
void sim_copy_values(enum sim_copy kind, CUdeviceptr to, CUdeviceptr from, uint64_t bytes);

#endif
