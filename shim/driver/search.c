/*
 * search.c - where the real library is: the file that is named, else the files that the dynamic loader would try for a
 * name: the directories it searches for the program (its RPATH, LD_LIBRARY_PATH as it was at the start), then
 * ld.so.cache, then the default directories. Called by resolve.c and nvml/resolve_ml.c. Must hold: the loader's own
 * list of directories is used, not computed again; the cache is read with every offset checked, since another glibc may
 * have written it.
 */
#define _GNU_SOURCE
#include "driver/resolve.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prim.h"

#define CACHE_FILE "/etc/ld.so.cache"
#define CACHE_MAGIC "glibc-ld.so.cache1.1"
#define OLD_CACHE_MAGIC "ld.so-1.7.0"
#define LIBC6_FLAGS 0x0003u
#if defined(__x86_64__)
#define MACHINE_FLAGS 0x0300u
#elif defined(__aarch64__)
#define MACHINE_FLAGS 0x0a00u
#endif

/* glibc: sysdeps/generic/dl-cache.h. Offsets count from the head of the structure. */
struct cache_entry {
  uint32_t flags;
  uint32_t key;
  uint32_t value;
  uint32_t os_version;
  uint64_t hwcap;
};
struct cache_head {
  char magic[20];
  uint32_t count;
  uint32_t text_bytes;
  uint32_t reserved[5];
  struct cache_entry entries[];
};
struct old_cache_head {
  char magic[12];
  uint32_t count;
};
#define OLD_ENTRY_BYTES 12

/* Directories that a glibc searches last, on one or another distribution. */
static const char *const default_directories[] = {
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
};
#define DEFAULT_COUNT (sizeof default_directories / sizeof default_directories[0])

/* The text at an offset of the cache, NULL when it does not end inside the file. */
static const char *cache_text(const struct cache_head *head, size_t bytes, uint32_t offset) {
  const char *text = (const char *)head + offset;
  return offset < bytes && memchr(text, '\0', bytes - offset) != NULL ? text : NULL;
}

static bool search_cache_head(const struct cache_head *head, size_t bytes, const char *name,
                              bool (*accept)(const char *)) {
  if (bytes < sizeof *head || memcmp(head->magic, CACHE_MAGIC, sizeof head->magic) != 0) return false;
  if (head->count > (bytes - sizeof *head) / sizeof head->entries[0]) return false;
  for (uint32_t i = 0; i < head->count; i++) {
    const struct cache_entry *entry = &head->entries[i];
    const char *key = cache_text(head, bytes, entry->key);
    const char *value = cache_text(head, bytes, entry->value);
    /* entries with hwcap lie in directories for some processors only: the driver has none */
    if (entry->flags != (LIBC6_FLAGS | MACHINE_FLAGS) || entry->hwcap != 0 || key == NULL || value == NULL) continue;
    if (strcmp(key, name) == 0 && accept(value)) return true;
  }
  return false;
}

static bool search_cache(const char *name, bool (*accept)(const char *)) {
  int file = open(CACHE_FILE, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status;
  bool found = false;
  if (vg_prim_fstat(file, &status) == 0 && (size_t)status.st_size > sizeof(struct cache_head)) {
    size_t bytes = (size_t)status.st_size;
    char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (map != MAP_FAILED) {
      size_t skip = 0;
      const struct old_cache_head *old = (const void *)map;
      if (memcmp(old->magic, OLD_CACHE_MAGIC, strlen(OLD_CACHE_MAGIC)) == 0)
        skip = (sizeof *old + (size_t)old->count * OLD_ENTRY_BYTES + 7) & ~(size_t)7;
      if (skip < bytes) found = search_cache_head((const void *)(map + skip), bytes - skip, name, accept);
      munmap(map, bytes);
    }
  }
  close(file);
  return found;
}

/* The loader's own list of directories for the program, to be freed; NULL: it cannot be had. */
static Dl_serinfo *search_directories(void) {
  void *(*real_dlopen)(const char *, int) = vg_resolve_next("dlopen");
  void *program = real_dlopen(NULL, RTLD_LAZY);
  Dl_serinfo size, *info = NULL;
  if (program != NULL && dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) {
    info = malloc(size.dls_size);
    if (info != NULL) {
      info->dls_size = size.dls_size;
      info->dls_cnt = size.dls_cnt;
      if (dlinfo(program, RTLD_DI_SERINFO, info) != 0) {
        free(info);
        info = NULL;
      }
    }
  }
  if (program != NULL) dlclose(program);
  return info;
}

/* A bit of default_directories, 0 for any other directory. */
static unsigned default_bit(const char *directory) {
  for (unsigned i = 0; i < DEFAULT_COUNT; i++)
    if (strcmp(directory, default_directories[i]) == 0) return 1u << i;
  return 0;
}

/*
 * Where the default directories begin in the loader's list, which flags none of them (glibc leaves dls_flags 0): they
 * are the last ones, each once, so one that occurs a second time, counted from the end, is from LD_LIBRARY_PATH.
 */
static unsigned first_default(const Dl_serinfo *list) {
  unsigned seen = 0, first = list->dls_cnt;
  while (first > 0) {
    unsigned bit = default_bit(list->dls_serpath[first - 1].dls_name);
    if (bit == 0 || (seen & bit) != 0) break;
    seen |= bit;
    first--;
  }
  return first;
}

static bool try_directory(const char *directory, const char *name, bool (*accept)(const char *)) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", directory[0] == '\0' ? "." : directory, name);
  return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0 && accept(path);
}

const char *vg_resolve_named(const char *variable, const char *in_container) {
  if (access(in_container, F_OK) == 0) return in_container;
  const char *named = secure_getenv(variable);
  return named != NULL && *named != '\0' ? named : NULL;
}

bool vg_resolve_search(const char *name, bool (*accept)(const char *)) {
  Dl_serinfo *list = search_directories();
  unsigned count = list == NULL ? 0 : list->dls_cnt;
  unsigned defaults = list == NULL ? 0 : first_default(list);
  bool found = false;
  for (unsigned i = 0; i < defaults && !found; i++) found = try_directory(list->dls_serpath[i].dls_name, name, accept);
  if (!found) found = search_cache(name, accept);
  for (unsigned i = defaults; i < count && !found; i++)
    found = try_directory(list->dls_serpath[i].dls_name, name, accept);
  free(list);
  return found;
}
