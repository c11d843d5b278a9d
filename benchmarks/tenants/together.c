/*
 * together.c - programs that start at once: starts itself so many times, each with a context and memory, and waits for
 * all. Prints how long that took and then, for each, how long its cuInit() did, in ns. Written in C, since an
 * interpreter's own start would hide what a hook adds.
 *
 *   together COUNT [PRELOAD]
 */
#include "driver.h"
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES (4ul << 20)
#define COUNT_MAX 256

extern char **environ;

/* Its cuInit()'s ns go to standard output in one piece. */
static int be_one(void) {
  struct driver driver;
  handle context;
  device_pointer memory;
  driver_open(&driver, "libcuda.so.1");
  uint64_t begin_ns = now_ns();
  CHECK(driver.cuInit(0));
  uint64_t took_ns = now_ns() - begin_ns;
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  CHECK(driver.cuMemAlloc(&memory, MEMORY_BYTES));
  return write(STDOUT_FILENO, &took_ns, sizeof took_ns) != sizeof took_ns;
}

static int start(char *self, int output, pid_t *ret_pid) {
  char *arguments[] = {self, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  int error = posix_spawn(ret_pid, self, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

int main(int argc, char **argv) {
  if (argc < 2) return be_one();
  int count = atoi(argv[1]), ends[2], failed = 0, status;
  pid_t pids[COUNT_MAX];
  uint64_t init_ns[COUNT_MAX];
  if (count < 1 || count > COUNT_MAX || pipe(ends)) return 2;
  if (argc > 2) setenv("LD_PRELOAD", argv[2], 1); /* not before: this program is no part of it */
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < count; i++) failed |= start(argv[0], ends[1], &pids[i]);
  for (int i = 0; i < count && !failed; i++) failed |= waitpid(pids[i], &status, 0) != pids[i] || status != 0;
  uint64_t took_ns = now_ns() - begin_ns;
  if (failed || read(ends[0], init_ns, (size_t)count * sizeof *init_ns) != (ssize_t)((size_t)count * sizeof *init_ns)) {
    fprintf(stderr, "together: a program has failed\n");
    return 1;
  }
  printf("%lu", (unsigned long)took_ns);
  for (int i = 0; i < count; i++) printf(" %lu", (unsigned long)init_ns[i]);
  printf("\n");
  return 0;
}
