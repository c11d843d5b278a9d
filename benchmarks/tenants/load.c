/*
 * load.c - the tenant of benchmarks/sharing: feeds a device asynchronously with kernels of a known length, without a
 * break or in bursts with host gaps, at fixed times, or in phases, over one or several streams, and says what has
 * completed. Run hooked or not; JSON lines on stdout. Several processes: the caller starts several.
 *
 *   load [--kernel-us N] [--burst N] [--depth N] [--streams N] [--gap-us N] [--active-ms N --idle-ms N]
 *        [--period-us N] [--graph 0|1] [--seconds N] [--report-ms N] [--histogram FILE]
 *        [--baseline fixed:BEGIN:END:PERIOD|rate:MILLI]  (baseline.h)
 *
 * A burst is a number of launches on one stream closed by an event; depth bursts are in flight, over all streams in
 * turn, so the device never runs dry. --graph 1: the launches of a burst are the nodes of one graph, launched as a
 * whole. --gap-us: waits for every burst, then sleeps so long (launch-bound).
 * --period-us: waits for every burst and begins the next at the next whole period; a period that a burst overran is
 * counted as skipped. --active-ms/--idle-ms: works, waits for the device, sleeps, and says when.
 *
 * Latencies (with --gap-us or --period-us: from a burst's first launch, or with a period from its due time, to the end
 * of the wait for it) are counted from SIGUSR1 to SIGUSR2 and written at the end as {"skipped", "buckets": [[upper
 * bound in ns, count]...]}, each bucket 1/128 of an octave wide. On the simulated device the kernel spin_N takes N us
 * (model file); on a real one its length is measured first.
 */
#define _GNU_SOURCE
#include "baseline.h"
#include "driver.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, STREAMS_MAX = 64, BLOCK_THREADS = 256 };
enum { SUB_BITS = 7, SUB_BUCKETS = 1 << SUB_BITS, BUCKETS = (64 - SUB_BITS) * SUB_BUCKETS };

struct options {
  uint64_t kernel_us, burst, depth, streams, gap_us, period_us, active_ms, idle_ms, graph, seconds, report_ms;
  const char *histogram;
  struct baseline baseline;
};

struct load {
  struct driver driver;
  struct options options;
  handle function, graph /* of a burst, with --graph */, streams[STREAMS_MAX], events[DEPTH_MAX];
  unsigned grid;
  uint64_t rounds;
  device_pointer sink;
  uint64_t issued, reaped; /* bursts; the ring of events holds those between */
  uint64_t report_ns, end_ns, phase_ns;
  uint64_t skipped, counts[BUCKETS];
};

static volatile sig_atomic_t stopped, measuring;

static void on_signal(int signal) {
  if (signal == SIGUSR1)
    measuring = 1;
  else if (signal == SIGUSR2)
    measuring = 0;
  else
    stopped = 1;
}

static uint64_t number(const char *option, const char *text) {
  char *end;
  errno = 0;
  uint64_t value = text ? strtoull(text, &end, 10) : 0;
  if (!text || errno || end == text || *end) {
    fprintf(stderr, "load: %s needs a number, not %s\n", option, text ? text : "nothing");
    exit(2);
  }
  return value;
}

static void refuse(bool wrong, const char *why) {
  if (!wrong) return;
  fprintf(stderr, "load: %s\n", why);
  exit(2);
}

