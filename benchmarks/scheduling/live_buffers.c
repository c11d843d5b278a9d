/* A job of the live benchmark with memory on the device: fills it, says "filled", launches until it is asked to check,
 * then says "same" when every byte is as it was written. Built and started by live.py; the driver comes by dlopen, so
 * that the shim is in front of it.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WORDS (8u << 20)
#define PIECE (1u << 20)

typedef int (*call_0)(unsigned);
typedef int (*device_get)(int *, int);
typedef int (*context_new)(void **, unsigned, int);
typedef int (*mem_alloc)(uint64_t *, size_t);
typedef int (*mem_put)(uint64_t, const void *, size_t);
typedef int (*mem_get)(void *, uint64_t, size_t);

static void *driver;

static void *named(const char *name) {
  void *found = dlsym(driver, name);
  if (!found) {
    fprintf(stderr, "no %s\n", name);
    exit(2);
  }
  return found;
}

static void must(int result, const char *what) {
  if (result) {
    fprintf(stderr, "%s: %d\n", what, result);
    exit(2);
  }
}

static uint32_t word(uint32_t index) {
  return index * 2654435761u ^ index >> 7;
}

int main(int argc, char **argv) {
  static uint32_t piece[PIECE];
  uint64_t memory = 0;
  void *context = NULL;
  int device = 0;
  if (argc != 2) return 2;
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  must(((call_0)named("cuInit"))(0), "cuInit");
  must(((device_get)named("cuDeviceGet"))(&device, 0), "cuDeviceGet");
  must(((context_new)named("cuCtxCreate_v2"))(&context, 0, device), "cuCtxCreate");
  must(((mem_alloc)named("cuMemAlloc_v2"))(&memory, (size_t)WORDS * 4), "cuMemAlloc");
  for (uint32_t at = 0; at < WORDS; at += PIECE) {
    for (uint32_t i = 0; i < PIECE; i++) piece[i] = word(at + i);
    must(((mem_put)named("cuMemcpyHtoD_v2"))(memory + (uint64_t)at * 4, piece, sizeof piece), "cuMemcpyHtoD");
  }
  puts("filled");
  fflush(stdout);
  while (access(argv[1], F_OK)) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  for (uint32_t at = 0; at < WORDS; at += PIECE) {
    must(((mem_get)named("cuMemcpyDtoH_v2"))(piece, memory + (uint64_t)at * 4, sizeof piece), "cuMemcpyDtoH");
    for (uint32_t i = 0; i < PIECE; i++) {
      if (piece[i] != word(at + i)) {
        puts("different");
        return 1;
      }
    }
  }
  puts("same");
  return 0;
}
