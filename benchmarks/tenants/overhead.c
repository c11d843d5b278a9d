/*
 * overhead.c - what a call costs through the hook, over the same call made directly to the driver underneath. Run by
 * benchmarks/overhead.py with the hook preloaded and VGPU_DRIVER naming stub_driver.so; JSON on stdout.
 *
 *   overhead launch|launch-cpu|graph|graph-cpu|alloc|copy DRIVER THREADS PAIRS CALLS [BYTES]
 *
 * Each thread measures PAIRS pairs of runs of CALLS calls, hooked and direct in turn (which comes first alternates),
 * and prints the two medians and the median difference, in ns per call. Threads run together. Where DRIVER is "-", both
 * are the call of libcuda.so.1, whatever is behind it: some hooks answer every dlsym().
 *
 * launch-cpu measures the thread's processor time, for runs that are longer than a time slice of the operating system;
 * graph and graph-cpu launch an executable graph, of one kernel where the driver is not a stub. The mean difference in
 * elapsed time is printed beside it: it has what the thread slept, too.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_US = 300000 }; /* time for the caller to look at the gate, before and after */

typedef int (*launch_call)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle,
                           void **, void **);
typedef int (*graph_call)(handle, handle);
typedef int (*alloc_call)(device_pointer *, size_t);
typedef int (*free_call)(device_pointer);
typedef int (*copy_call)(device_pointer, const void *, size_t, handle);

struct calls {
  launch_call launch;
  graph_call graph;
  alloc_call alloc;
  free_call free;
  copy_call copy;
};

struct measurement {
  const char *mode;
  struct calls hooked, direct;
  handle context, function, graph;
  int pairs, count;
  size_t bytes;
  clockid_t clock;
  double *hooked_ns, *direct_ns, *difference_ns; /* one per pair */
  double elapsed_ns;                             /* the sum of differences */
};

