/*
 * start.c - the start of a program that uses a device, step by step: reads when it was started (CLOCK_MONOTONIC, ns)
 * from its argument, and prints how long after it main() began, the driver was loaded, cuInit() and the primary context
 * were done. Nothing but these steps. Without an argument it ends at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
  uint64_t main_ns = now_ns();
  if (argc < 2) return 0;
  uint64_t begin_ns = strtoull(argv[1], NULL, 10);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 2;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  uint64_t loaded_ns = now_ns();
  if (!init || !retain || init(0)) return 3;
  uint64_t init_ns = now_ns();
  void *context;
  if (retain(&context, 0)) return 4;
  uint64_t context_ns = now_ns();
  printf("%lu %lu %lu %lu\n", (unsigned long)(main_ns - begin_ns), (unsigned long)(loaded_ns - main_ns),
         (unsigned long)(init_ns - loaded_ns), (unsigned long)(context_ns - init_ns));
  return 0;
}
