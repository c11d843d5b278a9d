/*
 * graph_work.c - how much device time a graph takes at most that has nodes which wait for something else: host
 * functions, values in memory, events, other interfaces, copies. The events around its launch measure the waits, too.
 * So its cost is no more than that of its kernels, as far as it is known from launches of their own, and once that time
 * has passed the stream counts as waiting (stream_wait.c).
 */
#include <stdlib.h>

#include "gate/copies.h"
#include "gate/state.h"
#include "gate/thread_work.h"

#define BUCKETS 256
#define RENEWED_EVERY 16 /* launches: estimates change seldom */

struct graph {
  struct graph *next;
  CUgraphExec exec;
  uint64_t fill_ns;
  uint64_t copy_bytes[2];
  uint64_t most_ns;  /* as last summed up; 0: one of its kernels is unknown */
  uint32_t launches; /* since then */
  size_t count;
  struct vg_graph_kernel kernels[];
};

uint32_t vg_gate_graphs_that_copy;

static pthread_mutex_t graphs_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct graph *graphs[BUCKETS];

static struct graph **find(CUgraphExec exec) {
  struct graph **link = &graphs[((uintptr_t)exec * 0x9E3779B97F4A7C15ull >> 40) % BUCKETS]; /* 2^64 / golden ratio */
  while (*link && (*link)->exec != exec) link = &(*link)->next;
  return link;
}

static bool copies(const struct graph *graph) {
  return graph->copy_bytes[VG_COPY_TO_DEVICE] || graph->copy_bytes[VG_COPY_FROM_DEVICE];
}

static void forget(CUgraphExec exec) {
  struct graph **link = find(exec), *graph = *link;
  if (!graph) return;
  *link = graph->next;
  if (copies(graph)) __atomic_sub_fetch(&vg_gate_graphs_that_copy, 1, __ATOMIC_RELAXED);
  free(graph);
  __atomic_sub_fetch(&vg_gate_graphs_that_wait, 1, __ATOMIC_RELAXED);
}

void vg_gate_graph_waits(CUgraphExec exec, const struct vg_graph_content *content) {
  size_t count = content->kernel_count;
  struct graph *graph = malloc(sizeof *graph + count * sizeof *content->kernels);
  pthread_mutex_lock(&graphs_mutex);
  forget(exec);
  if (graph) { /* else its waits count as device time */
    graph->exec = exec;
    graph->fill_ns = content->fill_ns;
    for (int way = 0; way < 2; way++) graph->copy_bytes[way] = content->copy_bytes[way];
    graph->launches = 0;
    graph->count = count;
    for (size_t i = 0; i < count; i++) graph->kernels[i] = content->kernels[i];
    struct graph **link = find(exec);
    graph->next = NULL;
    *link = graph;
    __atomic_add_fetch(&vg_gate_graphs_that_wait, 1, __ATOMIC_RELAXED);
    if (copies(graph)) __atomic_add_fetch(&vg_gate_graphs_that_copy, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&graphs_mutex);
}

bool vg_gate_does_graph_wait(CUgraphExec exec) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_graphs_that_wait))) return false;
  pthread_mutex_lock(&graphs_mutex);
  bool waits = *find(exec) != NULL;
  pthread_mutex_unlock(&graphs_mutex);
  return waits;
}

void vg_gate_find_graph_copies(CUgraphExec exec, uint64_t ret_bytes[2]) {
  ret_bytes[VG_COPY_TO_DEVICE] = ret_bytes[VG_COPY_FROM_DEVICE] = 0;
  pthread_mutex_lock(&graphs_mutex);
  const struct graph *graph = *find(exec);
  for (int way = 0; graph && way < 2; way++) ret_bytes[way] = graph->copy_bytes[way];
  pthread_mutex_unlock(&graphs_mutex);
}

void vg_gate_graph_gone(CUgraphExec exec) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_graphs_that_wait))) return;
  pthread_mutex_lock(&graphs_mutex);
  forget(exec);
  pthread_mutex_unlock(&graphs_mutex);
}

/* Of one kernel, by whichever thread has launched it; 0: none has. */
static uint64_t cost_of(const struct vg_work *first, const struct vg_graph_kernel *kernel) {
  uint64_t cost_ns = 0;
  for (struct vg_work *work = (struct vg_work *)(uintptr_t)first; work && !cost_ns; work = work->next) {
    vg_lock(&work->lock);
    cost_ns = vg_work_known_cost(work, kernel->function, kernel->threads);
    vg_unlock(&work->lock);
  }
  return cost_ns;
}

/* Else the graph counts as a whole: a kernel that only graphs have would cost next to nothing. */
static uint64_t sum_up(const struct vg_work *first, const struct graph *graph) {
  uint64_t most_ns = graph->fill_ns + 1;
  for (size_t i = 0; i < graph->count; i++) {
    uint64_t cost_ns = cost_of(first, &graph->kernels[i]);
    if (!cost_ns) return 0;
    most_ns += cost_ns;
  }
  return most_ns;
}

void vg_gate_limit_graph(const struct vg_device *device, struct vg_work *work, struct vg_estimate *estimate) {
  pthread_mutex_lock(&graphs_mutex);
  struct graph *graph = *find((CUgraphExec)(uintptr_t)estimate->function);
  bool due = graph && (graph->launches++ % RENEWED_EVERY == 0 || !graph->most_ns);
  if (due) graph->most_ns = sum_up(VG_LOAD(&device->gate->works), graph);
  uint64_t most_ns = graph ? graph->most_ns : 0;
  pthread_mutex_unlock(&graphs_mutex);
  if (graph) vg_gate_begin_measuring(work->device);
  vg_lock(&work->lock);
  vg_estimate_limit(estimate, most_ns != 0, most_ns);
  vg_unlock(&work->lock);
}

void vg_gate_graphs_forked_child(void) {
  pthread_mutex_init(&graphs_mutex, NULL);
}
