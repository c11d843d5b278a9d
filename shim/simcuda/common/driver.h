/*
 * driver.h - the CUDA driver that the libraries of the simulated device stand on: the process's own libcuda.so.1, which
 * is the hook in a slice and the simulated driver elsewhere. Opened at the first call, so that a process that uses no
 * CUDA never loads it.
 */
#ifndef SC_DRIVER_H
#define SC_DRIVER_H
#include "gen/abi/cuda_abi.h"

/* The entry points that are used, by their ABI names. */
#include "simcuda/common/driver_names.h"

struct sc_driver {
#define SC_ENTRY(name) __typeof__(name) *name;
  SC_DRIVER_NAMES(SC_ENTRY)
#undef SC_ENTRY
};

/* An entry point of the simulated driver alone (simgpu/process/values.h), by cuGetProcAddress. */
#define SC_SIMULATED_ENTRY "vgpuSimulatedZeroReads"

/* NULL: there is no libcuda.so.1, it is too old to have one of the names, or it is a real device's, on which these
 * libraries would compute nothing without a word; said once on standard error. */
const struct sc_driver *sc_driver(void);

#endif
