/*
 * gang.c - data-parallel training as a load: in every step some kernels of its own on each of two devices, then one
 * kernel on both that spins until the other one runs (a collective, as NCCL makes them), asynchronously fed. Run hooked
 * or not; JSON lines on stdout, `completed` counts steps.
 *
 *   gang [--own N] [--own-us N] [--meet-us N] [--depth N] [--processes 1|2] [--seconds N] [--report-ms N]
 *
 * depth steps are in flight. One process feeds both devices in turn from one thread; two feed one device each, and the
 * first one reports. For the simulated device alone: there the kernel meet_N needs N us in which both devices run it
 * (model file; kernels of one process group meet). On a real one a spinning pair needs memory of each other.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { DEVICES = 2, DEPTH_MAX = 64, BLOCK_THREADS = 256 };

struct options {
  uint64_t own, own_us, meet_us, depth, processes, seconds, report_ms;
};

struct device {
  handle context, stream, own, meet, events[DEPTH_MAX];
  device_pointer sink;
};

struct gang {
  struct driver driver;
  struct options options;
  struct device devices[DEVICES];
  int first, last; /* the devices of this process */
  uint64_t issued, completed;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal) {
  (void)signal;
  stopped = 1;
}

static struct options parse(int argc, char **argv) {
  struct options options = {
      .own = 8, .own_us = 200, .meet_us = 100, .depth = 3, .processes = 1, .seconds = 5, .report_ms = 100};
  struct {
    const char *name;
    uint64_t *value;
  } numbers[] = {{"--own", &options.own},
                 {"--own-us", &options.own_us},
                 {"--meet-us", &options.meet_us},
                 {"--depth", &options.depth},
                 {"--seconds", &options.seconds},
                 {"--processes", &options.processes},
                 {"--report-ms", &options.report_ms}};
  for (int i = 1; i < argc; i += 2) {
    char *end = argv[i];
    size_t which = 0;
    while (which < sizeof numbers / sizeof *numbers && strcmp(argv[i], numbers[which].name)) which++;
    bool known = which < sizeof numbers / sizeof *numbers && i + 1 < argc;
    if (known) *numbers[which].value = strtoull(argv[i + 1], &end, 10);
    if (!known || end == argv[i + 1] || *end) {
      fprintf(stderr, "gang: %s is no option with a number\n", argv[i]);
      exit(2);
    }
  }
  if (!options.depth || options.depth > DEPTH_MAX || !options.processes || options.processes > DEVICES) {
    fprintf(stderr, "gang: --depth must be 1..%d and --processes 1 or 2\n", DEPTH_MAX);
    exit(2);
  }
  return options;
}

static void say(const struct gang *gang, const char *event) {
  if (gang->first != 0) return;
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"issued\": %llu, \"completed\": %llu}\n", event,
         getpid(), (unsigned long long)now_ns(), (unsigned long long)gang->issued, (unsigned long long)gang->completed);
  fflush(stdout);
}

static void launch(struct gang *gang, const struct device *device, handle function) {
  uint64_t rounds = 0;
  device_pointer sink = device->sink;
  void *arguments[] = {&rounds, &sink};
  CHECK(gang->driver.cuLaunchKernel(function, 1, 1, 1, BLOCK_THREADS, 1, 1, 0, device->stream, arguments, NULL));
}

static void complete_step(struct gang *gang) {
  for (int i = gang->first; i <= gang->last; i++) {
    const struct device *device = &gang->devices[i];
    CHECK(gang->driver.cuCtxSetCurrent(device->context));
    CHECK(gang->driver.cuEventSynchronize(device->events[gang->completed % gang->options.depth]));
  }
  gang->completed++;
}

static void issue_step(struct gang *gang) {
  if (gang->issued - gang->completed == gang->options.depth) complete_step(gang);
  for (int i = gang->first; i <= gang->last; i++) {
    const struct device *device = &gang->devices[i];
    CHECK(gang->driver.cuCtxSetCurrent(device->context));
    for (uint64_t n = 0; n < gang->options.own; n++) launch(gang, device, device->own);
  }
  for (int i = gang->first; i <= gang->last; i++) {
    const struct device *device = &gang->devices[i];
    CHECK(gang->driver.cuCtxSetCurrent(device->context));
    launch(gang, device, device->meet);
    CHECK(gang->driver.cuEventRecord(device->events[gang->issued % gang->options.depth], device->stream));
  }
  gang->issued++;
}

static void begin_device(struct gang *gang, int index) {
  struct driver *driver = &gang->driver;
  struct device *device = &gang->devices[index];
  char name[64];
  int ordinal;
  CHECK(driver->cuDeviceGet(&ordinal, index));
  CHECK(driver->cuDevicePrimaryCtxRetain(&device->context, ordinal));
  CHECK(driver->cuCtxSetCurrent(device->context));
  CHECK(driver->cuMemAlloc(&device->sink, 4096));
  snprintf(name, sizeof name, "spin_%llu", (unsigned long long)gang->options.own_us);
  device->own = spin_kernel(driver, name);
  snprintf(name, sizeof name, "meet_%llu", (unsigned long long)gang->options.meet_us);
  device->meet = spin_kernel(driver, name);
  CHECK(driver->cuStreamCreate(&device->stream, STREAM_NON_BLOCKING));
  for (uint64_t i = 0; i < gang->options.depth; i++)
    CHECK(driver->cuEventCreate(&device->events[i], EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING));
}

/* Steps until the time is over. Of two processes, one may have begun a step that the other never does: so the first one
 * ends without waiting for what is in flight, and the other with it. */
static void run(struct gang *gang) {
  uint64_t end_ns = now_ns() + gang->options.seconds * 1000000000, report_ns = 0;
  while (!stopped && now_ns() < end_ns) {
    issue_step(gang);
    if (now_ns() < report_ns) continue;
    say(gang, "progress");
    report_ns = now_ns() + gang->options.report_ms * 1000000;
  }
  while (gang->options.processes == 1 && gang->completed < gang->issued) complete_step(gang);
}

int main(int argc, char **argv) {
  static struct gang gang;
  gang.options = parse(argc, argv);
  gang.last = DEVICES - 1;
  if (gang.options.processes == DEVICES) {
    gang.first = gang.last = fork() ? 0 : 1;
    if (gang.first) prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  driver_open(&gang.driver, "libcuda.so.1");
  CHECK(gang.driver.cuInit(0));
  for (int i = gang.first; i <= gang.last; i++) begin_device(&gang, i);
  say(&gang, "ready");
  run(&gang);
  say(&gang, "end");
  return 0;
}
