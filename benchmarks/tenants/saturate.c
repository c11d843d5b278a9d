/*
 * saturate.c - a tenant that keeps a device busy: launches kernels of a known length without a break, several batches
 * deep, and says now and then how much has completed. Run by the share benchmarks, hooked or not; JSON lines on stdout.
 *
 *   saturate [--kernel-us N] [--batch N] [--depth N] [--seconds S] [--gap-us N] [--report-ms N]
 *
 * A batch is a number of launches closed by an event; depth batches are in flight, so the device never runs dry.
 * --gap-us makes the tenant launch-bound: after every batch it waits for the device and then does nothing for so long.
 * On the simulated device the kernel spin_N takes N us (model file); on a real one its length is measured first.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, BLOCK_THREADS = 256 };

struct options {
  uint64_t kernel_us, batch, depth, gap_us, report_ms;
  double seconds;
};

struct tenant {
  struct driver driver;
  handle function, events[DEPTH_MAX];
  unsigned grid;
  uint64_t rounds;
  uint64_t completed;
  device_pointer sink;
};

static volatile sig_atomic_t stopped;

static void stop(int signal) {
  (void)signal;
  stopped = 1;
}

static uint64_t number(const char *option, const char *text) {
  char *end;
  errno = 0;
  uint64_t value = text ? strtoull(text, &end, 10) : 0;
  if (!text || errno || end == text || *end) {
    fprintf(stderr, "saturate: %s needs a number, not %s\n", option, text ? text : "nothing");
    exit(2);
  }
  return value;
}

static struct options parse(int argc, char **argv) {
  struct options options = {200, 16, 3, 0, 250, 5};
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!strcmp(argv[i], "--kernel-us"))
      options.kernel_us = number(argv[i], value);
    else if (!strcmp(argv[i], "--batch"))
      options.batch = number(argv[i], value);
    else if (!strcmp(argv[i], "--depth"))
      options.depth = number(argv[i], value);
    else if (!strcmp(argv[i], "--gap-us"))
      options.gap_us = number(argv[i], value);
    else if (!strcmp(argv[i], "--report-ms"))
      options.report_ms = number(argv[i], value);
    else if (!strcmp(argv[i], "--seconds"))
      options.seconds = value ? atof(value) : 0;
    else {
      fprintf(stderr, "saturate: unknown option %s\n", argv[i]);
      exit(2);
    }
  }
  if (!options.batch || !options.depth || options.depth > DEPTH_MAX) {
    fprintf(stderr, "saturate: --batch must be at least 1 and --depth 1..%d\n", DEPTH_MAX);
    exit(2);
  }
  return options;
}

static void say(const struct tenant *tenant, const char *event) {
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"completed\": %llu}\n", event, getpid(),
         (unsigned long long)now_ns(), (unsigned long long)tenant->completed);
  fflush(stdout);
}

static void launch(struct tenant *tenant, uint64_t count) {
  void *arguments[] = {&tenant->rounds, &tenant->sink};
  for (uint64_t i = 0; i < count; i++)
    CHECK(tenant->driver.cuLaunchKernel(tenant->function, tenant->grid, 1, 1, BLOCK_THREADS, 1, 1, 0, NULL, arguments,
                                        NULL));
}

static void begin(struct tenant *tenant, const struct options *options) {
  struct driver *driver = &tenant->driver;
  handle context;
  char name[64];
  int sm_count;
  driver_open(driver, "libcuda.so.1");
  CHECK(driver->cuInit(0));
  CHECK(driver->cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver->cuCtxSetCurrent(context));
  CHECK(driver->cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SM_COUNT, 0));
  tenant->grid = (unsigned)sm_count * 8;
  CHECK(driver->cuMemAlloc(&tenant->sink, 4096));
  snprintf(name, sizeof name, "spin_%llu", (unsigned long long)options->kernel_us);
  tenant->function = spin_kernel(driver, name);
  for (uint64_t i = 0; i < options->depth; i++)
    CHECK(driver->cuEventCreate(&tenant->events[i], EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING));
  tenant->rounds = spin_rounds(driver, tenant->function, tenant->grid, BLOCK_THREADS, tenant->sink, options->kernel_us);
}

static void run(struct tenant *tenant, const struct options *options) {
  struct driver *driver = &tenant->driver;
  uint64_t end_ns = now_ns() + (uint64_t)(options->seconds * 1e9);
  uint64_t report_ns = 0, launched = 0;
  for (uint64_t turn = 0; !stopped && now_ns() < end_ns; turn++) {
    handle event = tenant->events[turn % options->depth];
    if (turn >= options->depth) {
      CHECK(driver->cuEventSynchronize(event));
      tenant->completed += options->batch;
    }
    launch(tenant, options->batch);
    launched += options->batch;
    CHECK(driver->cuEventRecord(event, NULL));
    if (options->gap_us) {
      CHECK(driver->cuEventSynchronize(event));
      usleep((useconds_t)options->gap_us);
    }
    if (now_ns() >= report_ns) {
      say(tenant, "progress");
      report_ns = now_ns() + options->report_ms * 1000000;
    }
  }
  CHECK(driver->cuCtxSynchronize());
  tenant->completed = launched;
}

int main(int argc, char **argv) {
  struct options options = parse(argc, argv);
  struct tenant tenant = {0};
  signal(SIGTERM, stop);
  signal(SIGINT, stop);
  begin(&tenant, &options);
  say(&tenant, "ready");
  run(&tenant, &options);
  say(&tenant, "end");
  return 0;
}
