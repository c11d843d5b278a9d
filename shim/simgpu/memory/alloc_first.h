/* alloc_first.h - what the first interface answers: addresses and sizes of 32 bits. */
#ifndef VG_SIM_ALLOC_FIRST_H
#define VG_SIM_ALLOC_FIRST_H
#include "simgpu/process/process.h"

/* result, and the address that came with it; CUDA_ERROR_NOT_SUPPORTED: it does not fit. */
CUresult sim_first_address(CUresult result, const CUdeviceptr *address, CUdeviceptr_v1 *ret_address);
unsigned sim_first_bytes(size_t bytes); /* at most UINT32_MAX */

#endif
