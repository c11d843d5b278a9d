/*
 * sleeper MIB KERNEL_US busy|managed|call|allocate - has so much device memory. busy: launches kernels back to back,
 * and says ten times a second how many have completed; managed: the same with managed memory, each kernel on the next
 * piece of it; call: for each line on stdin it launches one, waits for it, and says how long that took; allocate: says
 * how long an allocation of as much more and its freeing take together, of some hundred. JSON lines on stdout.
 */
#include "driver.h"
#include <string.h>
#include <unistd.h>

enum { ALLOCATIONS = 300 };
enum { BATCH = 64 }; /* as much work as hides a late wake-up of this program */
enum { PIECE_MIB = 4 };
enum { ATTACH_GLOBAL = 1 };

static device_pointer *pieces; /* of managed memory */
static size_t piece_count, next_piece;

static void say(const char *name, uint64_t value) {
  printf("{\"%s\": %llu, \"pid\": %d}\n", name, (unsigned long long)value, (int)getpid());
  fflush(stdout);
}

static void run(struct driver *driver, handle function, int count) {
  uint64_t rounds = 1;
  device_pointer sink = 0;
  void *arguments[] = {&rounds, &sink};
  for (int i = 0; i < count; i++) {
    if (piece_count) sink = pieces[next_piece++ % piece_count];
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
  }
  CHECK(driver->cuCtxSynchronize());
}

static void allocate_managed(struct driver *driver, size_t mib) {
  int (*cuMemAllocManaged)(device_pointer *, size_t, unsigned);
  *(void **)&cuMemAllocManaged = dlsym(driver->library, "cuMemAllocManaged");
  piece_count = mib / PIECE_MIB;
  pieces = calloc(piece_count, sizeof *pieces);
  for (size_t i = 0; i < piece_count; i++) CHECK(cuMemAllocManaged(&pieces[i], (size_t)PIECE_MIB << 20, ATTACH_GLOBAL));
}

static void allocate(struct driver *driver, size_t bytes) {
  device_pointer memory;
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < ALLOCATIONS; i++) {
    CHECK(driver->cuMemAlloc(&memory, bytes));
    CHECK(driver->cuMemFree(memory));
  }
  say("allocation_ns", (now_ns() - begin_ns) / ALLOCATIONS);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  struct driver driver;
  device_pointer memory;
  handle context;
  char name[32];
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  snprintf(name, sizeof name, "spin_%s", argv[2]);
  handle function = spin_kernel(&driver, name);
  if (strcmp(argv[3], "managed") == 0)
    allocate_managed(&driver, (size_t)atoll(argv[1]));
  else
    CHECK(driver.cuMemAlloc(&memory, (size_t)atoll(argv[1]) << 20));
  run(&driver, function, 1);
  say("ready", 1);
  if (strcmp(argv[3], "allocate") == 0) {
    allocate(&driver, (size_t)atoll(argv[1]) << 20);
    return getchar() == EOF ? 0 : 1;
  }
  if (strcmp(argv[3], "call") == 0) {
    while (getchar() != EOF) {
      uint64_t begin_ns = now_ns();
      run(&driver, function, 1);
      say("call_ns", now_ns() - begin_ns);
    }
    return 0;
  }
  uint64_t completed = 0, said_ns = 0;
  for (;;) {
    run(&driver, function, BATCH);
    completed += BATCH;
    if (now_ns() - said_ns < 100000000ull) continue;
    said_ns = now_ns();
    say("completed", completed);
  }
}
