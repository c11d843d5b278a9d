/*
 * launches.c - threads that launch into streams of their own, as fast as the driver takes it: what a launch takes.
 *
 *   launches kernels|graphs THREADS SAMPLES CALLS KERNEL
 *
 * Each thread measures SAMPLES times CALLS launches of KERNEL, or of a graph of eight of them. Prints, in ns for each
 * launch, the median sample and the processor time, both of the slowest thread.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { GRAPH_KERNELS = 8, THREADS_MAX = 64, LOOK_US = 200000 }; /* time for the arbiter to open the gate */

struct thread {
  pthread_t id;
  double *samples_ns, cpu_ns;
};

static struct driver driver;
static handle context, function;
static int samples, calls;
static bool graphs;
static pthread_barrier_t together;

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void launch(handle stream) {
  uint64_t rounds = 1, sink = 0;
  void *arguments[] = {&rounds, &sink};
  CHECK(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static handle make_graph(handle stream) {
  handle graph, executable;
  CHECK(driver.cuStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
  for (int i = 0; i < GRAPH_KERNELS; i++) launch(stream);
  CHECK(driver.cuStreamEndCapture(stream, &graph));
  CHECK(driver.cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

static void *run(void *argument) {
  struct thread *thread = argument;
  handle stream, graph = NULL;
  CHECK(driver.cuCtxSetCurrent(context));
  CHECK(driver.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  if (graphs) graph = make_graph(stream);
  pthread_barrier_wait(&together);
  uint64_t cpu_begin_ns = cpu_ns();
  for (int i = 0; i < samples; i++) {
    uint64_t begin_ns = now_ns();
    for (int call = 0; call < calls; call++) {
      if (graphs)
        CHECK(driver.cuGraphLaunch(graph, stream));
      else
        launch(stream);
    }
    thread->samples_ns[i] = (double)(now_ns() - begin_ns) / calls;
  }
  thread->cpu_ns = (double)(cpu_ns() - cpu_begin_ns) / samples / calls;
  return NULL;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: launches kernels|graphs THREADS SAMPLES CALLS KERNEL\n");
    return 2;
  }
  static struct thread threads[THREADS_MAX];
  int count = atoi(argv[2]);
  graphs = strcmp(argv[1], "graphs") == 0;
  samples = atoi(argv[3]);
  calls = atoi(argv[4]);
  if (count < 1 || count > THREADS_MAX || samples < 1 || calls < 1) return 2;
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  function = spin_kernel(&driver, argv[5]);
  usleep(LOOK_US);
  pthread_barrier_init(&together, NULL, (unsigned)count);
  double median_ns = 0, processor_ns = 0;
  for (int i = 0; i < count; i++) {
    threads[i].samples_ns = calloc((size_t)samples, sizeof(double));
    pthread_create(&threads[i].id, NULL, run, &threads[i]);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i].id, NULL);
    qsort(threads[i].samples_ns, (size_t)samples, sizeof(double), ascending);
    double middle_ns = threads[i].samples_ns[samples / 2];
    if (middle_ns > median_ns) median_ns = middle_ns;
    if (threads[i].cpu_ns > processor_ns) processor_ns = threads[i].cpu_ns;
  }
  printf("{\"elapsed_ns\": %.1f, \"cpu_ns\": %.1f}\n", median_ns, processor_ns);
  return 0;
}
