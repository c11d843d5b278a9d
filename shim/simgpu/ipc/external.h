/* external.h - memory of other interfaces: how a part of it is mapped; among external.c, memory.c and array_memory.c.
 */
#ifndef VG_SIM_EXTERNAL_H
#define VG_SIM_EXTERNAL_H
#include "simgpu/sim.h"

struct sim_external_map {
  struct sim_external *memory; /* which it keeps alive */
  char *pages;                 /* whole ones, around the part */
  uint64_t pages_bytes;
  CUdeviceptr base; /* of the part */
};

void sim_external_unmap(struct sim_external_map *map);

#endif