static struct options parse(int argc, char **argv) {
  struct options options = {.kernel_us = 200, .burst = 16, .depth = 3, .streams = 1, .seconds = 5, .report_ms = 100};
  struct {
    const char *name;
    uint64_t *value;
  } numbers[] = {
      {"--kernel-us", &options.kernel_us},
      {"--burst", &options.burst},
      {"--depth", &options.depth},
      {"--streams", &options.streams},
      {"--gap-us", &options.gap_us},
      {"--period-us", &options.period_us},
      {"--active-ms", &options.active_ms},
      {"--idle-ms", &options.idle_ms},
      {"--graph", &options.graph},
      {"--seconds", &options.seconds},
      {"--report-ms", &options.report_ms},
      {"--histogram", NULL},
      {"--baseline", NULL},
  };
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    size_t which = 0;
    while (which < sizeof numbers / sizeof *numbers && strcmp(argv[i], numbers[which].name)) which++;
    if (which == sizeof numbers / sizeof *numbers) {
      fprintf(stderr, "load: unknown option %s\n", argv[i]);
      exit(2);
    }
    if (numbers[which].value)
      *numbers[which].value = number(argv[i], value);
    else if (!strcmp(argv[i], "--histogram"))
      options.histogram = value;
    else
      refuse(!value || !baseline_parse(&options.baseline, value), "--baseline is fixed:BEGIN:END:PERIOD or rate:MILLI");
  }
  refuse(!options.burst, "--burst must be at least 1");
  refuse(!options.depth || options.depth > DEPTH_MAX, "--depth must be 1..64");
  refuse(!options.streams || options.streams > STREAMS_MAX, "--streams must be 1..64");
  refuse(options.graph > 1, "--graph must be 0 or 1");
  refuse(options.gap_us && options.period_us, "--gap-us and --period-us exclude each other");
  refuse(options.active_ms && options.period_us, "--active-ms and --period-us exclude each other");
  refuse(!options.active_ms != !options.idle_ms, "--active-ms and --idle-ms go together");
  return options;
}

static void say(const struct load *load, const char *event) {
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"issued\": %llu, \"completed\": %llu}\n", event,
         getpid(), (unsigned long long)now_ns(), (unsigned long long)(load->issued * load->options.burst),
         (unsigned long long)(load->reaped * load->options.burst));
  fflush(stdout);
}

/* ---- latencies ---- */

/* Values below SUB_BUCKETS have a bucket each; above, every octave has SUB_BUCKETS of equal width. */
static unsigned bucket_of(uint64_t ns) {
  if (ns < SUB_BUCKETS) return (unsigned)ns;
  unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - SUB_BITS;
  return (shift + 1) * SUB_BUCKETS + (unsigned)((ns >> shift) - SUB_BUCKETS);
}

static uint64_t bucket_upper_ns(unsigned bucket) {
  if (bucket < SUB_BUCKETS) return bucket;
  unsigned shift = bucket / SUB_BUCKETS - 1;
  return ((uint64_t)(bucket % SUB_BUCKETS + SUB_BUCKETS + 1) << shift) - 1;
}

static void write_histogram(const struct load *load) {
  FILE *file = fopen(load->options.histogram, "w");
  if (!file) {
    fprintf(stderr, "load: %s: %s\n", load->options.histogram, strerror(errno));
    exit(1);
  }
  fprintf(file, "{\"skipped\": %llu, \"buckets\": [", (unsigned long long)load->skipped);
  const char *comma = "";
  for (unsigned i = 0; i < BUCKETS; i++) {
    if (!load->counts[i]) continue;
    fprintf(file, "%s[%llu, %llu]", comma, (unsigned long long)bucket_upper_ns(i), (unsigned long long)load->counts[i]);
    comma = ", ";
  }
  fprintf(file, "]}\n");
  if (fclose(file)) {
    fprintf(stderr, "load: %s: %s\n", load->options.histogram, strerror(errno));
    exit(1);
  }
}

/* ---- work ---- */

static void reap_one(struct load *load) {
  CHECK(load->driver.cuEventSynchronize(load->events[load->reaped % load->options.depth]));
  load->reaped++;
}

static void launch(struct load *load, handle stream) {
  void *arguments[] = {&load->rounds, &load->sink};
  CHECK(load->driver.cuLaunchKernel(load->function, load->grid, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL));
}

