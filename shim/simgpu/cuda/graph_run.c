/*
 * graph_run.c - the order of a graph's nodes and their execution in a stream. Called by graph_exec.c. The nodes run one
 * after the other: branches do not overlap on the simulated device, which costs time and changes no result.
 */
#include "simgpu/cuda/graph.h"
#include <stdlib.h>
#include <string.h>

CUresult sim_graph_order(struct sim_graph *graph, struct sim_node ***ret_order) {
  uint32_t *waiting = calloc(graph->count + 1, sizeof *waiting);
  struct sim_node **order = calloc(graph->count + 1, sizeof *order);
  bool progress = true;
  uint32_t done = 0;
  if (waiting == NULL || order == NULL) {
    free(waiting);
    free(order);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  /* Passes over the nodes in the order of their making: one pass for every graph that was built front to back. */
  while (done < graph->count && progress) {
    progress = false;
    for (uint32_t i = 0; i < graph->count; i++) {
      struct sim_node *node = graph->nodes[i];
      bool ready = waiting[i] == 0;
      for (uint32_t j = 0; j < node->dependency_count && ready; j++) ready = waiting[node->dependencies[j]->index] != 0;
      if (!ready) continue;
      waiting[i] = 1; /* placed */
      order[done++] = node;
      progress = true;
    }
  }
  bool cycle = done < graph->count;
  free(waiting);
  if (cycle) {
    free(order);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *ret_order = order;
  return CUDA_SUCCESS;
}

static CUresult run_copy(const CUDA_MEMCPY3D *copy, struct sim_stream *stream) {
  enum sim_copy kind;
  CUresult result = sim_copy_bytes(copy, &kind);
  return result == CUDA_SUCCESS ? sim_submit_copy(stream, kind, copy->WidthInBytes * copy->Height * copy->Depth)
                                : result;
}

static CUresult run_memset(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_stream *stream) {
  CUresult result = sim_set_bytes(set);
  return result == CUDA_SUCCESS ? sim_submit_memset(stream, set->width * set->height * set->elementSize) : result;
}

static CUresult run_kernel(const struct sim_node *node, struct sim_stream *stream) {
  if (sim_function_find((CUfunction)node->kernel.launch.function) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = sim_launch_compute(&node->kernel.launch);
  if (result != CUDA_SUCCESS) return result;
  const struct sim_launch *launch = &node->kernel.launch;
  return sim_submit_node(stream, sim_launch_cost_of(launch, stream->context), launch->function->rule->meet);
}

CUresult sim_graph_run_inner(struct sim_graph *graph, struct sim_stream *stream) {
  struct sim_node **order;
  CUresult result = sim_graph_order(graph, &order);
  if (result != CUDA_SUCCESS) return result;
  result = sim_graph_run(order, graph->count, stream);
  free(order);
  return result;
}

static CUresult run_event_wait(CUevent handle, struct sim_stream *stream) {
  struct sim_event *event = sim_event_find(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return sim_submit_wait_event(stream, event);
}

static CUresult run_node(const struct sim_node *node, struct sim_stream *stream) {
  switch (node->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return run_kernel(node, stream);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return run_copy(&node->copy, stream);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return run_memset(&node->set, stream);
  case CU_GRAPH_NODE_TYPE_HOST:
    return sim_submit_callback(stream, node->host.fn, node->host.userData, false);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return sim_graph_run_inner(node->child, stream);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
    struct sim_event *event = sim_event_find(node->event);
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_submit_record(stream, event);
  }
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    return sim_node_run_alloc(node);
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    return sim_node_run_free(node);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return run_event_wait(node->event, stream);
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    return sim_node_run_batch(node, stream);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return sim_node_run_conditional(node, stream);
  default:
    return CUDA_SUCCESS; /* empty */
  }
}

CUresult sim_graph_run(struct sim_node *const *order, uint32_t count, struct sim_stream *stream) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    if (order[i]->enabled) result = run_node(order[i], stream);
  return result;
}
