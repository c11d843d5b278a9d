/*
 * memory.c - what a tenant sees of its memory limit. Run by benchmarks/memory_exact.py in a slice; JSON lines on
 * stdout, commands on stdin.
 *
 *   memory fill GRANULE_BYTES   free and total right after the context, then all of it in granules, one granule more
 *                               (the code), then one granule freed and taken again; "held"; waits for the end of stdin
 *   memory watch BYTES          waits for a line on stdin, then asks every 200 us until so many bytes are free: "back"
 */
#define _GNU_SOURCE
#include "driver.h"
#include <string.h>
#include <unistd.h>

enum { CHUNK_GRANULES = 512 };

static struct driver driver;

static void say_info(const char *event) {
  size_t free_now, total;
  CHECK(driver.cuMemGetInfo(&free_now, &total));
  size_t device_total;
  CHECK(driver.cuDeviceTotalMem(&device_total, 0));
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"free_bytes\": %zu, \"total_bytes\": %zu, "
         "\"device_total_bytes\": %zu}\n",
         event, getpid(), (unsigned long long)now_ns(), free_now, total, device_total);
  fflush(stdout);
}

/* Takes everything that is said to be free: large blocks, then granules. Returns what could be taken. */
static size_t take_all(size_t granule, device_pointer *ret_last) {
  size_t taken = 0, free_now, total;
  CHECK(driver.cuMemGetInfo(&free_now, &total));
  for (size_t step = granule * CHUNK_GRANULES; step >= granule; step /= CHUNK_GRANULES) {
    size_t spare = step > granule ? granule : 0; /* the last block is a granule, which fill() frees and takes again */
    while (free_now - taken >= step + spare) {
      int code = driver.cuMemAlloc(ret_last, step);
      if (code) {
        printf("{\"event\": \"refused early\", \"code\": %d, \"taken_bytes\": %zu, \"step_bytes\": %zu}\n", code, taken,
               step);
        return taken;
      }
      taken += step;
    }
  }
  return taken;
}

static void fill(size_t granule) {
  device_pointer last = 0, more;
  say_info("context");
  size_t taken = take_all(granule, &last);
  uint64_t begin_ns = now_ns();
  int code = driver.cuMemAlloc(&more, granule);
  uint64_t refused_ns = now_ns() - begin_ns;
  int small_code = driver.cuMemAlloc(&more, 1);
  printf("{\"event\": \"filled\", \"taken_bytes\": %zu, \"one_more_code\": %d, \"one_byte_more_code\": %d, "
         "\"refused_after_us\": %.1f}\n",
         taken, code, small_code, (double)refused_ns / 1000);
  CHECK(driver.cuMemFree(last));
  code = driver.cuMemAlloc(&last, granule);
  printf("{\"event\": \"again\", \"code\": %d}\n", code);
  say_info("held");
  char byte;
  while (read(0, &byte, 1) > 0) continue;
}

static void watch(size_t wanted) {
  size_t free_now = 0, total;
  char byte;
  say_info("context");
  if (read(0, &byte, 1) != 1) return;
  while (free_now < wanted) {
    CHECK(driver.cuMemGetInfo(&free_now, &total));
    if (free_now < wanted) usleep(200);
  }
  say_info("back");
  device_pointer pointer;
  int code = driver.cuMemAlloc(&pointer, wanted);
  printf("{\"event\": \"taken\", \"time_ns\": %llu, \"code\": %d}\n", (unsigned long long)now_ns(), code);
}

int main(int argc, char **argv) {
  if (argc != 3 || (strcmp(argv[1], "fill") && strcmp(argv[1], "watch"))) {
    fprintf(stderr, "usage: memory fill GRANULE_BYTES | watch BYTES\n");
    return 2;
  }
  handle context;
  size_t bytes = strtoull(argv[2], NULL, 10);
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  if (*argv[1] == 'f')
    fill(bytes);
  else
    watch(bytes);
  return 0;
}