static void record_graph(struct load *load) {
  handle graph, stream = load->streams[0];
  CHECK(load->driver.cuStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
  for (uint64_t i = 0; i < load->options.burst; i++) launch(load, stream);
  CHECK(load->driver.cuStreamEndCapture(stream, &graph));
  CHECK(load->driver.cuGraphInstantiateWithFlags(&load->graph, graph, 0));
}

static void issue_burst(struct load *load) {
  struct options *options = &load->options;
  if (load->issued - load->reaped == options->depth) reap_one(load);
  handle stream = load->streams[load->issued % options->streams];
  if (load->graph) {
    baseline_wait(&options->baseline, options->burst * options->kernel_us * 1000, &stopped);
    CHECK(load->driver.cuGraphLaunch(load->graph, stream));
  }
  for (uint64_t i = 0; !load->graph && i < options->burst; i++) {
    baseline_wait(&options->baseline, options->kernel_us * 1000, &stopped);
    launch(load, stream);
  }
  CHECK(load->driver.cuEventRecord(load->events[load->issued % options->depth], stream));
  load->issued++;
}

static void drain(struct load *load) {
  while (load->reaped < load->issued) reap_one(load);
}

static void sleep_until(uint64_t until_ns) {
  struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR);
}

/* A burst that is waited for, and the pause behind it. *due_ns: when the burst was to begin; then: when the next is. */
static void burst_and_pause(struct load *load, uint64_t *due_ns) {
  const uint64_t period_ns = load->options.period_us * 1000;
  bool counted = measuring;
  uint64_t begin_ns = period_ns ? *due_ns : now_ns();
  issue_burst(load);
  drain(load);
  uint64_t done_ns = now_ns();
  if (counted) load->counts[bucket_of(done_ns - begin_ns)]++;
  if (!period_ns) {
    sleep_until(done_ns + load->options.gap_us * 1000);
    return;
  }
  uint64_t periods = (done_ns - begin_ns) / period_ns + 1;
  if (counted) load->skipped += periods - 1;
  *due_ns += periods * period_ns;
  sleep_until(*due_ns);
}

static void idle_phase(struct load *load) {
  drain(load);
  say(load, "idle");
  sleep_until(now_ns() + load->options.idle_ms * 1000000);
  say(load, "active");
  load->phase_ns = now_ns() + load->options.active_ms * 1000000;
}

static void run(struct load *load) {
  const struct options *options = &load->options;
  uint64_t due_ns = now_ns();
  load->end_ns = due_ns + options->seconds * 1000000000;
  load->phase_ns = due_ns + options->active_ms * 1000000;
  while (!stopped && now_ns() < load->end_ns) {
    if (options->gap_us || options->period_us)
      burst_and_pause(load, &due_ns);
    else
      issue_burst(load);
    if (options->active_ms && now_ns() >= load->phase_ns) idle_phase(load);
    if (now_ns() >= load->report_ns) {
      say(load, "progress");
      load->report_ns = now_ns() + options->report_ms * 1000000;
    }
  }
  drain(load);
}

static void begin(struct load *load) {
  struct driver *driver = &load->driver;
  handle context;
  char name[64];
  int sm_count;
  driver_open(driver, "libcuda.so.1");
  CHECK(driver->cuInit(0));
  CHECK(driver->cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver->cuCtxSetCurrent(context));
  CHECK(driver->cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SM_COUNT, 0));
  load->grid = (unsigned)sm_count * 8;
  CHECK(driver->cuMemAlloc(&load->sink, 4096));
  snprintf(name, sizeof name, "spin_%llu", (unsigned long long)load->options.kernel_us);
  load->function = spin_kernel(driver, name);
  for (uint64_t i = 0; i < load->options.streams; i++)
    CHECK(driver->cuStreamCreate(&load->streams[i], STREAM_NON_BLOCKING));
  for (uint64_t i = 0; i < load->options.depth; i++)
    CHECK(driver->cuEventCreate(&load->events[i], EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING));
  load->rounds = spin_rounds(driver, load->function, load->grid, BLOCK_THREADS, load->sink, load->options.kernel_us);
  if (load->options.graph) record_graph(load);
}

int main(int argc, char **argv) {
  static struct load load;
  load.options = parse(argc, argv);
  struct sigaction action = {.sa_handler = on_signal};
  const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
  prctl(PR_SET_TIMERSLACK, 1); /* a gap of 1 ms is to be one, not 1.05 ms */
  begin(&load);
  baseline_begin(&load.options.baseline);
  say(&load, "ready");
  run(&load);
  say(&load, "end");
  if (load.options.histogram) write_histogram(&load);
  return 0;
}
