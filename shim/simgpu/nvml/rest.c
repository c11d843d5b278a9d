/*
 * rest.c - simulated NVML: every function of names.txt that no other file here defines. Programs look up the functions
 * that they may need when they start, and take a library without one of them for broken: PyTorch does at its first
 * "out of memory". None of their arguments is looked at, so their prototypes do not matter.
 */
#include "simgpu/nvml/page.h"

#define VG_SIM_REST(name)                                                                                              \
  __attribute__((weak)) NVML_EXPORT nvmlReturn_t name(void) {                                                          \
    nvmlReturn_t result = sim_nvml_ready();                                                                            \
    return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;                                                 \
  }
#include "gen/nvml/sim_rest.inc"
