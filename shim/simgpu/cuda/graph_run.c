/*
 * graph_run.c - the order of a graph's nodes and their execution in a stream. Called by graph_exec.c. The nodes run one
 * after the other: branches do not overlap on the simulated device, which costs time and changes no result.
 */
#include "graph.h"
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

static uint8_t *address_of(CUmemorytype type, const void *host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? (uint8_t *)(uintptr_t)host : (uint8_t *)(uintptr_t)device;
}

static CUresult run_copy(const CUDA_MEMCPY3D *copy, struct sim_stream *stream) {
  uint8_t *to = address_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice);
  uint8_t *from = address_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice);
  struct sim_allocation allocation; /* memory may have been freed since the node was made */
  if (copy->dstMemoryType == CU_MEMORYTYPE_DEVICE && !sim_memory_find(copy->dstDevice, &allocation))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (copy->srcMemoryType == CU_MEMORYTYPE_DEVICE && !sim_memory_find(copy->srcDevice, &allocation))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (to == NULL || from == NULL) return CUDA_ERROR_INVALID_VALUE;
  size_t to_row = copy->dstPitch != 0 ? copy->dstPitch : copy->WidthInBytes;
  size_t from_row = copy->srcPitch != 0 ? copy->srcPitch : copy->WidthInBytes;
  size_t to_plane = to_row * (copy->dstHeight != 0 ? copy->dstHeight : copy->Height);
  size_t from_plane = from_row * (copy->srcHeight != 0 ? copy->srcHeight : copy->Height);
  to += copy->dstXInBytes + copy->dstY * to_row + copy->dstZ * to_plane;
  from += copy->srcXInBytes + copy->srcY * from_row + copy->srcZ * from_plane;
  for (size_t z = 0; z < copy->Depth; z++)
    for (size_t y = 0; y < copy->Height; y++)
      memmove(to + z * to_plane + y * to_row, from + z * from_plane + y * from_row, copy->WidthInBytes);
  enum sim_copy kind = sim_copy_kind((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from);
  return sim_submit_copy(stream, kind, copy->WidthInBytes * copy->Height * copy->Depth);
}

static CUresult run_memset(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_stream *stream) {
  struct sim_allocation allocation;
  if (!sim_memory_find(set->dst, &allocation)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t y = 0; y < set->height; y++) {
    uint8_t *row = (uint8_t *)(uintptr_t)(set->dst + y * set->pitch);
    for (size_t x = 0; x < set->width; x++) memcpy(row + x * set->elementSize, &set->value, set->elementSize);
  }
  return sim_submit_memset(stream, set->width * set->height * set->elementSize);
}

static CUresult run_kernel(const struct sim_node *node, struct sim_stream *stream) {
  if (sim_function_find((CUfunction)node->kernel.launch.function) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = sim_launch_compute(&node->kernel.launch);
  if (result != CUDA_SUCCESS) return result;
  return sim_submit_node(stream, sim_launch_cost_of(&node->kernel.launch, stream->context));
}

static CUresult run_child(const struct sim_node *node, struct sim_stream *stream) {
  struct sim_node **order;
  CUresult result = sim_graph_order(node->child, &order);
  if (result != CUDA_SUCCESS) return result;
  result = sim_graph_run(order, node->child->count, stream);
  free(order);
  return result;
}

static CUresult run_event_wait(CUevent handle, struct sim_stream *stream) {
  struct sim_event *event = sim_event_find(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return event->generation == 0 ? CUDA_SUCCESS : sim_submit_wait(stream, event->point);
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
    return sim_submit_callback(stream, node->host.fn, node->host.userData);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return run_child(node, stream);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
    struct sim_event *event = sim_event_find(node->event);
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_submit_record(stream, event);
  }
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return run_event_wait(node->event, stream);
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
