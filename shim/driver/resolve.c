/*
 * resolve.c - the real driver and its functions. Called by the thunks of lazy_<machine>.S at the first use of a
 * function, by hooks/proc_address.c and by dlopen.c. Must hold: the real driver is opened RTLD_LOCAL by path (two
 * objects with one SONAME can be loaded), and another copy of this shim is never taken for it.
 */
#define _GNU_SOURCE
#include "driver/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>

#include "base/log.h"
#include "base/prim.h"
#include "gen/abi/counts.h"
#include "gen/abi/real.h"

#define DRIVER_SONAME "libcuda.so.1"

static void *driver; /* handle, set once */

static CUresult missing_function(void) {
  return CUDA_ERROR_NOT_FOUND;
}
static CUresult missing_driver(void) {
  return CUDA_ERROR_NO_DEVICE;
}

/* The candidate becomes the driver unless it cannot be loaded, is a shim or no driver. */
static bool accept_driver(const char *path) {
  void *none = NULL, *handle = vg_resolve_open(path, "cuInit", "it has no cuInit");
  if (handle == NULL) return false;
  __atomic_compare_exchange_n(&driver, &none, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return true;
}

/* The file that is named as the driver; NULL: none. */
static const char *named_driver(void) {
  return vg_resolve_named("VGPU_DRIVER", VG_CONTAINER_LIBRARIES DRIVER_SONAME);
}

static char refusal[VG_REFUSAL_BYTES];

const char *vg_resolve_refusal(void) {
  return refusal;
}

/* Only the first refusal is kept: several threads would write the same line. */
static void refuse_named(const char *path) {
  if (*refusal) return;
  snprintf(refusal, sizeof refusal, "%s is not a CUDA driver (%s): VGPU_DRIVER can name the real " DRIVER_SONAME, path,
           vg_resolve_why());
  VG_LOG_ONCE("%s", refusal);
}

void *vg_resolve_driver(void) {
  if (VG_LOAD(&driver) == NULL) {
    int saved_errno = errno;
    const char *named = named_driver();
    if (named != NULL) {
      if (!accept_driver(named)) refuse_named(named);
    } else if (!vg_resolve_search(DRIVER_SONAME, accept_driver)) {
      VG_LOG_ONCE("no CUDA driver found: %s is not in any directory that the loader searches", DRIVER_SONAME);
    }
    dlerror(); /* our failed attempts are not the program's error */
    errno = saved_errno;
  }
  return VG_LOAD(&driver);
}

bool vg_resolve_driver_opened(void) {
  return VG_LOAD(&driver) != NULL;
}

void vg_resolve_adopt(const char *path) {
  if (VG_LOAD(&driver) == NULL && named_driver() == NULL && !accept_driver(path)) dlerror();
}

static const struct link_map *driver_map(void) {
  struct link_map *map = NULL;
  void *handle = VG_LOAD(&driver);
  if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return NULL;
  return map;
}

const char *vg_resolve_driver_path(void) {
  const struct link_map *map = driver_map();
  return map == NULL ? NULL : map->l_name;
}

bool vg_resolve_in_driver(const void *code) {
  Dl_info info;
  const struct link_map *map = driver_map();
  const struct link_map *its_map = NULL;
  if (map == NULL || dladdr1(code, &info, (void **)&its_map, RTLD_DL_LINKMAP) == 0) return false;
  return its_map == map;
}

bool vg_resolve_is_exported(const void *function) {
  Dl_info info;
  return dladdr(function, &info) != 0 && info.dli_saddr == function;
}

const char *vg_shim_marker(void) {
  vg_resolve_driver();
  return vg_resolve_driver_path();
}

void *vg_resolve_symbol(const char *name) {
  void *handle = vg_resolve_driver();
  if (handle == NULL || !vg_resolve_defines(handle, name)) return NULL;
  return dlsym(handle, name);
}

static void *fill(void **slot, const char *name) {
  void *function = name == NULL ? NULL : vg_resolve_symbol(name);
  if (function == NULL) function = vg_resolve_driver_opened() ? (void *)missing_function : (void *)missing_driver;
  __atomic_store_n(slot, function, __ATOMIC_RELEASE);
  return function;
}

void *vg_resolve_slot(uint32_t slot, void **slots, const char *spares_begin, const char *spares_end) {
  size_t spare_bytes = (size_t)(spares_end - spares_begin) / VG_SPARES;
  if (slot < VG_ENTRIES) return fill(&slots[slot], vg_entry_name(slot));
  return fill(&slots[slot], vg_resolve_spare_name(spares_begin + (slot - VG_ENTRIES) * spare_bytes));
}

bool vg_resolve_has(enum vg_entry entry, void **slots) {
  void *function = VG_LOAD(&slots[entry]);
  if (function != (void *)missing_function && function != (void *)missing_driver)
    function = fill(&slots[entry], vg_entry_name(entry));
  return function != (void *)missing_function && function != (void *)missing_driver;
}
