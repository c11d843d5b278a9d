/*
 * copies.c - tenants of benchmarks/copies.py.
 *
 *   copies all BYTES SECONDS: pinned blocks of BYTES to the device, as fast as the link takes them
 *   copies infer BYTES US PERIOD_US SECONDS: every PERIOD_US a request: BYTES of pinned memory to the device, a kernel
 *     of US, 4 KiB back. Says how long each took, by the host's clock and by the device's.
 *
 * Each says its pid when it is ready, and begins with the next line on stdin.
 */
#include "measured.h"

#define ANSWER_BYTES 4096u

static CUdeviceptr device_bytes;
static unsigned char *host_bytes;
static CUstream stream;

static uint64_t clock_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until_ns(uint64_t at_ns) {
  struct timespec when = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
}

static void begin(size_t bytes) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  CHECK(cuMemAlloc_v2(&device_bytes, bytes));
  CHECK(cuMemHostAlloc((void **)&host_bytes, bytes, 0));
  memset(host_bytes, 1, bytes);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemcpyHtoDAsync_v2(device_bytes, host_bytes, bytes, stream));
  CHECK(cuStreamSynchronize(stream));
}

static void wait_for_line(void) {
  printf("{\"ready\": %d}\n", (int)getpid());
  fflush(stdout);
  if (getchar() == EOF) exit(1);
}

/* At most two blocks are on the way, as in a program that prepares the next one. */
static void copy_all(size_t bytes, double seconds) {
  CUevent events[2];
  for (int i = 0; i < 2; i++) CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
  wait_for_line();
  uint64_t end_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
  for (unsigned i = 0; clock_now_ns() < end_ns; i++) {
    if (i >= 2) CHECK(cuEventSynchronize(events[i % 2]));
    CHECK(cuMemcpyHtoDAsync_v2(device_bytes, host_bytes, bytes, stream));
    CHECK(cuEventRecord(events[i % 2], stream));
  }
  CHECK(cuStreamSynchronize(stream));
}

static void infer(size_t bytes, int us, uint64_t period_us, double seconds) {
  CUfunction kernel = load_spin(us);
  CUevent first, last;
  CHECK(cuEventCreate(&first, 0));
  CHECK(cuEventCreate(&last, 0));
  wait_for_line();
  uint64_t at_ns = clock_now_ns(), end_ns = at_ns + (uint64_t)(seconds * 1e9);
  const char *comma = "";
  printf("{\"requests_us\": [");
  for (; at_ns < end_ns; at_ns += period_us * 1000) {
    float ms;
    sleep_until_ns(at_ns);
    uint64_t begin_ns = clock_now_ns();
    CHECK(cuEventRecord(first, stream));
    CHECK(cuMemcpyHtoDAsync_v2(device_bytes, host_bytes, bytes, stream));
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuMemcpyDtoHAsync_v2(host_bytes, device_bytes, ANSWER_BYTES, stream));
    CHECK(cuEventRecord(last, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventElapsedTime(&ms, first, last));
    printf("%s[%.1f, %.1f]", comma, (double)(clock_now_ns() - begin_ns) / 1000, (double)ms * 1000);
    comma = ", ";
  }
  printf("]}\n");
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "all") == 0) {
    size_t bytes = strtoull(argv[2], NULL, 0);
    begin(bytes);
    copy_all(bytes, atof(argv[3]));
    return 0;
  }
  if (argc != 6 || strcmp(argv[1], "infer") != 0) {
    fprintf(stderr, "usage: copies all BYTES SECONDS | copies infer BYTES US PERIOD_US SECONDS\n");
    return 2;
  }
  size_t bytes = strtoull(argv[2], NULL, 0);
  begin(bytes);
  infer(bytes, atoi(argv[3]), strtoull(argv[4], NULL, 0), atof(argv[5]));
  return 0;
}
