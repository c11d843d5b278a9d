/*
 * open.c - see resolve.h, vg_resolve_open(). Called by resolve.c and nvml/resolve_ml.c for each file that may be the
 * real library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "base/prim.h"
#include "driver/resolve.h"

static const char *refusal = ""; /* why the last file that could be loaded was not accepted */

void *vg_resolve_open(const char *path, const char *function, const char *not_it) {
  void *(*real_dlopen)(const char *, int) = vg_resolve_next("dlopen");
  void *library = real_dlopen(path, RTLD_LOCAL | RTLD_NOW);
  if (library == NULL) return NULL;
  bool is_shim = vg_resolve_defines(library, "vg_shim_marker");
  if (!is_shim && vg_resolve_defines(library, function)) {
    vg_resolve_own_calls(library);
    return library;
  }
  VG_STORE(&refusal, is_shim ? "it is a hook of vgpud" : not_it);
  dlclose(library);
  return NULL;
}

const char *vg_resolve_why(void) {
  const char *error = dlerror();
  return error == NULL ? VG_LOAD(&refusal) : error;
}
