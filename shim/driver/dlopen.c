/*
 * dlopen.c - dlopen() and dlmopen() as programs call them: the driver under any of its names is this library,
 * NVML is libvgpu-ml.so where that is loaded, all other libraries are left alone. Called by dlopen_<machine>.S, which
 * then jumps to the real function with the name given here: so RTLD_GLOBAL, reference counts and the caller's RUNPATH
 * keep their meaning.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/resolve.h"

#define DRIVER_NAME "libcuda.so"
#define DRIVER_SONAME "libcuda.so.1"
#define NVML_NAME "libnvidia-ml.so"
#define NVML_SONAME "libnvidia-ml.so.1"

struct vg_route {
  const char *file;
  void *function; /* dlopen or dlmopen */
};

enum library { OTHER, DRIVER, NVML };

struct vg_route vg_dlopen_route(const char *file, int mode, const void *caller);
struct vg_route vg_dlmopen_route(const char *file, const void *caller);

/* name, or name.1, name.580.65.06: not name.bak, and not libcudart. */
static bool is_version_of(const char *base, const char *name) {
  size_t length = strlen(name);
  if (strncmp(base, name, length) != 0) return false;
  return base[length] == '\0' || (base[length] == '.' && strspn(base + length, ".0123456789") == strlen(base + length));
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static enum library library_of_name(const char *path) {
  const char *base = base_name(path);
  if (is_version_of(base, DRIVER_NAME)) return DRIVER;
  return is_version_of(base, NVML_NAME) ? NVML : OTHER;
}

/* By the name, or by the name of the file that the path links to. Costs one readlink for a file of another name. */
static enum library library_of(const char *file) {
  enum library library = library_of_name(file);
  char target[PATH_MAX];
  if (library != OTHER || strchr(file, '/') == NULL) return library;
  if (readlink(file, target, sizeof target) < 0 || realpath(file, target) == NULL) return OTHER;
  return library_of_name(target);
}

/* A name with which dlopen fails as if the library were not installed: because of the slash at its end. */
static const char *not_there(const char *file) {
  const char *base = base_name(file);
  if (strcmp(base, DRIVER_NAME) == 0) return DRIVER_NAME "/";
  if (strcmp(base, NVML_NAME) == 0) return NVML_NAME "/";
  return library_of(file) == NVML ? NVML_SONAME "/" : DRIVER_SONAME "/";
}

static int needs_driver(struct dl_phdr_info *info, size_t bytes, void *ret_found) {
  (void)bytes;
  const ElfW(Dyn) *dynamic = NULL;
  const char *text = NULL;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  for (const ElfW(Dyn) *entry = dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == DT_STRTAB)
      text = (const char *)entry->d_un.d_ptr; /* glibc has relocated it, but not the vdso's */
  if (text == NULL || (uintptr_t)text < info->dlpi_addr) return 0;
  for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == DT_NEEDED && is_version_of(text + entry->d_un.d_val, DRIVER_NAME)) *(bool *)ret_found = true;
  return 0;
}

/* Would the driver be in the process already, if the shim were not preloaded? */
static bool driver_in_use(void) {
  bool found = vg_resolve_driver_opened();
  if (!found) dl_iterate_phdr(needs_driver, &found);
  return found;
}

struct place {
  uintptr_t address;
  const char *file;
};

static int find_place(struct dl_phdr_info *info, size_t bytes, void *data) {
  struct place *place = data;
  (void)bytes;
  for (int i = 0; i < info->dlpi_phnum && place->file == NULL; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && place->address - info->dlpi_addr - part->p_vaddr < part->p_memsz)
      place->file = info->dlpi_name;
  }
  return place->file != NULL;
}

/* The file that an address belongs to, as the loader spells it: the loader compares this text and opens no file. dladdr
 * says it, too, when it has compared the address with each of the file's symbols, of which a driver has hundreds. */
static const char *loaded_file(const void *address) {
  struct place place = {.address = (uintptr_t)address};
  dl_iterate_phdr(find_place, &place);
  return place.file;
}

static const char *route_driver(const char *file, int mode, const void *caller) {
  const char *self = loaded_file((const void *)vg_dlopen_route);
  if (self == NULL || strcmp(file, self) == 0) return file;
  if (vg_resolve_in_driver(caller)) return vg_resolve_driver_path();
  bool is_path = strchr(file, '/') != NULL;
  if (is_path && access(file, F_OK) != 0) return file;
  if ((mode & RTLD_NOLOAD) != 0 && !driver_in_use()) return not_there(file);
  if (is_path) vg_resolve_adopt(file);
  return vg_resolve_driver() == NULL ? not_there(file) : self;
}

/* libvgpu-ml.so, if it is loaded, answers for NVML; its marker says which real library it stands for. */
static const char *route_nvml(const char *file, const void *caller) {
  void *(*real_dlopen)(const char *, int) = vg_resolve_next("dlopen");
  void *loaded = real_dlopen(NVML_SONAME, RTLD_LAZY | RTLD_NOLOAD);
  if (loaded == NULL) {
    dlerror();
    return file;
  }
  const char *(*marker)(void) = NULL;
  if (vg_resolve_defines(loaded, "vg_shim_marker")) marker = dlsym(loaded, "vg_shim_marker");
  const char *shim = marker == NULL ? NULL : loaded_file((const void *)marker);
  dlclose(loaded); /* it stays: the shims are linked with -z nodelete */
  if (shim == NULL) return file;
  if (strchr(file, '/') != NULL && access(file, F_OK) != 0) return file;
  const char *real = marker();
  if (real == NULL) return not_there(file);
  return vg_resolve_in_driver(caller) ? real : shim;
}

/* The file to open instead of the one that the program names. */
static const char *file_for(const char *file, int mode, const void *caller) {
  int saved_errno = errno;
  if (file != NULL && *file != '\0') {
    enum library library = library_of(file);
    if (library == DRIVER) file = route_driver(file, mode, caller);
    if (library == NVML) file = route_nvml(file, caller);
  }
  errno = saved_errno;
  return file;
}

struct vg_route vg_dlopen_route(const char *file, int mode, const void *caller) {
  return (struct vg_route){file_for(file, mode, caller), vg_resolve_next("dlopen")};
}

/* In the new namespace it is a further copy of this library that stands in for the driver, and attaches by itself. */
struct vg_route vg_dlmopen_route(const char *file, const void *caller) {
  return (struct vg_route){file_for(file, 0, caller), vg_resolve_next("dlmopen")};
}
