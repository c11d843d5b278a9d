/*
 * pool_import.c - pointers of pools that other processes have exported: mapped until they are freed here, and charged
 * to the pool's process. Called by ipc/pool_share.c, and by pool.c when such a pointer is freed.
 */
#include "simgpu/memory/pool_import.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/memory/alloc.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct import {
  struct import *next;
  struct sim_share share;
  char *map;
  CUdeviceptr pointer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;

void sim_pool_unshare(struct sim_pool_sharing *sharing) {
  if (!sharing->share.key) return;
  sim_share_close(&sharing->share);
  if (sharing->imported) close(sharing->share.fd);
  sharing->share.key = 0;
}

static bool map(struct import *one, const struct sim_pool_pointer *pointer, CUmemoryPool pool) {
  bool fits = pointer->offset <= one->share.bytes && pointer->bytes <= one->share.bytes - pointer->offset;
  one->map = fits ? sim_reserve_bytes(one->share.bytes, 0) : NULL;
  if (!one->map) return false;
  one->pointer = (CUdeviceptr)one->map + pointer->offset;
  struct sim_allocation allocation = {.base = one->pointer,
                                      .bytes = pointer->bytes,
                                      .device = one->share.device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .imported = true,
                                      .pool = pool};
  if (sim_arena_place(one->share.fd, one->share.offset, one->map, one->share.bytes, SIM_READ_WRITE) &&
      sim_memory_add(&allocation))
    return true;
  sim_unmap_bytes(one->map, one->share.bytes);
  return false;
}

CUresult sim_pool_import_begin(const struct sim_pool_pointer *pointer, CUmemoryPool pool, CUdeviceptr *ret_pointer) {
  struct import *one = calloc(1, sizeof *one);
  if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = sim_share_open(pointer->key, SIM_SHARE_MEMORY, &one->share);
  if (result == CUDA_SUCCESS && !map(one, pointer, pool)) {
    sim_share_close(&one->share);
    close(one->share.fd);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    free(one);
    return result;
  }
  pthread_mutex_lock(&lock);
  one->next = imports;
  imports = one;
  pthread_mutex_unlock(&lock);
  *ret_pointer = one->pointer;
  return CUDA_SUCCESS;
}

void sim_pool_import_end(CUdeviceptr pointer) {
  pthread_mutex_lock(&lock);
  struct import **link = &imports;
  while (*link && (*link)->pointer != pointer) link = &(*link)->next;
  struct import *one = *link;
  if (one) *link = one->next;
  pthread_mutex_unlock(&lock);
  if (!one) return;
  sim_unmap_bytes(one->map, one->share.bytes);
  sim_share_close(&one->share);
  close(one->share.fd);
  free(one);
}
