/*
 * attached.c - processes that are attached and do nothing: each initialises the driver, holds a context, and sleeps.
 *
 *   attached COUNT [COMMAND [ARGUMENT]...]
 *
 * Forks COUNT of them, prints a JSON line when all are there, and sleeps as well, or becomes COMMAND. They end with it.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static void attach(int ready_fd) {
  static struct driver driver;
  handle context;
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  if (write(ready_fd, "", 1) != 1) exit(1);
  for (;;) pause();
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 0, ready[2];
  if (count < 1 || pipe(ready)) {
    fprintf(stderr, "usage: attached COUNT [COMMAND [ARGUMENT]...]\n");
    return 2;
  }
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0) {
      perror("fork");
      return 1;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ready[0]);
      attach(ready[1]);
    }
  }
  close(ready[1]);
  char byte;
  for (int there = 0; there < count; there++) {
    if (read(ready[0], &byte, 1) == 1) continue;
    fprintf(stderr, "attached: %d of %d processes have ended\n", count - there, count);
    return 1;
  }
  printf("{\"event\": \"attached\", \"count\": %d}\n", count);
  fflush(stdout);
  if (argc > 2) {
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
  }
  for (;;) pause();
}
