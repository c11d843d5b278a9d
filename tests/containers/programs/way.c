/*
 * way HOW FILE BYTES [hold]: reaches the driver in one of the ways that go around a preloaded library, and says as one
 * JSON line what it sees there and whether BYTES are granted. It is given no slice. HOW: open, deepbind, namespace
 * (dlmopen), libc-open and libc-namespace (the same with libc's functions, fetched from it), default and next (dlsym's
 * pseudo handles, after dlopen into the global scope), both (dlopen and dlmopen in one process, a half of BYTES each,
 * then once more the first). hold: stays there with what it got.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct driver {
  int (*init)(unsigned);
  int (*count_of)(int *);
  int (*device_of)(int *, int);
  int (*total_of)(size_t *, int);
  int (*create)(void **, unsigned, int);
  int (*info)(size_t *, size_t *);
  int (*allocate)(unsigned long long *, size_t);
};

static void *open_it(const char *how, const char *file) {
  void *handle = NULL, *libc = dlopen("libc.so.6", RTLD_NOW);
  void *(*libc_dlopen)(const char *, int) = dlsym(libc, "dlopen");
  void *(*libc_dlmopen)(Lmid_t, const char *, int) = dlsym(libc, "dlmopen");
  dlerror(); /* before glibc 2.34 they are in libdl */
  if (strcmp(how, "open") == 0) handle = dlopen(file, RTLD_NOW);
  if (strcmp(how, "deepbind") == 0) handle = dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
  if (strcmp(how, "namespace") == 0) handle = dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
  if (strcmp(how, "libc-open") == 0) handle = libc_dlopen(file, RTLD_NOW);
  if (strcmp(how, "libc-namespace") == 0) handle = libc_dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
  if (strcmp(how, "default") == 0) handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL) ? RTLD_DEFAULT : NULL;
  if (strcmp(how, "next") == 0) handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL) ? RTLD_NEXT : NULL;
  const char *error = dlerror();
  if (error) {
    printf("{\"error\": \"%s\"}\n", error);
    exit(0);
  }
  return handle;
}

static struct driver functions(void *handle) {
  struct driver driver = {
      .init = dlsym(handle, "cuInit"),
      .count_of = dlsym(handle, "cuDeviceGetCount"),
      .device_of = dlsym(handle, "cuDeviceGet"),
      .total_of = dlsym(handle, "cuDeviceTotalMem_v2"),
      .create = dlsym(handle, "cuCtxCreate_v2"),
      .info = dlsym(handle, "cuMemGetInfo_v2"),
      .allocate = dlsym(handle, "cuMemAlloc_v2"),
  };
  const char *error = dlerror();
  if (error) {
    printf("{\"error\": \"%s\"}\n", error);
    exit(0);
  }
  return driver;
}

static int begin(const struct driver *driver) {
  void *context;
  int device, result = driver->init(0);
  if (result == 0) result = driver->device_of(&device, 0);
  return result == 0 ? driver->create(&context, 0, device) : result;
}

static void look(const struct driver *driver, int init, size_t bytes, const char *end) {
  size_t total = 0, left = 0, seen = 0;
  unsigned long long pointer;
  int count = 0, device = 0;
  if (init == 0) init = driver->count_of(&count);
  if (init == 0) init = driver->device_of(&device, 0);
  if (init == 0) init = driver->total_of(&total, device);
  if (init == 0) init = driver->info(&left, &seen);
  printf("{\"init\": %d, \"count\": %d, \"total\": %zu, \"info\": %zu, \"free\": %zu", init, count, total, seen, left);
  if (init == 0) printf(", \"alloc\": %d", driver->allocate(&pointer, bytes));
  printf("}%s", end);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: way HOW FILE BYTES [hold]\n");
    return 2;
  }
  size_t bytes = strtoull(argv[3], NULL, 10);
  if (strcmp(argv[1], "both") == 0) {
    struct driver here = functions(open_it("open", argv[2])), there = functions(open_it("namespace", argv[2]));
    printf("[");
    look(&here, begin(&here), bytes / 2, ", ");
    look(&there, begin(&there), bytes / 2, ", ");
    look(&here, 0, 1 << 20, "]\n");
  } else {
    struct driver driver = functions(open_it(argv[1], argv[2]));
    look(&driver, begin(&driver), bytes, "\n");
  }
  fflush(stdout);
  if (argc > 4) pause();
  return 0;
}
