/* graph_node_plain.c - nodes of graphs whose parameters are the driver's: host functions, graphs, events, memory. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaGraphAddEmptyNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                            size_t count) {
  return SC_CALL(cuGraphAddEmptyNode, ret_node, graph, dependencies, count);
}

SC_PUBLIC cudaError_t cudaGraphAddHostNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                           size_t count, const CUDA_HOST_NODE_PARAMS *params) {
  return SC_CALL(cuGraphAddHostNode, ret_node, graph, dependencies, count, params);
}

SC_PUBLIC cudaError_t cudaGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *ret_params) {
  return SC_CALL(cuGraphHostNodeGetParams, node, ret_params);
}

SC_PUBLIC cudaError_t cudaGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
  return SC_CALL(cuGraphHostNodeSetParams, node, params);
}

SC_PUBLIC cudaError_t cudaGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                     const CUDA_HOST_NODE_PARAMS *params) {
  return SC_CALL(cuGraphExecHostNodeSetParams, exec, node, params);
}

SC_PUBLIC cudaError_t cudaGraphAddChildGraphNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                                 size_t count, CUgraph child) {
  return SC_CALL(cuGraphAddChildGraphNode, ret_node, graph, dependencies, count, child);
}

SC_PUBLIC cudaError_t cudaGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *ret_graph) {
  return SC_CALL(cuGraphChildGraphNodeGetGraph, node, ret_graph);
}

SC_PUBLIC cudaError_t cudaGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return SC_CALL(cuGraphExecChildGraphNodeSetParams, exec, node, child);
}

SC_PUBLIC cudaError_t cudaGraphAddEventRecordNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                                  size_t count, CUevent event) {
  return SC_CALL(cuGraphAddEventRecordNode, ret_node, graph, dependencies, count, event);
}

SC_PUBLIC cudaError_t cudaGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *ret_event) {
  return SC_CALL(cuGraphEventRecordNodeGetEvent, node, ret_event);
}

SC_PUBLIC cudaError_t cudaGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return SC_CALL(cuGraphEventRecordNodeSetEvent, node, event);
}

SC_PUBLIC cudaError_t cudaGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SC_CALL(cuGraphExecEventRecordNodeSetEvent, exec, node, event);
}

SC_PUBLIC cudaError_t cudaGraphAddEventWaitNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                                size_t count, CUevent event) {
  return SC_CALL(cuGraphAddEventWaitNode, ret_node, graph, dependencies, count, event);
}

SC_PUBLIC cudaError_t cudaGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *ret_event) {
  return SC_CALL(cuGraphEventWaitNodeGetEvent, node, ret_event);
}

SC_PUBLIC cudaError_t cudaGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return SC_CALL(cuGraphEventWaitNodeSetEvent, node, event);
}

SC_PUBLIC cudaError_t cudaGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SC_CALL(cuGraphExecEventWaitNodeSetEvent, exec, node, event);
}

SC_PUBLIC cudaError_t cudaGraphAddMemAllocNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                               size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  return SC_CALL(cuGraphAddMemAllocNode, ret_node, graph, dependencies, count, params);
}

SC_PUBLIC cudaError_t cudaGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret_params) {
  return SC_CALL(cuGraphMemAllocNodeGetParams, node, ret_params);
}

SC_PUBLIC cudaError_t cudaGraphAddMemFreeNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                              size_t count, void *pointer) {
  return SC_CALL(cuGraphAddMemFreeNode, ret_node, graph, dependencies, count, (CUdeviceptr)pointer);
}

SC_PUBLIC cudaError_t cudaGraphMemFreeNodeGetParams(CUgraphNode node, void *ret_pointer) {
  return SC_CALL(cuGraphMemFreeNodeGetParams, node, (CUdeviceptr *)ret_pointer);
}

SC_PUBLIC cudaError_t cudaDeviceGraphMemTrim(int device) {
  return SC_CALL(cuDeviceGraphMemTrim, device);
}

SC_PUBLIC cudaError_t cudaDeviceGetGraphMemAttribute(int device, CUgraphMem_attribute attribute, void *ret_value) {
  return SC_CALL(cuDeviceGetGraphMemAttribute, device, attribute, ret_value);
}

SC_PUBLIC cudaError_t cudaDeviceSetGraphMemAttribute(int device, CUgraphMem_attribute attribute, void *value) {
  return SC_CALL(cuDeviceSetGraphMemAttribute, device, attribute, value);
}
