/*
 * hostile_page.c - the attacker of benchmarks/hostile: attaches through the hook like any program, then finds its own
 * report page and its doorbell and writes what it likes. JSON lines on stdout as load.c's; "rings" counts doorbells,
 * "gate_changes" those of the gate word in its control page.
 *
 *   hostile_page MODE PERIOD_US [PROCESSES [KERNEL_US]]
 *
 * claim      says that a thread waits and that nothing is outstanding, and rings, every PERIOD_US
 * alternate  the same, but every other time it says that no thread waits
 * working    as claim, while it runs kernels without a pause
 * done       runs kernels like an honest program, a burst and a pause, and says that its completed work has taken all
 *            the time that a counter holds
 * counters   the same of every counter of time and launches, and of the times at which it drained and will have drained
 *
 * It is honest until SIGUSR1, and honest again from SIGUSR2. Honest, it wakes up as often and writes to an eventfd that
 * no thread reads: what then differs is what its page and its doorbells do, not the processor time that it takes.
 * SIGTERM ends it and its further processes.
 */
#define _GNU_SOURCE
#include "../../shim/abi/vg_abi.h"
#include "driver.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 64, BELLS_MAX = 16, BLOCK_THREADS = 256, BURST = 4, REPORT_MS = 50 };
static const uint64_t NS_PER_US = 1000, NS_PER_MS = 1000000;

struct mode {
  const char *name;
  void (*step)(uint64_t step);
  void (*take_back)(void);
  bool feeds, pauses;
};

static struct {
  struct driver driver;
  const struct mode *mode;
  uint64_t period_us, kernel_us;
  int processes;
  pid_t children[PROCESSES_MAX];
  volatile struct vg_report_device *report;
  const volatile struct vg_control_device *control;
  int bells[BELLS_MAX], bell_count, own_bell;
  uint64_t rings, gate_changes;
} attacker;

static volatile sig_atomic_t attacking, stopped;

static void on_signal(int signal) {
  if (signal == SIGUSR1)
    attacking = 1;
  else if (signal == SIGUSR2)
    attacking = 0;
  else
    stopped = 1;
  for (int i = 0; i < attacker.processes - 1; i++)
    if (attacker.children[i]) kill(attacker.children[i], signal);
}

static void say(const char *event) {
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"attacking\": %d, \"rings\": %llu, "
         "\"gate_changes\": %llu}\n",
         event, getpid(), (unsigned long long)now_ns(), (int)attacking, (unsigned long long)attacker.rings,
         (unsigned long long)attacker.gate_changes);
  fflush(stdout);
}

/* ---- what it was given ---- */

/* Where a memfd of this name is mapped by the hook; ends the program when it is not. */
static char *find_mapping(const char *name) {
  char line[512];
  unsigned long begin;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    if (!strstr(line, name) || sscanf(line, "%lx-", &begin) != 1) continue;
    fclose(maps);
    return (char *)begin;
  }
  fprintf(stderr, "hostile_page: no mapping of %s: run it in a slice\n", name);
  exit(3);
}

/* The doorbells: eventfds that do not block (the simulated device has one that does). */
static void find_bells(void) {
  char path[300], target[64];
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  while (folder && attacker.bell_count < BELLS_MAX && (entry = readdir(folder))) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = 0;
    int fd = atoi(entry->d_name);
    if (strcmp(target, "anon_inode:[eventfd]") || !(fcntl(fd, F_GETFL) & O_NONBLOCK)) continue;
    attacker.bells[attacker.bell_count++] = fd;
  }
  if (folder) closedir(folder);
}

static void ring(void) {
  const uint64_t one = 1;
  for (int i = 0; i < attacker.bell_count; i++)
    if (write(attacker.bells[i], &one, sizeof one) < 0) continue; /* full: it was rung */
  attacker.rings++;
}

static void ring_own(void) {
  const uint64_t one = 1;
  for (int i = 0; i < attacker.bell_count; i++)
    if (write(attacker.own_bell, &one, sizeof one) < 0) continue; /* full */
}

static void sleep_us(uint64_t us) {
  struct timespec span = {(time_t)(us / 1000000), (long)(us % 1000000 * NS_PER_US)};
  nanosleep(&span, NULL);
}

/* ---- modes: one step, every PERIOD_US, and what undoes it ---- */

static void claim(uint64_t step) {
  (void)step;
  attacker.report->outstanding = 0;
  attacker.report->waiting = 1;
  ring();
}

static void alternate(uint64_t step) {
  attacker.report->outstanding = 0;
  attacker.report->waiting = step % 2;
  ring();
}

static void unclaim(void) {
  attacker.report->waiting = 0;
  ring();
}

static void lie_done(uint64_t step) {
  (void)step;
  attacker.report->done_ns = UINT64_MAX;
}

