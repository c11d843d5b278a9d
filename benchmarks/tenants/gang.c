/*
 * gang.c - data-parallel training as a load: in every step some kernels of its own on each of two devices, then one
 * kernel on both that spins until the other one runs (a collective, as NCCL makes them), asynchronously fed. Run hooked
 * or not; JSON lines on stdout, `completed` counts steps.
 *
 *   gang [--own N] [--own-us N] [--meet-us N] [--depth N] [--processes 1|2] [--threads 1|2] [--launch 0..3]
 *        [--unknown 0|1] [--steps N] [--seconds N] [--report-ms N]
 *
 * depth steps are in flight. One process feeds both devices in turn from one thread; two threads, or two processes,
 * feed one device each, and the first one reports. launch: the spinning kernel is launched plainly (0), as a
 * cooperative one (1), with attributes (2), or with the step's other kernels in a graph (3). It ends after so many
 * steps, if any, or seconds. For the simulated device alone: there the kernel meet_N needs N us in which both devices
 * run it (model file; kernels of one process group meet), and so does rendezvous_N (unknown), whose name no gate knows.
 * On a real one a spinning pair needs memory of each other.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 2, DEPTH_MAX = 64, BLOCK_THREADS = 256 };
enum { PLAIN, COOPERATIVE, WITH_ATTRIBUTES, IN_A_GRAPH, WAYS };

struct options {
  uint64_t own, own_us, meet_us, depth, processes, threads, launch, unknown, steps, seconds, report_ms;
};

struct device {
  handle context, stream, own, meet, graph, events[DEPTH_MAX];
  device_pointer sink;
};

struct gang {
  struct driver driver;
  struct options options;
  struct device devices[DEVICES];
  int first, last; /* the devices of this process, or thread */
  uint64_t issued, completed;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal) {
  (void)signal;
  stopped = 1;
}

static struct options parse(int argc, char **argv) {
  struct options options = {.own = 8,
                            .own_us = 200,
                            .meet_us = 100,
                            .depth = 3,
                            .processes = 1,
                            .threads = 1,
                            .seconds = 5,
                            .report_ms = 100};
  struct {
    const char *name;
    uint64_t *value;
  } numbers[] = {
      {"--own", &options.own},         {"--own-us", &options.own_us},      {"--meet-us", &options.meet_us},
      {"--depth", &options.depth},     {"--seconds", &options.seconds},    {"--processes", &options.processes},
      {"--threads", &options.threads}, {"--launch", &options.launch},      {"--unknown", &options.unknown},
      {"--steps", &options.steps},     {"--report-ms", &options.report_ms}};
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
  bool one_or_two = options.processes - 1 < DEVICES && options.threads - 1 < DEVICES;
  if (!options.depth || options.depth > DEPTH_MAX || !one_or_two || options.launch >= WAYS) {
    fprintf(stderr, "gang: --depth must be 1..%d, --processes and --threads 1 or 2, --launch 0..3\n", DEPTH_MAX);
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

static void launch(const struct gang *gang, const struct device *device, handle function, uint64_t way) {
  const struct driver *driver = &gang->driver;
  uint64_t rounds = 0;
  device_pointer sink = device->sink;
  handle stream = device->stream;
  void *arguments[] = {&rounds, &sink};
  struct launch_config config = {1, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, NULL, 0};
  if (way == COOPERATIVE)
    CHECK(driver->cuLaunchCooperativeKernel(function, 1, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments));
  else if (way == WITH_ATTRIBUTES)
    CHECK(driver->cuLaunchKernelEx(&config, function, arguments, NULL));
  else
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL));
}

static void launch_own(const struct gang *gang, const struct device *device) {
  for (uint64_t n = 0; n < gang->options.own; n++) launch(gang, device, device->own, PLAIN);
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
    if (!device->graph) launch_own(gang, device);
  }
  for (int i = gang->first; i <= gang->last; i++) {
    const struct device *device = &gang->devices[i];
    CHECK(gang->driver.cuCtxSetCurrent(device->context));
    if (device->graph)
      CHECK(gang->driver.cuGraphLaunch(device->graph, device->stream));
    else
      launch(gang, device, device->meet, gang->options.launch);
    CHECK(gang->driver.cuEventRecord(device->events[gang->issued % gang->options.depth], device->stream));
  }
  gang->issued++;
}

/* A step's kernels on one device. */
static void make_graph(const struct gang *gang, struct device *device) {
  const struct driver *driver = &gang->driver;
  handle graph;
  CHECK(driver->cuStreamBeginCapture(device->stream, CAPTURE_THREAD_LOCAL));
  launch_own(gang, device);
  launch(gang, device, device->meet, PLAIN);
  CHECK(driver->cuStreamEndCapture(device->stream, &graph));
  CHECK(driver->cuGraphInstantiateWithFlags(&device->graph, graph, 0));
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
  const char *kind = gang->options.unknown ? "rendezvous" : "meet";
  snprintf(name, sizeof name, "%s_%llu", kind, (unsigned long long)gang->options.meet_us);
  device->meet = spin_kernel(driver, name);
  CHECK(driver->cuStreamCreate(&device->stream, STREAM_NON_BLOCKING));
  for (uint64_t i = 0; i < gang->options.depth; i++)
    CHECK(driver->cuEventCreate(&device->events[i], EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING));
  if (gang->options.launch == IN_A_GRAPH) make_graph(gang, device);
}

/* Steps until the time is over, or all are done. When the time is over, one of two processes or threads may have begun
 * a step that the other never does: so the first one ends without waiting for what is in flight, and the other with it.
 */
static void run(struct gang *gang) {
  const struct options *options = &gang->options;
  uint64_t end_ns = now_ns() + options->seconds * 1000000000, report_ns = 0;
  bool both = gang->first != gang->last, all = false;
  while (!stopped && !all && now_ns() < end_ns) {
    issue_step(gang);
    all = gang->issued == options->steps;
    if (now_ns() < report_ns) continue;
    say(gang, "progress");
    report_ns = now_ns() + options->report_ms * 1000000;
  }
  while ((both || all) && gang->completed < gang->issued) complete_step(gang);
}

static void *run_thread(void *argument) {
  run(argument);
  return NULL;
}

/* Each device by a thread of its own. */
static void run_two(struct gang *gang) {
  static struct gang second;
  pthread_t thread;
  second = *gang;
  second.first = second.last = 1;
  gang->last = 0;
  if (pthread_create(&thread, NULL, run_thread, &second)) exit(1);
  run(gang);
  if (gang->issued == gang->options.steps) pthread_join(thread, NULL);
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
  if (gang.options.threads == DEVICES && gang.first != gang.last)
    run_two(&gang);
  else
    run(&gang);
  say(&gang, "end");
  if (gang.options.processes == DEVICES && gang.issued == gang.options.steps)
    wait(NULL); /* for its partner's kernels */
  return 0;
}
