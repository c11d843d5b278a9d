/* pool_import.h - an exported pointer of a pool; among ipc/pool_share.c, pool_import.c and pool.c. */
#ifndef VG_SIM_POOL_IMPORT_H
#define VG_SIM_POOL_IMPORT_H
#include "simgpu/memory/alloc.h"

struct sim_pool_pointer { /* what a CUmemPoolPtrExportData holds */
  uint64_t key;
  uint64_t pool; /* its key */
  uint64_t offset, bytes;
};
_Static_assert(sizeof(struct sim_pool_pointer) <= sizeof(CUmemPoolPtrExportData), "it has 64 bytes");

CUresult sim_pool_import_begin(const struct sim_pool_pointer *pointer, CUmemoryPool pool, CUdeviceptr *ret_pointer);

#endif
