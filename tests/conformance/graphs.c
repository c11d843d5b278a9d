/*
 * graphs: instantiation, launches, updates, and the memory of graphs.
 */
#include "row.h"

static CUgraph graph;
static CUgraphExec exec;
static CUdeviceptr block;

static CUDA_MEMSET_NODE_PARAMS set_to(unsigned value) {
  return (CUDA_MEMSET_NODE_PARAMS){.dst = block, .value = value, .elementSize = 1, .width = 16, .height = 1};
}

static CUgraphNode add_set(CUgraph to, CUgraphNode after, unsigned value) {
  CUgraphNode node;
  CUcontext context;
  CUDA_MEMSET_NODE_PARAMS params = set_to(value);
  NEED(cuCtxGetCurrent(&context));
  NEED(cuGraphAddMemsetNode(&node, to, &after, after != NULL, &params, context));
  return node;
}

static void begin_graph(void) {
  begin();
  NEED(cuMemAlloc_v2(&block, 16));
  NEED(cuMemsetD8_v2(block, 0, 16));
  NEED(cuGraphCreate(&graph, 0));
}

static void launch_and_read(const char *name) {
  unsigned char in = 0;
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact(name, in);
}

static void graph_runs(void) {
  begin_graph();
  add_set(graph, add_set(graph, NULL, 1), 2);
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  CODE("destroy", cuGraphDestroy(graph));
  launch_and_read("value");
  launch_and_read("value");
  CODE("destroy", cuGraphExecDestroy(exec));
}

static void graph_update(void) {
  CUgraph same_shape, other_shape;
  CUgraphExecUpdateResultInfo info = {0};
  begin_graph();
  add_set(graph, NULL, 1);
  NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
  NEED(cuGraphCreate(&same_shape, 0));
  add_set(same_shape, NULL, 5);
  CODE("update", cuGraphExecUpdate_v2(exec, same_shape, &info));
  fact("result", info.result);
  launch_and_read("value");
  NEED(cuGraphCreate(&other_shape, 0));
  add_set(other_shape, add_set(other_shape, NULL, 1), 2);
  CODE("other", cuGraphExecUpdate_v2(exec, other_shape, &info));
  fact("result", info.result);
  launch_and_read("value");
}

static void graph_cycle(void) {
  begin_graph();
  CUgraphNode one = add_set(graph, NULL, 1), two = add_set(graph, one, 2);
  CODE("depend", cuGraphAddDependencies_v2(graph, &two, &one, NULL, 1));
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void graph_errors(void) {
  begin_graph();
  CODE("flags", cuGraphCreate(&graph, 1));
  CODE("null", cuGraphLaunch(NULL, NULL));
  CODE("empty", cuGraphInstantiateWithFlags(&exec, graph, 0));
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("unknown_flags", cuGraphInstantiateWithFlags(&exec, graph, 1ull << 40));
}

static CUDA_MEM_ALLOC_NODE_PARAMS device_memory(size_t bytes) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = props, .bytesize = bytes};
}

static long long graph_memory(CUgraphMem_attribute attribute) {
  cuuint64_t value = 0;
  NEED(cuDeviceGetGraphMemAttribute(0, attribute, &value));
  return (long long)value;
}

static void graph_memory_nodes(void) {
  CUgraphNode alloc, release;
  CUDA_MEM_ALLOC_NODE_PARAMS params = device_memory(8 * MIB);
  begin_graph();
  CODE("alloc", cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
  fact("address", params.dptr != 0);
  CODE("free", cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
  size_t before = free_bytes();
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  fact("second_refused", cuGraphInstantiateWithFlags(&(CUgraphExec){0}, graph, 0) != CUDA_SUCCESS);
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  fact("used", graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
  fact("reserved", graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= (long long)(8 * MIB));
  fact("info_says_reserved",
       (long long)(before - free_bytes()) == graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
  CODE("trim_in_use", cuDeviceGraphMemTrim(0));
  CODE("destroy", cuGraphExecDestroy(exec));
  CODE("trim", cuDeviceGraphMemTrim(0));
  fact("reserved", graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
  taken("after", before);
}

static void graph_memory_outlives(void) {
  CUgraphNode alloc;
  CUDA_MEM_ALLOC_NODE_PARAMS params = device_memory(8 * MIB);
  unsigned char in = 0;
  begin_graph();
  NEED(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
  size_t before = free_bytes();
  NEED(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("set", cuMemsetD8_v2(params.dptr, 6, 16));
  CODE("read", cuMemcpyDtoH_v2(&in, params.dptr, 1));
  fact("value", in);
  CODE("free", cuMemFreeAsync(params.dptr, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  CODE("destroy", cuGraphExecDestroy(exec));
  CODE("trim", cuDeviceGraphMemTrim(0));
  taken("after", before);
}

/* Where it is refused is the driver's choice: when the node is added, at instantiation or at the launch. */
static void graph_memory_over_limit(void) {
  CUgraphNode alloc;
  begin_graph();
  CUDA_MEM_ALLOC_NODE_PARAMS params = device_memory(total_bytes() + GRANULE);
  size_t before = free_bytes();
  CUresult code = cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params);
  if (code == CUDA_SUCCESS) code = cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (code == CUDA_SUCCESS) code = cuGraphLaunch(exec, NULL);
  fact("refused_with", code);
  taken("after", before);
}

static void graph_managed_memory(void) {
  CUgraphNode alloc;
  CUDA_MEM_ALLOC_NODE_PARAMS params = device_memory(8 * MIB), back = {0};
  int managed = UNTOUCHED;
  begin_graph();
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  CODE("alloc", cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
  CODE("params", cuGraphMemAllocNodeGetParams(alloc, &back));
  fact("type", back.poolProps.allocType);
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("set", cuMemsetD8_v2(params.dptr, 6, 16));
  CODE("wait", cuStreamSynchronize(NULL));
  fact("on_host", *(unsigned char *)params.dptr);
  CODE("attribute", cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, params.dptr));
  fact("managed", managed);
  CODE("free", cuMemFreeAsync(params.dptr, NULL));
  params = device_memory(8 * MIB);
  params.poolProps.allocType = (CUmemAllocationType)3;
  CODE("unknown_type", cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
}

ROWS(ROW(graph_runs), ROW(graph_update), ROW(graph_cycle), ROW(graph_errors), ROW(graph_memory_nodes),
     ROW(graph_memory_outlives), ROW(graph_memory_over_limit), ROW(graph_managed_memory))
