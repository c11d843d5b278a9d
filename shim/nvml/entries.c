/*
 * entries.c - the functions of NVML that have no hook: fills the slots of lazy_<machine>.S at the first use of each.
 * Must hold: functions that change a device's state are refused to programs in a slice.
 */
#include <string.h>

#include "driver/resolve.h"
#include "gen/nvml/ml_counts.h"
#include "nvml/resolve_ml.h"
#include "nvml/slice.h"

static nvmlReturn_t refused(void) {
  return NVML_ERROR_NO_PERMISSION;
}

/* Changes what the neighbours on the device see: clocks, power, modes, partitions, counters. */
static bool changes_device(const char *name) {
  static const char *const prefixes[] = {
      "nvmlDeviceSet",
      "nvmlDeviceReset",
      "nvmlDeviceClear",
      "nvmlDeviceFreeze",
      "nvmlDeviceModify",
      "nvmlDeviceRemove",
      "nvmlDeviceDiscover",
      "nvmlDeviceCreate",
      "nvmlGpuInstanceCreate",
      "nvmlGpuInstanceDestroy",
      "nvmlGpuInstanceSet",
      "nvmlComputeInstanceDestroy",
      "nvmlDevicePowerSmoothing",
      "nvmlSystemSet",
      "nvmlUnitSet",
      "nvmlVgpuInstanceSet",
  };
  if (strstr(name, "CpuAffinity") != NULL) return false; /* of the calling thread only */
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
  return false;
}

void *vg_resolve_slot(uint32_t slot, void **slots, const char *spares_begin, const char *spares_end) {
  size_t entry_bytes = (size_t)(spares_end - spares_begin) / VG_SPARES;
  const char *name = vg_resolve_spare_name(spares_begin + slot * entry_bytes);
  void *function = name == NULL ? NULL : vg_ml_symbol(name);
  if (function == NULL) return (void *)vg_ml_missing; /* asked again: the library may be there later */
  if (changes_device(name) && vg_ml_in_slice()) function = (void *)refused;
  __atomic_store_n(&slots[slot], function, __ATOMIC_RELEASE);
  return function;
}
