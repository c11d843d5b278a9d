/*
 * graph_wait.c - reads which nodes of a graph wait for something that is no work of the device, what they copy, and
 * which kernels and fills it has besides. Not seen: changes of a single node of an executable graph. The bodies of
 * conditional nodes are unknown: such a graph is measured as a whole.
 */
#include "hooks/graph_wait.h"

#include <stdlib.h>

#include "gate/copies.h"
#include "gen/abi/real.h"

#define FILL_BYTES_PER_NS 1000 /* a fourth of what the slowest device of its class writes: never too short */

struct reading {
  bool waits;
  uint64_t fill_ns, copy_bytes[2];
  struct vg_graph_kernel *kernels;
  size_t count, capacity;
};

static bool add_kernel(struct reading *reading, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS of = {0}; /* begins with the fields of older drivers */
  if (REAL(cuGraphKernelNodeGetParams_v2)(node, &of) != CUDA_SUCCESS &&
      REAL(cuGraphKernelNodeGetParams)(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&of) != CUDA_SUCCESS)
    return false;
  if (reading->count == reading->capacity) {
    size_t capacity = reading->capacity ? 2 * reading->capacity : 16;
    struct vg_graph_kernel *more = realloc(reading->kernels, capacity * sizeof *more);
    if (!more) return false;
    reading->kernels = more;
    reading->capacity = capacity;
  }
  uint64_t threads = (uint64_t)(of.blockDimX * of.blockDimY * of.blockDimZ) * (of.gridDimY * of.gridDimZ) * of.gridDimX;
  const void *function = of.func ? (const void *)of.func : (const void *)of.kern;
  reading->kernels[reading->count++] = (struct vg_graph_kernel){.function = function, .threads = threads};
  return true;
}

static bool add_fill(struct reading *reading, CUgraphNode node) {
  CUDA_MEMSET_NODE_PARAMS of;
  if (REAL(cuGraphMemsetNodeGetParams)(node, &of) != CUDA_SUCCESS) return false;
  reading->fill_ns += (uint64_t)of.width * of.elementSize * (of.height ? of.height : 1) / FILL_BYTES_PER_NS + 1000;
  return true;
}

/* One that cannot be read is not counted. */
static void add_copy(struct reading *reading, CUgraphNode node) {
  CUDA_MEMCPY3D of;
  if (REAL(cuGraphMemcpyNodeGetParams)(node, &of) != CUDA_SUCCESS) return;
  enum vg_copy_direction way = vg_copy_direction(of.dstMemoryType, of.dstDevice, of.srcMemoryType, of.srcDevice);
  if (way != VG_COPY_ELSEWHERE) reading->copy_bytes[way] += (uint64_t)of.WidthInBytes * of.Height * of.Depth;
}

static bool add_graph(struct reading *reading, CUgraph graph, int depth);

static bool add_node(struct reading *reading, CUgraphNode node, int depth) {
  CUgraphNodeType type;
  CUgraph child;
  if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return false;
  switch (type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return add_kernel(reading, node);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return add_fill(reading, node);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS && add_graph(reading, child, depth + 1);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return false;
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    add_copy(reading, node);
    reading->waits = true;
    return true;
  case CU_GRAPH_NODE_TYPE_HOST:
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    reading->waits = true;
    return true;
  default:
    return true;
  }
}

static bool add_graph(struct reading *reading, CUgraph graph, int depth) {
  enum { DEPTH_MOST = 16 };
  size_t count = 0;
  if (depth > DEPTH_MOST || REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS) return false;
  CUgraphNode *nodes = count ? malloc(count * sizeof *nodes) : NULL;
  if (count && !nodes) return false;
  bool known = !count || REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS;
  for (size_t i = 0; known && i < count; i++) known = add_node(reading, nodes[i], depth);
  free(nodes);
  return known;
}

void vg_graph_note_waits(CUgraphExec exec, CUgraph graph) {
  struct reading reading = {0};
  if (!VG_LOAD(&vg_session.ledger)) return; /* no slice */
  if (add_graph(&reading, graph, 0) && reading.waits) {
    struct vg_graph_content content = {.kernels = reading.kernels,
                                       .kernel_count = reading.count,
                                       .fill_ns = reading.fill_ns,
                                       .copy_bytes = {reading.copy_bytes[0], reading.copy_bytes[1]}};
    vg_gate_graph_waits(exec, &content);
  } else
    vg_gate_graph_gone(exec);
  free(reading.kernels);
}
