/*
 * init.c - cuInit and the driver's version.
 */
#define _GNU_SOURCE
#include "simgpu/process/process.h"
#include <pthread.h>
#include <sys/mman.h>

static bool tried; /* cuInit succeeded in this process or in the one it was forked from */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult initialise(void) {
  uint32_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  CUresult result = sim_link_open();
  if (result == CUDA_SUCCESS) sim_devices_find();
  if (result == CUDA_SUCCESS && sim_device_count() == 0) result = CUDA_ERROR_NO_DEVICE;
  if (result != CUDA_SUCCESS) {
    munmap(page, 4096);
    return result;
  }
  VG_STORE_RELAXED(page, 1);
  sim_start(page);
  tried = true;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (sim_ready() == CUDA_SUCCESS) return CUDA_SUCCESS;
  if (tried) return CUDA_ERROR_NOT_INITIALIZED; /* forked */
  pthread_mutex_lock(&init_lock);
  CUresult result = sim_ready() == CUDA_SUCCESS ? CUDA_SUCCESS : initialise();
  pthread_mutex_unlock(&init_lock);
  return result;
}

SIM_PUBLIC CUresult cuDriverGetVersion(int *ret_version) {
  if (!ret_version) return CUDA_ERROR_INVALID_VALUE;
  *ret_version = SIM_DRIVER_VERSION;
  return CUDA_SUCCESS;
}
