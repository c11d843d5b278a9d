/*
 * next.c - what the dynamic loader says of this library's own functions: the next definition of one, and the name of a
 * spare entry. Below every other file of this folder; in libvgpu.so and in libvgpu-ml.so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "driver/resolve.h"

#define SPARE_PREFIX "vg_spare_"

void *vg_resolve_next(const char *name) {
  return dlsym(RTLD_NEXT, name);
}

const char *vg_resolve_spare_name(const char *entry) {
  Dl_info info;
  if (dladdr(entry, &info) == 0 || info.dli_sname == NULL) return NULL;
  return strncmp(info.dli_sname, SPARE_PREFIX, strlen(SPARE_PREFIX)) == 0 ? NULL : info.dli_sname;
}
