/*
 * markers.c - two ways to see how far a stream has come: events, and a counter that the device writes into a page of
 * the host (cuStreamWriteValue32). What recording costs, what looking costs, how late the end of a kernel is seen, what
 * the markers cost the stream, and what a capturing stream says to them. JSON on stdout. Run by benchmarks/markers.py.
 *
 *   markers ROUNDS
 */
#include "driver.h"
#include <stdbool.h>

#define KERNEL_US 20
#define EVERY 16 /* launches per marker */
#define BATCH 64
#define WRITE_DEFAULT 0

typedef int (*host_alloc_call)(void **, size_t, unsigned);
typedef int (*device_pointer_call)(device_pointer *, void *, unsigned);
typedef int (*write_call)(handle, device_pointer, uint32_t, unsigned);

static struct driver driver;
static write_call write_value;
static handle stream, function;
static volatile uint32_t *page;
static device_pointer page_on_device;
static uint32_t written;
static uint64_t rounds;

static void *symbol(const char *name) {
  void *found = dlsym(driver.library, name);
  if (!found) {
    fprintf(stderr, "the driver has no %s\n", name);
    exit(3);
  }
  return found;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_spread(const char *name, double *values, int count, const char *after) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  printf("  \"%s\": {\"median\": %.1f, \"p99\": %.1f}%s\n", name, values[count / 2], values[count * 99 / 100], after);
}

static void launch(void) {
  static uint64_t sink;
  void *arguments[] = {&rounds, &sink};
  CHECK(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static void write_counter(void) {
  CHECK(write_value(stream, page_on_device, ++written, WRITE_DEFAULT));
}

static handle new_event(unsigned flags) {
  handle event;
  CHECK(driver.cuEventCreate(&event, flags));
  return event;
}

/* ---- what recording and looking cost the host ---- */

static double recording_ns(handle event) {
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < BATCH; i++) {
    if (event)
      CHECK(driver.cuEventRecord(event, stream));
    else
      write_counter();
  }
  double each_ns = (double)(now_ns() - begin_ns) / BATCH;
  CHECK(driver.cuStreamSynchronize(stream));
  return each_ns;
}

static double looking_ns(handle event) {
  uint64_t begin_ns = now_ns();
  uint32_t sum = 0;
  for (int i = 0; i < BATCH; i++) sum += event ? (uint32_t)driver.cuEventQuery(event) : *page;
  __asm__ volatile("" ::"r"(sum));
  return (double)(now_ns() - begin_ns) / BATCH;
}

static void costs(int count) {
  handle plain = new_event(EVENT_DISABLE_TIMING), timing = new_event(0);
  double *values = calloc((size_t)count, sizeof *values);
  struct {
    const char *name;
    handle event;
  } kinds[] = {{"record_event_ns", plain}, {"record_timing_event_ns", timing}, {"record_counter_ns", NULL}};
  for (int kind = 0; kind < 3; kind++) {
    for (int i = 0; i < count; i++) values[i] = recording_ns(kinds[kind].event);
    print_spread(kinds[kind].name, values, count, ",");
  }
  for (int i = 0; i < count; i++) values[i] = looking_ns(plain);
  print_spread("look_event_ns", values, count, ",");
  for (int i = 0; i < count; i++) values[i] = looking_ns(NULL);
  print_spread("look_counter_ns", values, count, ",");
  free(values);
}

/* ---- how late the end of a kernel is seen ---- */

/* The device's own clock says when each kernel ended; the event that was seen earliest ties it to the host's. */
static void lateness(int count) {
  handle first = new_event(0), end = new_event(0);
  double *event_ns = calloc((size_t)count, sizeof *event_ns), *counter_ns = calloc((size_t)count, sizeof *counter_ns);
  double least_ns = 0;
  CHECK(driver.cuEventRecord(first, stream));
  for (int i = 0; i < count; i++) {
    uint64_t event_seen_ns = 0, counter_seen_ns = 0;
    launch();
    CHECK(driver.cuEventRecord(end, stream));
    write_counter();
    while (!event_seen_ns || !counter_seen_ns) {
      if (!event_seen_ns && driver.cuEventQuery(end) == CODE_SUCCESS) event_seen_ns = now_ns();
      if (!counter_seen_ns && *page == written) counter_seen_ns = now_ns();
    }
    float elapsed_ms;
    CHECK(driver.cuEventElapsedTime(&elapsed_ms, first, end));
    event_ns[i] = (double)event_seen_ns - (double)elapsed_ms * 1e6;
    counter_ns[i] = (double)counter_seen_ns - (double)elapsed_ms * 1e6;
    if (i == 0 || event_ns[i] < least_ns) least_ns = event_ns[i];
  }
  for (int i = 0; i < count; i++) event_ns[i] -= least_ns, counter_ns[i] -= least_ns;
  print_spread("late_event_ns", event_ns, count, ",");
  print_spread("late_counter_ns", counter_ns, count, ",");
  free(event_ns);
  free(counter_ns);
}

/* ---- what the markers cost the stream ---- */

static double per_kernel_us(const char *kind, int count) {
  handle event = new_event(EVENT_DISABLE_TIMING);
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < count * EVERY; i++) {
    launch();
    if (i % EVERY != EVERY - 1) continue;
    if (*kind == 'e') CHECK(driver.cuEventRecord(event, stream));
    if (*kind == 'c') write_counter();
  }
  CHECK(driver.cuStreamSynchronize(stream));
  return (double)(now_ns() - begin_ns) / 1e3 / (count * EVERY);
}

/* ---- capturing streams ---- */

/* Both codes, and whether the capture survives. */
static void capturing(const char *kind, const char *after) {
  handle graph = NULL, event = new_event(EVENT_DISABLE_TIMING);
  CHECK(driver.cuStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
  launch();
  int code = *kind == 'e' ? driver.cuEventRecord(event, stream)
                          : write_value(stream, page_on_device, ++written, WRITE_DEFAULT);
  int query = driver.cuEventQuery(event);
  int ended = driver.cuStreamEndCapture(stream, &graph);
  printf("  \"capturing_%s\": {\"recorded\": %d, \"queried\": %d, \"capture_ended\": %d}%s\n", kind, code, query, ended,
         after);
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 0;
  if (count < 100) {
    fprintf(stderr, "usage: markers ROUNDS (at least 100)\n");
    return 2;
  }
  handle context;
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  write_value = (write_call)symbol("cuStreamWriteValue32_v2");
  void *host;
  CHECK(((host_alloc_call)symbol("cuMemHostAlloc"))(&host, 4096, 0));
  CHECK(((device_pointer_call)symbol("cuMemHostGetDevicePointer_v2"))(&page_on_device, host, 0));
  page = host;
  CHECK(driver.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  char name[16];
  snprintf(name, sizeof name, "spin_%d", KERNEL_US);
  function = spin_kernel(&driver, name);
  rounds = spin_rounds(&driver, function, 1, 32, 0, KERNEL_US);
  per_kernel_us("none", count);
  printf("{\n");
  costs(count);
  lateness(count);
  printf("  \"kernel_alone_us\": %.3f,\n", per_kernel_us("none", count));
  printf("  \"kernel_with_event_us\": %.3f,\n", per_kernel_us("event", count));
  printf("  \"kernel_with_counter_us\": %.3f,\n", per_kernel_us("counter", count));
  capturing("event", ",");
  capturing("counter", "");
  printf("}\n");
  return 0;
}
