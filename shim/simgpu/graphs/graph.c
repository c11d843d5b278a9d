/*
 * graph.c - graphs as data: nodes, edges, copies, executables, and what of the program's they hold. What a node does is
 * its work (struct sim_node_work), which the file that sets it brings along: graph_node_work.c, graph_memory.c,
 * graph_batch.c, graph_conditional.c.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/base/slab.h"
#include "simgpu/modules/condition.h"
#include "simgpu/process/process.h"
#include <stdlib.h>
#include <string.h>

static struct sim_slab graphs = SIM_SLAB(sizeof(struct sim_graph), 1 << 18);
static struct sim_slab execs = SIM_SLAB(sizeof(struct sim_exec), 1 << 16);
static struct sim_slab nodes = SIM_SLAB(sizeof(struct sim_node), 1 << 22);

struct sim_graph *sim_graph_find(CUgraph handle) {
  return sim_slab_find(&graphs, handle, SIM_GRAPH_MAGIC);
}
struct sim_node *sim_node_find(CUgraphNode handle) {
  return sim_slab_find(&nodes, handle, SIM_NODE_MAGIC);
}

struct sim_graph *sim_graph_make(void) {
  return sim_slab_get(&graphs, SIM_GRAPH_MAGIC);
}

void sim_node_drop_work(struct sim_node *node) {
  if (node->work != NULL && node->work->drop != NULL) node->work->drop(node);
}

static void put_node(struct sim_node *node) {
  sim_node_drop_work(node);
  sim_node_drop_attributes(node);
  free(node->dependencies);
  free(node->edges);
  sim_slab_put(&nodes, node);
}

void sim_graph_free(struct sim_graph *graph) {
  for (uint32_t i = 0; i < graph->count; i++) put_node(graph->nodes[i]);
  free(graph->nodes);
  sim_graph_drop_held(graph);
  sim_conditions_drop(&graph->conditions);
  sim_slab_put(&graphs, graph);
}

void sim_node_forget(struct sim_node *node, const struct sim_node *on) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < node->dependency_count; i++) {
    if (node->dependencies[i] == on) continue;
    node->dependencies[kept] = node->dependencies[i];
    node->edges[kept++] = node->edges[i];
  }
  node->dependency_count = kept;
}

void sim_node_free(struct sim_node *node) {
  struct sim_graph *graph = node->graph;
  for (uint32_t i = 0; i < graph->count; i++) {
    struct sim_node *other = graph->nodes[i];
    sim_node_forget(other, node);
    if (i > node->index) {
      other->index = i - 1;
      graph->nodes[i - 1] = other;
    }
  }
  graph->count--;
  put_node(node);
}

/* Capacities are powers of two, so the count alone tells when there is no more space. */
static void *grow(void *list, uint32_t count, size_t each_bytes) {
  if (count != 0 && (count & (count - 1)) != 0) return list;
  return realloc(list, (count == 0 ? 1 : 2 * (size_t)count) * each_bytes);
}

