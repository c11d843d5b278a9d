/*
 * slice.h - what the NVML shim knows of the slice: its devices in the order of CUDA, their limits, and their usage by
 * process. From the daemon (VG_ATTACH_QUERY): a program that only queries NVML is no tenant.
 */
#ifndef VG_ML_SLICE_H
#define VG_ML_SLICE_H
#include "abi/nvml_abi.h"
#include "abi/vg_abi.h"

#include <stdbool.h>

#include "session/own_memory.h"

struct vg_ml_device {
  nvmlDevice_t handle; /* the real library's */
  struct vg_slice_device numbers;
  uint32_t order; /* of the device in the daemon's answers */
};

/* After every real nvmlInit. SUCCESS: in a slice, or none was asked for, or its daemon does not answer (logged);
 * NO_PERMISSION: the daemon refused; NOT_FOUND: the slice has no device that NVML knows. */
nvmlReturn_t vg_ml_slice_open(void);
bool vg_ml_in_slice(void); /* false: the shim shows everything as it is */
uint32_t vg_ml_count(void);
nvmlDevice_t vg_ml_handle(uint32_t index);                             /* NULL: there is none of that index */
bool vg_ml_find(nvmlDevice_t handle, struct vg_ml_device *ret_device); /* false: not of the slice */
/* The device's memory as the ledger of this process knows it now; false: it has none, so vg_ml_usage() is all there is.
 */
bool vg_ml_own_memory(const struct vg_ml_device *own, struct vg_own_memory *ret_memory);
/* The latest usage, at most 100 ms old; false when the daemon does not answer (then the last one known). */
bool vg_ml_usage(struct vg_attach_usage *ret_usage);
/* A share of the device, in percent, as one of what the slice may have of it; NVML's "unknown" stays. */
unsigned vg_ml_percent(double of_device, const struct vg_ml_device *own);

#endif
