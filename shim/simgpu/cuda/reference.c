/*
 * reference.c - texture and surface references by name. Compilers since CUDA 12 put none into an image, so no module
 * has one, and no surface reference exists. Called by programs.
 */
#include "simgpu/cuda/module.h"
#include "simgpu/process/process.h"

static CUresult missing(CUmodule module, const void *ret_reference, const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_reference || !name) return CUDA_ERROR_INVALID_VALUE;
  return sim_module_find(module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SIM_PUBLIC CUresult cuModuleGetTexRef(CUtexref *ret_reference, CUmodule module, const char *name) {
  return missing(module, ret_reference, name);
}

SIM_PUBLIC CUresult cuModuleGetSurfRef(CUsurfref *ret_reference, CUmodule module, const char *name) {
  return missing(module, ret_reference, name);
}

SIM_PUBLIC CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned flags) {
  (void)reference, (void)array, (void)flags;
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_PUBLIC CUresult cuSurfRefGetArray(CUarray *ret_array, CUsurfref reference) {
  (void)ret_array, (void)reference;
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