/* Programmatic edges let a kernel begin before the one before it has ended; on the simulated device none does. */
static bool edge_allowed(const struct sim_node *node, const struct sim_node *on, const CUgraphEdgeData *edge) {
  static const unsigned char none[sizeof edge->reserved];
  bool kernels = node->type == CU_GRAPH_NODE_TYPE_KERNEL && on->type == CU_GRAPH_NODE_TYPE_KERNEL;
  if (memcmp(edge->reserved, none, sizeof none) != 0 || edge->to_port != 0) return false;
  if (edge->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
  return edge->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && kernels &&
         edge->from_port >= CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
         edge->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
}

CUresult sim_node_depend(struct sim_node *node, struct sim_node *on, const CUgraphEdgeData *edge) {
  static const CUgraphEdgeData plain;
  if (edge == NULL) edge = &plain;
  if (!edge_allowed(node, on, edge)) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < node->dependency_count; i++)
    if (node->dependencies[i] == on) return CUDA_SUCCESS;
  struct sim_node **list = grow(node->dependencies, node->dependency_count, sizeof *list);
  if (list != NULL) node->dependencies = list;
  CUgraphEdgeData *edges = list == NULL ? NULL : grow(node->edges, node->dependency_count, sizeof *edges);
  if (edges == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  node->edges = edges;
  edges[node->dependency_count] = *edge;
  list[node->dependency_count++] = on;
  return CUDA_SUCCESS;
}

CUresult sim_node_make(struct sim_graph *graph, CUgraphNodeType type, struct sim_node *const *dependencies,
                       size_t count, struct sim_node **ret_node) {
  struct sim_node **list = grow(graph->nodes, graph->count, sizeof *list);
  struct sim_node *node = list == NULL ? NULL : sim_slab_get(&nodes, SIM_NODE_MAGIC);
  if (list != NULL) graph->nodes = list;
  if (node == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  node->graph = graph;
  node->type = type;
  node->enabled = true;
  node->index = graph->count;
  list[graph->count++] = node;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct sim_node *on = sim_node_find((CUgraphNode)dependencies[i]);
    result = on == NULL || on->graph != graph ? CUDA_ERROR_INVALID_VALUE : sim_node_depend(node, on, NULL);
  }
  if (result != CUDA_SUCCESS)
    sim_node_free(node);
  else
    *ret_node = node;
  return result;
}

CUresult sim_node_copy_work(struct sim_node *node, const struct sim_node *from) {
  node->context = from->context;
  return from->work == NULL ? CUDA_SUCCESS : from->work->copy(node, from);
}

CUresult sim_graph_copy(struct sim_graph *graph, struct sim_graph **ret_copy) {
  struct sim_graph *copy = sim_graph_make();
  if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  copy->original = graph;
  CUresult result = sim_graph_copy_held(copy, graph);
  for (uint32_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
    struct sim_node *node;
    result = sim_node_make(copy, graph->nodes[i]->type, NULL, 0, &node);
    if (result != CUDA_SUCCESS) break;
    node->original = graph->nodes[i];
    node->enabled = graph->nodes[i]->enabled;
    result = sim_node_copy_work(node, graph->nodes[i]);
    if (result == CUDA_SUCCESS) result = sim_node_copy_attributes(node, graph->nodes[i]);
  }
  for (uint32_t i = 0; i < copy->count && result == CUDA_SUCCESS; i++)
    for (uint32_t j = 0; j < graph->nodes[i]->dependency_count && result == CUDA_SUCCESS; j++)
      result = sim_node_depend(copy->nodes[i], copy->nodes[graph->nodes[i]->dependencies[j]->index],
                               &graph->nodes[i]->edges[j]);
  if (result != CUDA_SUCCESS)
    sim_graph_free(copy);
  else
    *ret_copy = copy;
  return result;
}

struct sim_exec *sim_exec_find(CUgraphExec handle) {
  return sim_slab_find(&execs, handle, SIM_EXEC_MAGIC);
}

struct sim_exec *sim_exec_make(struct sim_graph *graph, struct sim_node **order) {
  struct sim_exec *exec = sim_slab_get(&execs, SIM_EXEC_MAGIC);
  if (exec == NULL) return NULL;
  graph->object.inner = true;
  exec->graph = graph;
  exec->order = order;
  return exec;
}

void sim_exec_free(struct sim_exec *exec) {
  sim_graph_free(exec->graph);
  free(exec->order);
  sim_slab_put(&execs, exec);
}

/* ---- entry points ---- */

SIM_PUBLIC CUresult cuGraphCreate(CUgraph *ret_graph, unsigned flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_graph == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct sim_graph *graph = sim_graph_make();
  if (graph == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *ret_graph = (CUgraph)graph;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphDestroy(CUgraph handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || graph->object.inner) return CUDA_ERROR_INVALID_VALUE;
  sim_graph_free(graph);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphClone(CUgraph *ret_graph, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle), *copy;
  if (graph == NULL || ret_graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = sim_graph_copy(graph, &copy);
  if (result == CUDA_SUCCESS) *ret_graph = (CUgraph)copy;
  return result;
}

SIM_PUBLIC CUresult cuGraphNodeFindInClone(CUgraphNode *ret_node, CUgraphNode original, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle);
  struct sim_node *node = sim_node_find(original);
  if (graph == NULL || node == NULL || ret_node == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->original != node) continue;
    *ret_node = (CUgraphNode)graph->nodes[i];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuGraphDestroyNode(CUgraphNode handle) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
  sim_node_free(node);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *ret_type) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL || ret_type == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_type = node->type;
  return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                          size_t count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (count != 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    struct sim_node *before = sim_node_find(from[i]), *after = sim_node_find(to[i]);
    if (before == NULL || after == NULL || before->graph != graph || after->graph != graph || before == after)
      return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_node_depend(after, before, data == NULL ? NULL : &data[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

/* An edge is named with its data: without any it is a plain one. */
static bool has_edge(const struct sim_node *node, const struct sim_node *on, const CUgraphEdgeData *data) {
  static const CUgraphEdgeData plain;
  for (uint32_t i = 0; i < node->dependency_count; i++)
    if (node->dependencies[i] == on) return memcmp(&node->edges[i], data == NULL ? &plain : data, sizeof plain) == 0;
  return false;
}

static CUresult remove_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (count != 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; i++) {
    struct sim_node *before = sim_node_find(from[i]), *after = sim_node_find(to[i]);
    if (before == NULL || after == NULL || before->graph != graph || after->graph != graph ||
        !has_edge(after, before, data == NULL ? NULL : &data[i]))
      return CUDA_ERROR_INVALID_VALUE;
    sim_node_forget(after, before);
  }
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t count) {
  return add_edges(graph, from, to, NULL, count);
}

SIM_PUBLIC CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *data, size_t count) {
  return add_edges(graph, from, to, data, count);
}

SIM_PUBLIC CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              size_t count) {
  return remove_edges(graph, from, to, NULL, count);
}

SIM_PUBLIC CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                 const CUgraphEdgeData *data, size_t count) {
  return remove_edges(graph, from, to, data, count);
}

SIM_PUBLIC CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0) return CUDA_ERROR_INVALID_VALUE;
  return sim_graph_hold(graph, object, count, (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0);
}

SIM_PUBLIC CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count) {
  struct sim_graph *graph = sim_graph_find(handle);
  return graph == NULL ? CUDA_ERROR_INVALID_VALUE : sim_graph_release(graph, object, count);
}