static pthread_barrier_t together;

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double run_launches(const struct measurement *m, launch_call launch) {
  uint64_t rounds = 1, sink = 0;
  void *arguments[] = {&rounds, &sink};
  uint64_t begin_ns = clock_ns(m->clock);
  for (int i = 0; i < m->count; i++) CHECK(launch(m->function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
  return (double)(clock_ns(m->clock) - begin_ns) / m->count;
}

static double run_graphs(const struct measurement *m, graph_call launch) {
  uint64_t begin_ns = clock_ns(m->clock);
  for (int i = 0; i < m->count; i++) CHECK(launch(m->graph, NULL));
  return (double)(clock_ns(m->clock) - begin_ns) / m->count;
}

static double run_allocs(const struct measurement *m, const struct calls *calls) {
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < m->count; i++) {
    device_pointer pointer;
    CHECK(calls->alloc(&pointer, m->bytes));
    CHECK(calls->free(pointer));
  }
  return (double)(now_ns() - begin_ns) / m->count;
}

static double run_copies(const struct measurement *m, copy_call copy) {
  static char host[64];
  uint64_t begin_ns = now_ns();
  for (int i = 0; i < m->count; i++) CHECK(copy(0x700000000000u, host, sizeof host, NULL));
  return (double)(now_ns() - begin_ns) / m->count;
}

static double run(const struct measurement *m, const struct calls *calls) {
  if (*m->mode == 'c') return run_copies(m, calls->copy);
  if (*m->mode == 'g') return run_graphs(m, calls->graph);
  return *m->mode == 'l' ? run_launches(m, calls->launch) : run_allocs(m, calls);
}

static double run_elapsed(const struct measurement *m, const struct calls *calls, double *ret_elapsed_ns) {
  uint64_t begin_ns = now_ns();
  double each_ns = run(m, calls);
  *ret_elapsed_ns = (double)(now_ns() - begin_ns) / m->count;
  return each_ns;
}

static struct driver driver;

static void *thread(void *argument) {
  struct measurement *m = argument;
  CHECK(driver.cuCtxSetCurrent(m->context));
  run(m, &m->hooked);
  run(m, &m->direct);
  pthread_barrier_wait(&together);
  for (int i = 0; i < m->pairs; i++) {
    double hooked_ns = 0, direct_ns;
    if (i % 2) m->hooked_ns[i] = run_elapsed(m, &m->hooked, &hooked_ns);
    m->direct_ns[i] = run_elapsed(m, &m->direct, &direct_ns);
    if (i % 2 == 0) m->hooked_ns[i] = run_elapsed(m, &m->hooked, &hooked_ns);
    m->difference_ns[i] = m->hooked_ns[i] - m->direct_ns[i];
    m->elapsed_ns += hooked_ns - direct_ns;
  }
  return NULL;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

static struct calls calls_of(void *library) {
  struct calls calls;
  *(void **)&calls.launch = dlsym(library, "cuLaunchKernel");
  *(void **)&calls.graph = dlsym(library, "cuGraphLaunch");
  *(void **)&calls.alloc = dlsym(library, "cuMemAlloc_v2");
  *(void **)&calls.free = dlsym(library, "cuMemFree_v2");
  *(void **)&calls.copy = dlsym(library, "cuMemcpyHtoDAsync_v2");
  if (!calls.launch || !calls.graph || !calls.alloc || !calls.free || !calls.copy) {
    fprintf(stderr, "overhead: a call is missing in a library\n");
    exit(1);
  }
  return calls;
}

static handle make_graph(struct driver *driver, handle function) {
  handle stream, graph, executable;
  uint64_t rounds = 1, sink = 0;
  void *arguments[] = {&rounds, &sink};
  CHECK(driver->cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  CHECK(driver->cuStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
  CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
  CHECK(driver->cuStreamEndCapture(stream, &graph));
  CHECK(driver->cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

static void print(struct measurement *m, int threads) {
  printf("[");
  for (int i = 0; i < threads; i++)
    printf("%s{\"hooked_ns\": %.3f, \"direct_ns\": %.3f, \"difference_ns\": %.3f, \"elapsed_difference_ns\": %.3f}",
           i ? ", " : "", median(m[i].hooked_ns, m->pairs), median(m[i].direct_ns, m->pairs),
           median(m[i].difference_ns, m->pairs), m[i].elapsed_ns / m->pairs);
  printf("]\n");
}

int main(int argc, char **argv) {
  if (argc < 6) {
    fprintf(stderr,
            "usage: overhead launch|launch-cpu|graph|graph-cpu|alloc|copy DRIVER THREADS PAIRS CALLS [BYTES]\n");
    return 2;
  }
  int threads = atoi(argv[3]), pairs = atoi(argv[4]);
  if (threads < 1 || threads > 64 || pairs < 1) {
    fprintf(stderr, "overhead: THREADS must be 1..64 and PAIRS at least 1\n");
    return 2;
  }
  handle context;
  driver_open(&driver, "libcuda.so.1");
  bool alone = strcmp(argv[2], "-") == 0;
  void *underneath = alone ? driver.library : dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  CHECK(underneath ? 0 : 1);
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  struct measurement first = {.mode = argv[1],
                              .hooked = calls_of(driver.library),
                              .direct = calls_of(underneath),
                              .context = context,
                              .function = spin_kernel(&driver, "spin_10"),
                              .clock = strstr(argv[1], "-cpu") ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                              .pairs = pairs,
                              .count = atoi(argv[5]),
                              .bytes = argc > 6 ? strtoull(argv[6], NULL, 10) : 0};
  if (!alone && first.hooked.launch == first.direct.launch) {
    fprintf(stderr, "overhead: not hooked: libcuda.so.1 is the driver itself\n");
    return 1;
  }
  if (*first.mode == 'g') first.graph = make_graph(&driver, first.function);
  usleep(LOOK_US);
  struct measurement all[64];
  pthread_t ids[64];
  pthread_barrier_init(&together, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    all[i] = first;
    all[i].hooked_ns = calloc((size_t)pairs, 3 * sizeof(double));
    all[i].direct_ns = all[i].hooked_ns + pairs;
    all[i].difference_ns = all[i].direct_ns + pairs;
    pthread_create(&ids[i], NULL, thread, &all[i]);
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  usleep(LOOK_US);
  print(all, threads);
  return 0;
}
