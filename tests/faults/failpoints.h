/*
 * failpoints.h - kills the process before or after a store to memory that others read, or notes which stores it came
 * by. Included before each file of the library that tests/faults builds (-include); the shipped one has none of it.
 *
 * VGPU_FAILPOINT=FILE:LINE:AFTER:NTH kills it (SIGKILL) at that store, when it comes there for the NTH time; AFTER is 0
 * or 1. VGPU_FAILPOINT_LOG=PATH: a line FILE:LINE for each store, when it is reached first.
 */
#ifndef VG_FAILPOINTS_H
#define VG_FAILPOINTS_H
#ifndef __ASSEMBLER__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VG_STORE_AS(p, v, order)                                                                                       \
  (failpoint(__FILE__, __LINE__, 0), __atomic_store_n((p), (v), (order)), failpoint(__FILE__, __LINE__, 1))
#define FAILPOINTS_MAX 4096

static int failpoint_state; /* 0: the environment was not read yet; 1: nothing to do; 2: kills; 3: notes */
static char failpoint_wanted_file[64];
static int failpoint_wanted_line, failpoint_wanted_after, failpoint_wanted_nth, failpoint_log_fd = -1;
static int failpoint_reached;
static bool failpoint_noted[FAILPOINTS_MAX];

static int failpoint_read_environment(void) {
  const char *wanted = getenv("VGPU_FAILPOINT"), *path = getenv("VGPU_FAILPOINT_LOG");
  if (wanted && sscanf(wanted, "%63[^:]:%d:%d:%d", failpoint_wanted_file, &failpoint_wanted_line,
                       &failpoint_wanted_after, &failpoint_wanted_nth) == 4)
    return 2;
  if (!path) return 1;
  failpoint_log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return failpoint_log_fd < 0 ? 1 : 3;
}

static const char *failpoint_name_of(const char *file) {
  const char *shim = strstr(file, "shim/");
  return shim ? shim + 5 : file;
}

static void failpoint_note(const char *file, int line) {
  unsigned hash = (unsigned)line;
  for (const char *c = failpoint_name_of(file); *c; c++) hash = hash * 31 + (unsigned char)*c;
  bool *there = &failpoint_noted[hash % FAILPOINTS_MAX];
  if (__atomic_exchange_n(there, true, __ATOMIC_RELAXED)) return;
  char text[128];
  int length = snprintf(text, sizeof text, "%s:%d\n", failpoint_name_of(file), line);
  if (write(failpoint_log_fd, text, (size_t)length) < 0) return;
}

__attribute__((unused)) static void failpoint(const char *file, int line, int after) {
  if (!failpoint_state) failpoint_state = failpoint_read_environment();
  if (failpoint_state == 1) return;
  if (failpoint_state == 3) {
    failpoint_note(file, line);
    return;
  }
  if (line != failpoint_wanted_line || after != failpoint_wanted_after ||
      strcmp(failpoint_name_of(file), failpoint_wanted_file))
    return;
  if (__atomic_add_fetch(&failpoint_reached, 1, __ATOMIC_RELAXED) >= failpoint_wanted_nth) kill(getpid(), SIGKILL);
}
#endif
#endif
