/*
 * constants.c - measures the constants that the simulated device is built on, on whatever device the driver shows:
 * launch cost, event record and query, wake-up of a blocking wait, depth of the launch queue, time slice and switch
 * cost between two processes, what two events say of a kernel between them while another process has the device,
 * overhead of a context, granule of allocation. One JSON object on stdout.
 *
 * Runs itself a second time (`constants child`) where a second process is needed; the two talk through pipes, a byte
 * means "continue". No other program may use the device meanwhile.
 */
#define _GNU_SOURCE
#include "../tenants/driver.h"
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, LAUNCHES = 400, QUEUE_TRIES = 8192, SLICE_KERNELS = 4000, GAP_US = 300, BESIDE = 50, AHEAD = 500 };

struct bench {
  struct driver driver;
  handle context;
  device_pointer sink;
  unsigned grid;
};

static double samples[QUEUE_TRIES];

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  if (!count) return 0;
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

static void open_device(struct bench *b) {
  int sm_count;
  CHECK(b->driver.cuDevicePrimaryCtxRetain(&b->context, 0));
  CHECK(b->driver.cuCtxSetCurrent(b->context));
  CHECK(b->driver.cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SM_COUNT, 0));
  b->grid = (unsigned)sm_count * 8;
  CHECK(b->driver.cuMemAlloc(&b->sink, 4096));
}

