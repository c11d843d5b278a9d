/*
 * alloc_syscalls.c - how many system calls a thread makes in COUNT x (cuMemAlloc, cuMemFree) of BYTES each, after as
 * many that are not counted: {"system_calls": n} on stdout. Run with the hook preloaded over a driver that makes none
 * itself, by benchmarks/alloc_overhead.py.
 *
 *   alloc_syscalls COUNT BYTES [OWN]      OWN: so many system calls of the thread's own, to see that they are seen
 *
 * The counting thread lets the kernel trap whatever it calls (seccomp); nothing is carried out any more, and the
 * process ends with the count.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct driver driver;
static handle context;
static int count, own;
static size_t bytes;
static volatile sig_atomic_t calls;
static bool done;

static void trapped(int number, siginfo_t *info, void *state) {
  (void)number, (void)info, (void)state;
  calls++;
}

static void trap_all(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
    fprintf(stderr, "no seccomp here: %d\n", errno);
    exit(3);
  }
}

static void run(void) {
  for (int i = 0; i < count; i++) {
    device_pointer pointer;
    CHECK(driver.cuMemAlloc(&pointer, bytes));
    CHECK(driver.cuMemFree(pointer));
  }
}

static void *counting(void *argument) {
  CHECK(driver.cuCtxSetCurrent(context));
  run();
  trap_all();
  run();
  for (int i = 0; i < own; i++) syscall(SYS_getppid);
  __atomic_store_n(&done, true, __ATOMIC_RELEASE);
  for (;;) __asm__ volatile("pause"); /* it can call nothing, not even its end */
  return argument;
}

int main(int argc, char **argv) {
  struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
  pthread_t thread;
  if (argc < 3) {
    fprintf(stderr, "usage: alloc_syscalls COUNT BYTES [OWN]\n");
    return 2;
  }
  count = atoi(argv[1]);
  bytes = strtoull(argv[2], NULL, 10);
  own = argc > 3 ? atoi(argv[3]) : 0;
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  sigaction(SIGSYS, &action, NULL);
  if (pthread_create(&thread, NULL, counting, NULL)) return 1;
  while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) usleep(1000);
  printf("{\"system_calls\": %d}\n", (int)calls);
  fflush(stdout);
  _exit(0);
}
