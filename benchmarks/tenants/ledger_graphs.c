/* ledger_graphs.c - see ledger.h: graphs with allocation nodes, built and captured. */
#include "ledger.h"

static bool add_nodes(struct worker *worker, CUgraph graph, uint64_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
      .bytesize = bytes};
  CUgraphNode taken, freed;
  return MAY(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &params)) &&
         MAY(cuGraphAddMemFreeNode(&freed, graph, &taken, 1, params.dptr));
}

/* Makes the object out of a graph, which is destroyed. */
static bool instantiate(struct worker *worker, struct object *object, CUgraph graph, bool whole) {
  CUgraphExec exec;
  bool made = whole && MAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  if (!made) return false;
  object->parts[0] = (uintptr_t)exec;
  uint64_t launches = object->bytes >= LARGE_BYTES ? 1 : draw(worker, 3);
  for (uint64_t left = launches; left; left--) (void)MAY(cuGraphLaunch(exec, stream_of(worker)));
  return true;
}

bool make_graph(struct worker *worker, struct object *object) {
  CUgraph graph;
  if (!MAY(cuGraphCreate(&graph, 0))) return false;
  return instantiate(worker, object, graph, add_nodes(worker, graph, object->bytes));
}

bool make_captured(struct worker *worker, struct object *object) {
  CUstream stream = worker->capturing;
  CUdeviceptr pointer;
  CUgraph graph = NULL;
  if (!MAY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))) return false;
  bool whole = MAY(cuMemAllocAsync(&pointer, object->bytes, stream));
  if (whole) whole = MAY(cuMemFreeAsync(pointer, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  return graph && instantiate(worker, object, graph, whole);
}

void drop_graph(struct worker *worker, struct object *object) {
  MUST(cuGraphExecDestroy((CUgraphExec)object->parts[0]));
  if (!draw(worker, 4)) (void)MAY(cuDeviceGraphMemTrim(0));
}

void drop_captured(struct worker *worker, struct object *object) {
  drop_graph(worker, object);
}
