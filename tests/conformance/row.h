/*
 * row.h - for the programs of tests/conformance: one family of rows each. A row is a function in a process of its own
 * that calls the driver and says facts which hold on every device: codes, sizes in granules, data checks; never a time
 * and never an address. Its line on stdout is `name: fact=value ...`.
 */
#ifndef CONFORMANCE_ROW_H
#define CONFORMANCE_ROW_H
#include "gen/abi/cuda_abi.h"
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define GRANULE (2 * MIB)
#define UNTOUCHED 77
#define CODE(name, call) fact(name, (long long)(call))
/* What a row stands on: when this fails the row has nothing to say about its own subject. */
#define NEED(call)                                                                                                     \
  do {                                                                                                                 \
    CUresult got_ = (call);                                                                                            \
    if (got_ != CUDA_SUCCESS) {                                                                                        \
      fact(#call, (long long)got_);                                                                                    \
      finish();                                                                                                        \
    }                                                                                                                  \
  } while (0)

struct row {
  const char *name;
  void (*run)(void);
};

static char line[4096];
static size_t *most_free; /* of all rows: what was free with one context there, and a few MiB less */
static int settled;       /* this row has waited for the one before it to be gone, or may not */

static inline void fact(const char *name, long long value) {
  size_t used = strlen(line);
  snprintf(line + used, sizeof line - used, " %s=%lld", name, value);
}

static inline void finish(void) {
  puts(line);
  fflush(stdout);
  _exit(0); /* what the row still holds goes as it does when a process is killed */
}

/* For a row that this device cannot have anything to say to. */
static inline void skip(const char *reason) {
  line[strcspn(line, ":")] = 0;
  printf("%s: skipped: %s\n", line, reason);
  fflush(stdout);
  _exit(0);
}

static inline void need_attribute(CUdevice_attribute attribute, const char *what) {
  int value = 0;
  NEED(cuInit(0));
  NEED(cuDeviceGetAttribute(&value, attribute, 0));
  if (!value) skip(what);
}

static inline size_t total_bytes(void) {
  size_t free_now, total;
  NEED(cuMemGetInfo_v2(&free_now, &total));
  return total;
}

static inline size_t free_bytes(void) {
  size_t free_now, total;
  NEED(cuMemGetInfo_v2(&free_now, &total));
  return free_now;
}

/* What is free once it stays so: what another process has taken may be seen a moment later. */
static inline size_t steady_free_bytes(void) {
  size_t now = free_bytes();
  for (int same = 0; same < 10;) {
    usleep(30000);
    size_t then = now;
    now = free_bytes();
    same = now == then ? same + 1 : 0;
  }
  return now;
}

/* Is so much free, now or soon? What another process gives back may be seen a moment later. */
static inline int comes_back(size_t wanted) {
  for (int tries = 0; tries < 500 && free_bytes() < wanted; tries++) usleep(10000);
  return free_bytes() >= wanted;
}

/*
 * Sizes are compared once what the process of the row before held has been given back. It held a context at least, so
 * a few MiB less, as a driver may keep them, are nothing of it.
 */
static inline void settle(void) {
  if (settled) return;
  settled = 1;
  if (!comes_back(*most_free)) fact("of_the_row_before", (long long)(*most_free - free_bytes()));
  size_t now = free_bytes() - 16 * MIB;
  if (now > *most_free) *most_free = now;
}

/* The primary context of device 0, current, and its first allocation made: a driver may take memory with it. */
static inline void begin(void) {
  CUcontext context;
  CUdeviceptr first;
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  NEED(cuMemAlloc_v2(&first, 1));
  NEED(cuMemFree_v2(first));
  settle();
}

/* How many granules are taken that were free at `before`; negative: given back. */
static inline void taken(const char *name, size_t before) {
  fact(name, ((long long)before - (long long)free_bytes()) / (long long)GRANULE);
}

/* Work that holds a stream until open_gate(): what follows it is surely not done. */
struct gate {
  sem_t open;
};

static inline void wait_at_gate(void *gate) {
  sem_wait(&((struct gate *)gate)->open);
}

static inline void close_gate(struct gate *gate, CUstream stream) {
  sem_init(&gate->open, 0, 0);
  NEED(cuLaunchHostFunc(stream, wait_at_gate, gate));
}

static inline void open_gate(struct gate *gate) {
  sem_post(&gate->open);
}

/* Runs every row, or the one that is named. The parent makes no driver call: each row begins before cuInit. */
static inline int run_rows(const struct row *rows, size_t count, int argc, char **argv) {
  most_free = mmap(NULL, sizeof *most_free, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (most_free == MAP_FAILED) return 1;
  for (size_t i = 0; i < count; i++) {
    if (argc > 1 && strcmp(argv[1], rows[i].name) != 0) continue;
    pid_t child = fork();
    if (child == 0) {
      snprintf(line, sizeof line, "%s:", rows[i].name);
      alarm(60);
      rows[i].run();
      finish();
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status)) printf("%s: signal=%d\n", rows[i].name, WTERMSIG(status));
    fflush(stdout);
  }
  return 0;
}

#define ROWS(...)                                                                                                      \
  int main(int argc, char **argv) {                                                                                    \
    static const struct row rows[] = {__VA_ARGS__};                                                                    \
    return run_rows(rows, sizeof rows / sizeof *rows, argc, argv);                                                     \
  }
#define ROW(function) {#function, function}

#endif
