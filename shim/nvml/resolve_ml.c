/*
 * resolve_ml.c - finds and opens the real libnvidia-ml.so.1 as the loader would have done, and fills the entries of
 * lazy_<machine>.S. Called at the first use of any function. Must hold: another copy of this shim is never taken for
 * the real library; functions that change a device's state are refused to programs in a slice.
 */
#define _GNU_SOURCE
#include "nvml/resolve_ml.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "base/log.h"
#include "base/prim.h"
#include "driver/resolve.h"
#include "gen/nvml/ml_counts.h"
#include "nvml/slice.h"

#define NVML_SONAME "libnvidia-ml.so.1"
#define SPARE_PREFIX "vg_spare_"

extern const char vg_spares_begin[], vg_spares_end[]; /* lazy_<machine>.S: VG_SPARES entries of equal size */
extern void *vg_real_slots[] __attribute__((visibility("hidden")));

static void *library; /* handle, set once */

void *vg_resolve_next(const char *name) {
  return dlsym(RTLD_NEXT, name);
}

static bool accept_library(const char *path) {
  void *none = NULL, *handle = vg_resolve_open(path, "nvmlInit_v2", "it has no nvmlInit_v2");
  if (handle == NULL) return false;
  __atomic_compare_exchange_n(&library, &none, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return true;
}

static void *real_library(void) {
  if (VG_LOAD(&library) == NULL) {
    int saved_errno = errno;
    const char *named = vg_resolve_named("VGPU_NVML", VG_CONTAINER_LIBRARIES NVML_SONAME);
    if (named != NULL) {
      if (!accept_library(named))
        VG_LOG_ONCE("%s is no NVML (%s): VGPU_NVML can name the real " NVML_SONAME, named, vg_resolve_why());
    } else if (!vg_resolve_search(NVML_SONAME, accept_library)) {
      VG_LOG_ONCE("no NVML found: %s is in no directory that the loader searches", NVML_SONAME);
    }
    dlerror(); /* what we tried in vain is not the program's error */
    errno = saved_errno;
  }
  return VG_LOAD(&library);
}

const char *vg_shim_marker(void) {
  struct link_map *map = NULL;
  void *handle = real_library();
  if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return NULL;
  return map->l_name;
}

void *vg_ml_symbol(const char *name) {
  void *handle = real_library();
  if (handle == NULL || !vg_resolve_defines(handle, name)) return NULL;
  return dlsym(handle, name);
}

nvmlReturn_t vg_ml_missing(void) {
  return VG_LOAD(&library) == NULL ? NVML_ERROR_LIBRARY_NOT_FOUND : NVML_ERROR_FUNCTION_NOT_FOUND;
}

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

/* An entry's name stands in our own symbol table, where vgpud/libraries/fit.py may have written it; NULL when it has
 * none. */
static const char *entry_name(uint32_t entry) {
  Dl_info info;
  size_t bytes = (size_t)(vg_spares_end - vg_spares_begin) / VG_SPARES;
  if (dladdr(vg_spares_begin + entry * bytes, &info) == 0 || info.dli_sname == NULL) return NULL;
  return strncmp(info.dli_sname, SPARE_PREFIX, strlen(SPARE_PREFIX)) == 0 ? NULL : info.dli_sname;
}

void *vg_resolve_slot(uint32_t slot) {
  const char *name = entry_name(slot);
  void *function = name == NULL ? NULL : vg_ml_symbol(name);
  if (function == NULL) return (void *)vg_ml_missing; /* asked again: the library may be there later */
  if (changes_device(name) && vg_ml_in_slice()) function = (void *)refused;
  __atomic_store_n(&vg_real_slots[slot], function, __ATOMIC_RELEASE);
  return function;
}
