/*
 * resolve_ml.c - finds and opens the real libnvidia-ml.so.1 as the loader would have done. Called at the first use of
 * any function. Must hold: another copy of this shim is never taken for the real library.
 */
#define _GNU_SOURCE
#include "nvml/resolve_ml.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "base/log.h"
#include "base/prim.h"
#include "driver/resolve.h"

#define NVML_SONAME "libnvidia-ml.so.1"

static void *library; /* handle, set once */

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
        VG_LOG_ONCE("%s is not NVML (%s): VGPU_NVML can name the real " NVML_SONAME, named, vg_resolve_why());
    } else if (!vg_resolve_search(NVML_SONAME, accept_library)) {
      VG_LOG_ONCE("no NVML found: %s is not in any directory that the loader searches", NVML_SONAME);
    }
    dlerror(); /* our failed attempts are not the program's error */
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