static void lie_counters(uint64_t step) {
  volatile struct vg_report_device *report = attacker.report;
  lie_done(step);
  report->busy_ns = report->active_ns = UINT64_MAX;
  report->launches = report->waited_ns = report->drain_expected_ns = report->drained_ns = UINT64_MAX;
}

static void nothing(void) {}

/* The kernels of an honest program; one that pauses does so for as long as it computes. */
static void *feed(void *context) {
  struct driver *driver = &attacker.driver;
  device_pointer sink;
  handle stream;
  int sm_count;
  char name[64];
  CHECK(driver->cuCtxSetCurrent(context));
  CHECK(driver->cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SM_COUNT, 0));
  CHECK(driver->cuMemAlloc(&sink, 4096));
  CHECK(driver->cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  snprintf(name, sizeof name, "spin_%llu", (unsigned long long)attacker.kernel_us);
  handle function = spin_kernel(driver, name);
  unsigned grid = (unsigned)sm_count * 8;
  uint64_t rounds = spin_rounds(driver, function, grid, BLOCK_THREADS, sink, attacker.kernel_us);
  void *arguments[] = {&rounds, &sink};
  for (;;) {
    for (int i = 0; i < BURST; i++)
      CHECK(driver->cuLaunchKernel(function, grid, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL));
    CHECK(driver->cuStreamSynchronize(stream));
    if (attacker.mode->pauses) sleep_us(BURST * attacker.kernel_us);
  }
  return context;
}

static const struct mode modes[] = {
    {"claim", claim, unclaim, false, false},         {"alternate", alternate, unclaim, false, false},
    {"working", claim, nothing, true, false},        {"done", lie_done, nothing, true, true},
    {"counters", lie_counters, nothing, true, true},
};

static void open_device(void) {
  struct driver *driver = &attacker.driver;
  handle context;
  driver_open(driver, "libcuda.so.1");
  CHECK(driver->cuInit(0));
  CHECK(driver->cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver->cuCtxSetCurrent(context));
  char *report = find_mapping("memfd:vgpu-report");
  attacker.report = (volatile struct vg_report_device *)(report + VG_PAGE_BYTES);
  attacker.control = (const volatile struct vg_control_device *)(find_mapping("memfd:vgpu-control") + VG_PAGE_BYTES);
  find_bells();
  if (!attacker.bell_count) {
    fprintf(stderr, "hostile_page: no doorbell among its descriptors\n");
    exit(3);
  }
  attacker.own_bell = eventfd(0, EFD_NONBLOCK); /* after the search: it is none of the hook's */
  pthread_t thread;
  if (attacker.mode->feeds && pthread_create(&thread, NULL, feed, context)) exit(1);
}

/* Gate words carry the number of their lease: changes between two looks are counted, too. */
static void count_gate_changes(void) {
  static uint32_t before;
  static bool known;
  uint32_t number = attacker.control->gate >> VG_GATE_EPOCH_SHIFT;
  if (known) attacker.gate_changes += (number - before) & (UINT32_MAX >> VG_GATE_EPOCH_SHIFT);
  before = number;
  known = true;
}

static void attack_until_stopped(bool talks) {
  bool before = false;
  if (talks) say("ready");
  uint64_t report_ns = now_ns() + REPORT_MS * NS_PER_MS;
  for (uint64_t step = 0; !stopped; step++) {
    bool now = attacking;
    if (now)
      attacker.mode->step(step);
    else
      ring_own();
    if (before && !now) attacker.mode->take_back();
    before = now;
    count_gate_changes();
    if (talks && now_ns() >= report_ns) {
      say("progress");
      report_ns = now_ns() + REPORT_MS * NS_PER_MS;
    }
    sleep_us(attacker.period_us);
  }
}

/* Starts the further processes: each attaches by itself. Returns whether this is the first one. */
static bool fork_processes(void) {
  for (int i = 0; i < attacker.processes - 1; i++) {
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      memset(attacker.children, 0, sizeof attacker.children);
      return false;
    }
    attacker.children[i] = child;
  }
  return true;
}

int main(int argc, char **argv) {
  size_t mode = 0, all = sizeof modes / sizeof *modes;
  while (argc > 1 && mode < all && strcmp(argv[1], modes[mode].name)) mode++;
  attacker.period_us = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
  attacker.processes = argc > 3 ? atoi(argv[3]) : 1;
  attacker.kernel_us = argc > 4 ? strtoull(argv[4], NULL, 10) : 200;
  if (argc < 3 || argc > 5 || mode == all || !attacker.period_us || !attacker.kernel_us || attacker.processes < 1 ||
      attacker.processes > PROCESSES_MAX) {
    fprintf(stderr, "hostile_page: MODE PERIOD_US [PROCESSES [KERNEL_US]]; see hostile_page.c\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1); /* a period of 100 us is to be one */
  struct sigaction action = {.sa_handler = on_signal};
  const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
  bool first = fork_processes();
  attacker.mode = &modes[mode];
  open_device();
  attack_until_stopped(first);
  if (first) say("end");
  return 0;
}
