/* two_versions.c - both runtimes in one process, as two packages may bring them: they share the device's memory. */
#include "simcuda/cudart/cudart_abi.h"
#include <dlfcn.h>
#include <stdio.h>

struct runtime {
  cudaError_t (*malloc)(void **pointer, size_t bytes);
  cudaError_t (*free)(void *pointer);
  cudaError_t (*set)(int device);
  cudaError_t (*version)(int *version);
};

static struct runtime load(const char *path) {
  struct runtime runtime;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *(void **)&runtime.malloc = dlsym(library, "cudaMalloc");
  *(void **)&runtime.free = dlsym(library, "cudaFree");
  *(void **)&runtime.set = dlsym(library, "cudaSetDevice");
  *(void **)&runtime.version = dlsym(library, "cudaRuntimeGetVersion");
  return runtime;
}

int main(int count, char **paths) {
  if (count != 3) return 2;
  struct runtime old = load(paths[1]), new = load(paths[2]);
  int old_version, new_version;
  void *pointer;
  if (old.version(&old_version) != 0 || new.version(&new_version) != 0) return 1;
  if (old.set(0) != 0 || new.malloc(&pointer, 64) != 0 || old.free(pointer) != 0) return 1;
  if (new.free(pointer) != cudaErrorInvalidValue) return 1;
  printf("%d %d ok\n", old_version, new_version);
  return 0;
}
