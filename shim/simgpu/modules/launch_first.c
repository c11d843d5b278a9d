/*
 * launch_first.c - the first interface of launches: a function keeps its block shape, shared memory and parameters,
 * and a launch is given the grid. Called by programs.
 */
#include "simgpu/modules/module.h"
#include "simgpu/process/process.h"
#include <stdlib.h>
#include <string.h>

#define PARAM_BYTES_MAX 4096

struct sim_first_launch {
  unsigned block[3];
  unsigned shared_bytes;
  size_t param_bytes;
  uint8_t params[PARAM_BYTES_MAX];
};

/* What a function keeps, made when it is first needed; under the lock of modules. */
static struct sim_first_launch *kept(struct sim_function *function) {
  if (function->first == NULL) function->first = calloc(1, sizeof *function->first);
  return function->first;
}

/* The lock is held on success. */
static CUresult enter(CUfunction handle, bool valid, struct sim_first_launch **ret_first) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_function *function = sim_function_find(handle);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  sim_module_lock();
  *ret_first = kept(function);
  if (*ret_first == NULL) sim_module_unlock();
  return *ret_first == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  struct sim_first_launch *first;
  CUresult result = enter(handle, x > 0 && y > 0 && z > 0, &first);
  if (result != CUDA_SUCCESS) return result;
  first->block[0] = (unsigned)x;
  first->block[1] = (unsigned)y;
  first->block[2] = (unsigned)z;
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncSetSharedSize(CUfunction handle, unsigned bytes) {
  struct sim_first_launch *first;
  CUresult result = enter(handle, true, &first);
  if (result != CUDA_SUCCESS) return result;
  first->shared_bytes = bytes;
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuParamSetSize(CUfunction handle, unsigned bytes) {
  struct sim_first_launch *first;
  CUresult result = enter(handle, bytes <= PARAM_BYTES_MAX, &first);
  if (result != CUDA_SUCCESS) return result;
  first->param_bytes = bytes;
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuParamSetv(CUfunction handle, int offset, void *data, unsigned bytes) {
  struct sim_first_launch *first;
  bool valid = data != NULL && offset >= 0 && offset <= PARAM_BYTES_MAX && bytes <= PARAM_BYTES_MAX - (unsigned)offset;
  CUresult result = enter(handle, valid, &first);
  if (result != CUDA_SUCCESS) return result;
  memcpy(first->params + offset, data, bytes);
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuParamSeti(CUfunction handle, int offset, unsigned value) {
  return cuParamSetv(handle, offset, &value, sizeof value);
}

SIM_PUBLIC CUresult cuParamSetf(CUfunction handle, int offset, float value) {
  return cuParamSetv(handle, offset, &value, sizeof value);
}

/* A module's texture references are bound to its functions by themselves; this says so once more. */
SIM_PUBLIC CUresult cuParamSetTexRef(CUfunction handle, int unit, CUtexref reference) {
  CUfilter_mode mode;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (sim_function_find(handle) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return unit == CU_PARAM_TR_DEFAULT ? cuTexRefGetFilterMode(&mode, reference) : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
  struct sim_first_launch *first, now;
  CUresult result = enter(handle, width > 0 && height > 0, &first);
  if (result != CUDA_SUCCESS) return result;
  now = *first; /* another thread may prepare the next launch */
  sim_module_unlock();
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, now.params, CU_LAUNCH_PARAM_BUFFER_SIZE, &now.param_bytes,
                   CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(handle, (unsigned)width, (unsigned)height, 1, now.block[0], now.block[1], now.block[2],
                        now.shared_bytes, stream, NULL, extra);
}

SIM_PUBLIC CUresult cuLaunchGrid(CUfunction handle, int width, int height) {
  return cuLaunchGridAsync(handle, width, height, NULL);
}

SIM_PUBLIC CUresult cuLaunch(CUfunction handle) {
  return cuLaunchGridAsync(handle, 1, 1, NULL);
}
