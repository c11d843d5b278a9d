/*
 * checkpoint.c - how fast the driver moves a process off the device and back (cuCheckpointProcess*): a child fills
 * MIB of memory, this process locks, checkpoints, restores and unlocks it, and the child looks at its memory. One JSON
 * object on stdout; exit code 3, with the reason, where the driver or the device cannot do it.
 */
#define _GNU_SOURCE
#include "../tenants/driver.h"
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATE_RUNNING, STATE_LOCKED, STATE_CHECKPOINTED };
enum { CODE_NOT_FOUND = 500, CODE_NOT_SUPPORTED = 801, LOCK_TIMEOUT_MS = 10000, CANNOT = 3 };
#define MIB (1ull << 20)
#define FILL 0x5a

/* The arguments of all four calls have 64 bytes; only the lock's timeout is not zero. */
union arguments {
  unsigned timeout_ms;
  uint64_t words[8];
};

struct checkpointing {
  int (*lock)(int, union arguments *);
  int (*checkpoint)(int, union arguments *);
  int (*restore)(int, union arguments *);
  int (*unlock)(int, union arguments *);
  int (*state)(int, int *);
};

static void cannot(const char *why) {
  printf("%s\n", why);
  exit(CANNOT);
}

static void find(void *library, const char *name, void *member) {
  *(void **)member = dlsym(library, name);
  if (!*(void **)member) cannot("the driver has no cuCheckpointProcess* (570 and later have)");
}

static void open_context(struct driver *driver) {
  handle context;
  driver_open(driver, "libcuda.so.1");
  CHECK(driver->cuInit(0));
  CHECK(driver->cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver->cuCtxSetCurrent(context));
}

static void say(int fd) {
  if (write(fd, "g", 1) != 1) exit(1);
}

static void await(int fd) {
  char byte;
  if (read(fd, &byte, 1) != 1) exit(1);
}

/* Fills its memory, waits for a byte, then looks at a byte of each MiB: 0 when all are what they were. */
static int child(int in, int out, size_t bytes) {
  struct driver driver;
  device_pointer block;
  open_context(&driver);
  CHECK(driver.cuMemAlloc(&block, bytes));
  CHECK(driver.cuMemsetD8(block, FILL, bytes));
  CHECK(driver.cuCtxSynchronize());
  say(out);
  await(in);
  for (size_t at = 0; at < bytes; at += MIB) {
    unsigned char byte = 0;
    CHECK(driver.cuMemcpyDtoH(&byte, block + at, 1));
    if (byte != FILL) return 1;
  }
  return 0;
}

static size_t free_bytes(struct driver *driver) {
  size_t free_now, total;
  CHECK(driver->cuMemGetInfo(&free_now, &total));
  return free_now;
}

static double timed(int (*call)(int, union arguments *), pid_t pid, unsigned timeout_ms) {
  union arguments arguments = {0};
  arguments.timeout_ms = timeout_ms;
  uint64_t begin_ns = now_ns();
  CHECK(call(pid, &arguments));
  return (double)(now_ns() - begin_ns) / 1e9;
}

static void expect_state(const struct checkpointing *api, pid_t pid, int wanted) {
  int state = -1;
  CHECK(api->state(pid, &state));
  if (state == wanted) return;
  fprintf(stderr, "the process is in state %d and not in %d\n", state, wanted);
  exit(1);
}

static bool measure(struct driver *driver, const struct checkpointing *api, pid_t pid, size_t bytes) {
  int state;
  int code = api->state(pid, &state);
  if (code == CODE_NOT_SUPPORTED || code == CODE_NOT_FOUND) return false;
  double lock_s = timed(api->lock, pid, LOCK_TIMEOUT_MS);
  expect_state(api, pid, STATE_LOCKED);
  size_t before = free_bytes(driver);
  double checkpoint_s = timed(api->checkpoint, pid, 0);
  expect_state(api, pid, STATE_CHECKPOINTED);
  size_t after = free_bytes(driver), freed = after > before ? after - before : 0;
  double restore_s = timed(api->restore, pid, 0);
  double unlock_s = timed(api->unlock, pid, 0);
  expect_state(api, pid, STATE_RUNNING);
  printf("{\"bytes\": %zu, \"freed_bytes\": %zu, \"lock_ms\": %.3f, \"checkpoint_s\": %.4f, \"restore_s\": %.4f, "
         "\"unlock_ms\": %.3f, \"checkpoint_gb_per_s\": %.3f, \"restore_gb_per_s\": %.3f, ",
         bytes, freed, lock_s * 1e3, checkpoint_s, restore_s, unlock_s * 1e3, (double)bytes / checkpoint_s / 1e9,
         (double)bytes / restore_s / 1e9);
  return true;
}

int main(int argc, char **argv) {
  if (argc != 2) cannot("usage: checkpoint MIB");
  size_t bytes = strtoull(argv[1], NULL, 10) * MIB;
  int to[2], from[2], status = 0;
  if (pipe(to) || pipe(from)) return 1;
  pid_t pid = fork();
  if (pid == 0) {
    close(to[1]); /* so that it ends when this process does */
    close(from[0]);
    _exit(child(to[0], from[1], bytes));
  }
  close(to[0]);
  close(from[1]);
  struct driver driver;
  struct checkpointing api;
  open_context(&driver);
  find(driver.library, "cuCheckpointProcessLock", &api.lock);
  find(driver.library, "cuCheckpointProcessCheckpoint", &api.checkpoint);
  find(driver.library, "cuCheckpointProcessRestore", &api.restore);
  find(driver.library, "cuCheckpointProcessUnlock", &api.unlock);
  find(driver.library, "cuCheckpointProcessGetState", &api.state);
  await(from[0]);
  bool can = measure(&driver, &api, pid, bytes);
  say(to[1]);
  waitpid(pid, &status, 0);
  if (!can) cannot("the driver does not checkpoint processes of this device");
  printf("\"intact\": %d}\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}
