/* driver.c - see driver.h. */
#include "simcuda/common/driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* As glibc_floor.h has it of other functions; that one is also for libvgpu.so, which has a dlopen of its own. */
__asm__(".symver dlopen, dlopen@" VG_GLIBC_BASE);

static struct sc_driver driver;
static const struct sc_driver *loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* By an entry point that no driver of NVIDIA's has. */
static bool is_simulated(void) {
  CUdriverProcAddressQueryResult status;
  void *entry = NULL;
  return driver.cuGetProcAddress_v2(SC_SIMULATED_ENTRY, &entry, CUDA_VERSION, 0, &status) == CUDA_SUCCESS &&
         entry != NULL;
}

static void load(void) {
  static const char *const names[] = {
#define SC_ENTRY(name) #name,
      SC_DRIVER_NAMES(SC_ENTRY)
#undef SC_ENTRY
  };
  void **entries = (void **)&driver;
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "vgpu: the SIMULATED CUDA libraries need the simulated driver: %s\n", dlerror());
    return;
  }
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    entries[i] = dlsym(library, names[i]);
    if (entries[i] == NULL) {
      fprintf(stderr, "vgpu: the SIMULATED CUDA libraries need a driver with %s\n", names[i]);
      return;
    }
  }
  if (!is_simulated()) {
    fprintf(stderr, "vgpu: the SIMULATED CUDA libraries compute nothing: they do not run on a real driver\n");
    return;
  }
  loaded = &driver;
}

const struct sc_driver *sc_driver(void) {
  pthread_once(&once, load);
  return loaded;
}