static void launch(struct bench *b, handle function, uint64_t rounds) {
  void *arguments[] = {&rounds, &b->sink};
  CHECK(b->driver.cuLaunchKernel(function, b->grid, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
}

static double device_us(struct bench *b, handle function, uint64_t rounds, int count) {
  handle begin, end;
  float ms;
  CHECK(b->driver.cuEventCreate(&begin, 0));
  CHECK(b->driver.cuEventCreate(&end, 0));
  CHECK(b->driver.cuEventRecord(begin, NULL));
  for (int i = 0; i < count; i++) launch(b, function, rounds);
  CHECK(b->driver.cuEventRecord(end, NULL));
  CHECK(b->driver.cuCtxSynchronize());
  CHECK(b->driver.cuEventElapsedTime(&ms, begin, end));
  return 1000 * (double)ms / count;
}

/* Rounds that make the kernel take about so many us on a real device; the simulated one goes by the name. */
static uint64_t rounds_for(struct bench *b, handle function, double us) {
  device_us(b, function, 10000, 1);
  double measured = device_us(b, function, 10000, 4);
  return (uint64_t)(10000 * us / (measured > 0 ? measured : 1)) + 1;
}

static double launch_cost_ns(struct bench *b, handle function) {
  for (int round = 0; round < ROUNDS; round++) {
    CHECK(b->driver.cuCtxSynchronize());
    uint64_t begin_ns = now_ns();
    for (int i = 0; i < LAUNCHES; i++) launch(b, function, 1);
    samples[round] = (double)(now_ns() - begin_ns) / LAUNCHES;
  }
  return median(samples, ROUNDS);
}

static double event_cost_ns(struct bench *b, bool query) {
  handle event;
  CHECK(b->driver.cuEventCreate(&event, EVENT_DISABLE_TIMING));
  CHECK(b->driver.cuEventRecord(event, NULL));
  for (int round = 0; round < ROUNDS; round++) {
    CHECK(b->driver.cuCtxSynchronize());
    uint64_t begin_ns = now_ns();
    for (int i = 0; i < LAUNCHES; i++)
      CHECK(query ? b->driver.cuEventQuery(event) : b->driver.cuEventRecord(event, NULL));
    samples[round] = (double)(now_ns() - begin_ns) / LAUNCHES;
  }
  return median(samples, ROUNDS);
}

/* From a kernel's end to the return of the wait: host time of launch to return, less the kernel and one launch. */
static double wake_up_ns(struct bench *b, handle function, uint64_t rounds, bool blocking, double launch_ns) {
  handle event;
  double kernel_us = device_us(b, function, rounds, 20);
  CHECK(b->driver.cuEventCreate(&event, EVENT_DISABLE_TIMING | (blocking ? EVENT_BLOCKING_SYNC : 0)));
  for (int round = 0; round < ROUNDS; round++) {
    CHECK(b->driver.cuCtxSynchronize());
    uint64_t begin_ns = now_ns();
    launch(b, function, rounds);
    CHECK(b->driver.cuEventRecord(event, NULL));
    CHECK(b->driver.cuEventSynchronize(event));
    samples[round] = (double)(now_ns() - begin_ns) - kernel_us * 1000 - launch_ns;
  }
  return median(samples, ROUNDS);
}

/* Launches behind a long kernel until one of them has to wait for it. */
static int queue_depth(struct bench *b, handle long_kernel, uint64_t long_rounds, handle function) {
  CHECK(b->driver.cuCtxSynchronize());
  launch(b, long_kernel, long_rounds);
  int depth = 1; /* the long kernel itself */
  for (; depth < QUEUE_TRIES; depth++) {
    uint64_t begin_ns = now_ns();
    launch(b, function, 1);
    if (now_ns() - begin_ns > 3000000) break;
  }
  CHECK(b->driver.cuCtxSynchronize());
  return depth;
}

static size_t free_bytes(struct bench *b) {
  size_t free_now, total;
  CHECK(b->driver.cuMemGetInfo(&free_now, &total));
  return free_now;
}

static size_t granule_bytes(struct bench *b) {
  enum { BLOCKS = 64 };
  device_pointer blocks[BLOCKS];
  size_t smallest = 0, before = free_bytes(b);
  for (int i = 0; i < BLOCKS; i++) {
    CHECK(b->driver.cuMemAlloc(&blocks[i], 1048577)); /* half of 2 MiB and one byte: no two share a granule */
    size_t after = free_bytes(b);
    if (before > after && (!smallest || before - after < smallest)) smallest = before - after;
    before = after;
  }
  for (int i = 0; i < BLOCKS; i++) CHECK(b->driver.cuMemFree(blocks[i]));
  return smallest;
}

struct slices {
  double run_us, gap_us;
  int gaps;
};

/* Many short kernels with an event after each: a jump between two events is time that another process had. */
static struct slices time_slices(struct bench *b, handle function, uint64_t rounds) {
  static handle events[SLICE_KERNELS + 1];
  static double runs[SLICE_KERNELS], gaps[SLICE_KERNELS];
  struct slices slices = {0};
  double run_us = 0, kernel_us = 1e9;
  for (int i = 0; i <= SLICE_KERNELS; i++) CHECK(b->driver.cuEventCreate(&events[i], 0));
  CHECK(b->driver.cuEventRecord(events[0], NULL));
  for (int i = 1; i <= SLICE_KERNELS; i++) {
    launch(b, function, rounds);
    CHECK(b->driver.cuEventRecord(events[i], NULL));
  }
  CHECK(b->driver.cuCtxSynchronize());
  for (int i = 0; i < SLICE_KERNELS; i++) {
    float ms;
    CHECK(b->driver.cuEventElapsedTime(&ms, events[i], events[i + 1]));
    samples[i] = 1000 * (double)ms;
    if (samples[i] < kernel_us) kernel_us = samples[i];
  }
  for (int i = SLICE_KERNELS / 4; i < SLICE_KERNELS * 3 / 4; i++) {
    run_us += kernel_us;
    if (samples[i] < GAP_US) continue;
    gaps[slices.gaps] = samples[i] - kernel_us;
    runs[slices.gaps++] = run_us;
    run_us = 0;
  }
  slices.run_us = median(runs, slices.gaps);
  slices.gap_us = median(gaps, slices.gaps);
  return slices;
}

/* A kernel at a time, in an idle stream, between two events, while another process always has work. Are events written
 * in their own context's turn, then they say how long the kernel takes; else also how long it waited for that. */
static double beside_us(struct bench *b, handle function, uint64_t rounds) {
  for (int i = 0; i < BESIDE; i++) samples[i] = device_us(b, function, rounds, 1);
  return median(samples, BESIDE);
}

static void signal_other(int fd) {
  if (write(fd, "g", 1) != 1) exit(1);
}

static void await_other(int fd) {
  char byte;
  if (read(fd, &byte, 1) != 1) {
    fprintf(stderr, "constants: the other process ended early\n");
    exit(1);
  }
}

/* Always has work, until the other process says that it may end: launches block while enough of them are queued. */
static void keep_busy(struct bench *b, handle function, uint64_t rounds) {
  struct pollfd end = {.fd = 0, .events = POLLIN};
  for (int i = 0; i < AHEAD; i++) launch(b, function, rounds);
  signal_other(1);
  while (poll(&end, 1, 0) == 0) launch(b, function, rounds);
  await_other(0);
  CHECK(b->driver.cuCtxSynchronize());
}

/* The second process: makes its context on request, says so, then runs the same kernels at the same time. */
static int child(void) {
  struct bench b = {0};
  driver_open(&b.driver, "libcuda.so.1");
  await_other(0);
  CHECK(b.driver.cuInit(0));
  open_device(&b);
  CHECK(b.driver.cuMemFree(b.sink)); /* only the context itself is to be seen */
  signal_other(1);
  await_other(0);
  CHECK(b.driver.cuMemAlloc(&b.sink, 4096));
  handle function = spin_kernel(&b.driver, "spin_20");
  uint64_t rounds = rounds_for(&b, function, 20);
  signal_other(1);
  await_other(0);
  time_slices(&b, function, rounds);
  signal_other(1);
  await_other(0);
  keep_busy(&b, function, rounds);
  await_other(0);
  return 0;
}

struct other {
  pid_t pid;
  int to_fd, from_fd;
};

static struct other start_child(const char *self) {
  int to[2], from[2];
  struct other other;
  if (pipe(to) || pipe(from)) exit(1);
  other.pid = fork();
  if (other.pid == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    close(to[1]);
    close(from[0]);
    execl("/proc/self/exe", self, "child", (char *)NULL);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  other.to_fd = to[1];
  other.from_fd = from[0];
  return other;
}

static void print(struct bench *b, const char *device, struct other *other) {
  handle tiny = spin_kernel(&b->driver, "spin_1");
  handle middle = spin_kernel(&b->driver, "spin_20");
  handle hundred = spin_kernel(&b->driver, "spin_100");
  handle huge = spin_kernel(&b->driver, "spin_100000");
  double launch_ns = launch_cost_ns(b, tiny);
  printf("{\"device\": \"%s\", \"launch_ns\": %.0f, ", device, launch_ns);
  printf("\"event_record_ns\": %.0f, \"event_query_ns\": %.0f, ", event_cost_ns(b, false), event_cost_ns(b, true));
  uint64_t hundred_rounds = rounds_for(b, hundred, 100);
  printf("\"blocking_wake_up_ns\": %.0f, ", wake_up_ns(b, hundred, hundred_rounds, true, launch_ns));
  printf("\"spinning_wake_up_ns\": %.0f, ", wake_up_ns(b, hundred, hundred_rounds, false, launch_ns));
  printf("\"launch_queue_depth\": %d, ", queue_depth(b, huge, rounds_for(b, huge, 100000), tiny));
  printf("\"allocation_granule_bytes\": %zu, ", granule_bytes(b));
  size_t before = free_bytes(b);
  signal_other(other->to_fd);
  await_other(other->from_fd);
  printf("\"context_bytes\": %zu, ", before - free_bytes(b));
  signal_other(other->to_fd);
  await_other(other->from_fd);
  uint64_t rounds = rounds_for(b, middle, 20);
  signal_other(other->to_fd);
  struct slices slices = time_slices(b, middle, rounds);
  await_other(other->from_fd);
  double alone_us = device_us(b, hundred, hundred_rounds, 1);
  signal_other(other->to_fd);
  await_other(other->from_fd);
  double pair_us = beside_us(b, hundred, hundred_rounds);
  signal_other(other->to_fd);
  printf("\"alone_100_us\": %.1f, \"beside_100_us\": %.1f, ", alone_us, pair_us);
  printf("\"slice_us\": %.1f, \"gap_us\": %.1f, \"switch_us\": %.1f, \"slices_seen\": %d}\n", slices.run_us,
         slices.gap_us, (slices.gap_us - slices.run_us) / 2, slices.gaps);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "child")) return child();
  struct other other = start_child(argv[0]);
  struct bench b = {0};
  char device[128];
  int status;
  driver_open(&b.driver, "libcuda.so.1");
  CHECK(b.driver.cuInit(0));
  CHECK(b.driver.cuDeviceGetName(device, sizeof device, 0));
  open_device(&b);
  print(&b, device, &other);
  signal_other(other.to_fd);
  waitpid(other.pid, &status, 0);
  return 0;
}
