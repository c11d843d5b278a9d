/*
 * external_memory.h - memory of other interfaces: how a part of it is mapped. Used by context_memory.c and arrays/.
 */
#ifndef VG_SIM_EXTERNAL_MEMORY_H
#define VG_SIM_EXTERNAL_MEMORY_H
#include "simgpu/process/process.h"

struct sim_external_map {
  struct sim_external *memory; /* which it keeps alive */
  char *pages;                 /* whole ones, around the part */
  uint64_t pages_bytes;
  CUdeviceptr base; /* of the part */
};

/* CUDA_ERROR_INVALID_HANDLE, INVALID_VALUE (not within the memory), OUT_OF_MEMORY. */
CUresult sim_external_map(CUexternalMemory handle, uint64_t offset, uint64_t bytes, struct sim_external_map **ret_map);
void sim_external_unmap(struct sim_external_map *map);

#endif
