/*
 * graphs: what nodes do, what graphs may be made of, how executables are changed, and whose memory is whose. Conditions
 * are set by a kernel that computes (kernels.model), so loops and branches really happen.
 */
#include "program.h"

#define MIB (1ull << 20)
#define GRANULE (2 * MIB)

static const char text[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\nret;\n}\n"
    ".visible .entry condition_f32(.param .u64 handle, .param .u64 in)\n{\nret;\n}\n";
static CUcontext context;
static CUfunction saxpy, condition;
static CUdeviceptr ones, values;

static void load(void) {
  CUmodule module;
  float one = 1;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&saxpy, module, "saxpy"));
  CHECK(cuModuleGetFunction(&condition, module, "condition_f32"));
  CHECK(cuMemAlloc_v2(&ones, 64));
  CHECK(cuMemAlloc_v2(&values, 64));
  CHECK(cuMemcpyHtoD_v2(ones, &one, sizeof one));
}

static void set_value(int index, float value) {
  CHECK(cuMemcpyHtoD_v2(values + 4 * (unsigned)index, &value, sizeof value));
}

static float value_of(int index) {
  float value;
  CHECK(cuMemcpyDtoH_v2(&value, values + 4 * (unsigned)index, sizeof value));
  return value;
}

static CUgraph new_graph(void) {
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  return graph;
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction function, void **params) {
  return (CUDA_KERNEL_NODE_PARAMS){.func = function,
                                   .gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = params};
}

/* values[index] += amount */
static CUgraphNode add_to(CUgraph graph, CUgraphNode after, int index, float amount) {
  unsigned count = 1;
  CUdeviceptr out = values + 4 * (unsigned)index;
  void *params[] = {&count, &amount, &ones, &out};
  CUDA_KERNEL_NODE_PARAMS node = kernel(saxpy, params);
  CUgraphNode made;
  CHECK(cuGraphAddKernelNode_v2(&made, graph, &after, after != NULL, &node));
  return made;
}

/* handle = values[index] */
static CUgraphNode set_condition(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle, int index) {
  CUdeviceptr in = values + 4 * (unsigned)index;
  void *params[] = {&handle, &in};
  CUDA_KERNEL_NODE_PARAMS node = kernel(condition, params);
  CUgraphNode made;
  CHECK(cuGraphAddKernelNode_v2(&made, graph, &after, after != NULL, &node));
  return made;
}

static CUgraph *branch(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                       CUgraphConditionalNodeType type, unsigned size) {
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                              .conditional = {.handle = handle, .type = type, .size = size, .ctx = context}};
  CUgraphNode made;
  CHECK(cuGraphAddNode_v2(&made, graph, &after, NULL, after != NULL, &params));
  CUgraphNodeType found;
  CHECK(cuGraphNodeGetType(made, &found));
  TRUE(found == CU_GRAPH_NODE_TYPE_CONDITIONAL);
  return params.conditional.phGraph_out;
}

static CUgraphExec ready(CUgraph graph) {
  CUgraphExec exec;
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

static void run(CUgraphExec exec) {
  CHECK(cuGraphLaunch(exec, NULL));
  CHECK(cuCtxSynchronize());
}

static CUgraphConditionalHandle new_handle(CUgraph graph, unsigned value, unsigned flags) {
  CUgraphConditionalHandle handle;
  CHECK(cuGraphConditionalHandleCreate(&handle, graph, context, value, flags));
  return handle;
}

static void branches(void) {
  CUgraph graph = new_graph();
  CUgraphConditionalHandle either = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphConditionalHandle one_of = new_handle(graph, 9, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraph *bodies = branch(graph, NULL, either, CU_GRAPH_COND_TYPE_IF, 2);
  add_to(bodies[0], NULL, 0, 1);
  add_to(bodies[1], NULL, 0, 10);
  CUgraphNode set = set_condition(graph, NULL, one_of, 1);
  bodies = branch(graph, set, one_of, CU_GRAPH_COND_TYPE_SWITCH, 3);
  for (int i = 0; i < 3; i++) add_to(bodies[i], NULL, 2, (float)i + 1);
  CUgraphExec exec = ready(graph);
  for (int i = 0; i < 3; i++) set_value(i, 0);
  set_value(1, 2);
  run(exec);
  TRUE(value_of(0) == 1 && value_of(2) == 3);
  set_value(1, 3); /* one past the last body */
  run(exec);
  TRUE(value_of(0) == 2 && value_of(2) == 3);
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

static void loops(void) {
  CUgraph graph = new_graph();
  CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraph *bodies = branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  CUgraphNode down = add_to(bodies[0], NULL, 0, -1);
  CUgraphNode last = set_condition(bodies[0], down, handle, 0);
  add_to(bodies[0], last, 1, 1);
  CUgraphExec exec = ready(graph);
  for (int round = 1; round <= 2; round++) {
    set_value(0, 5);
    set_value(1, 0);
    run(exec);
    TRUE(value_of(0) == 0 && value_of(1) == 5);
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

static void conditions_have_rules(void) {
  CUgraph graph = new_graph();
  CUgraphConditionalHandle handle = new_handle(graph, 0, 0), other;
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
  CUgraphExec exec;
  CUgraphNode node;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&other, graph, context, 0, 2));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &how));
  TRUE(how.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                              .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_WHILE, .size = 2}};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, 0, &params));
  CUgraph *bodies = branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1);
  params.conditional.size = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, 0, &params)); /* the handle has its node */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(bodies[0]));
  CHECK(cuGraphInstantiateWithParams(&exec, graph, &how));
  CHECK(cuGraphExecDestroy(exec));
  CUevent event;
  CHECK(cuEventCreate(&event, 0));
  CHECK(cuGraphAddEventRecordNode(&node, bodies[0], NULL, 0, event));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &how));
  TRUE(how.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE && how.hErrNode_out != NULL);
  CHECK(cuGraphDestroy(graph));
  CHECK(cuEventDestroy_v2(event));
}

static void batches(void) {
  CUgraph graph = new_graph();
  CUstreamBatchMemOpParams ops[2] = {{.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32},
                                     {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32}};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = context, .count = 2, .paramArray = ops}, read;
  CUgraphNode node;
  unsigned word = 0;
  ops[0].writeValue.address = ops[1].waitValue.address = values;
  ops[0].writeValue.value = ops[1].waitValue.value = 77;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
  CHECK(cuGraphBatchMemOpNodeGetParams(node, &read));
  TRUE(read.count == 2 && read.paramArray != ops && read.paramArray[1].waitValue.value == 77);
  CUgraphExec exec = ready(graph);
  run(exec);
  CHECK(cuMemcpyDtoH_v2(&word, values, sizeof word));
  TRUE(word == 77);
  ops[0].writeValue.value = ops[1].waitValue.value = 78;
  CHECK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  run(exec);
  CHECK(cuMemcpyDtoH_v2(&word, values, sizeof word));
  TRUE(word == 78);
  params.count = 0;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeSetParams(node, &params));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

static void edges(void) {
  CUgraph graph = new_graph();
  CUgraphNode first = add_to(graph, NULL, 0, 1), second = add_to(graph, NULL, 0, 1), empty, from, to;
  CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                           .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  CUgraphEdgeData read = {0};
  size_t count = 1;
  CHECK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies_v2(graph, &first, &empty, &early, 1)); /* kernels only */
  CHECK(cuGraphAddDependencies_v2(graph, &first, &second, &early, 1));
  EXPECT(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, &from, &to, &count));
  CHECK(cuGraphGetEdges(graph, NULL, NULL, &count));
  TRUE(count == 1);
  CHECK(cuGraphGetEdges_v2(graph, &from, &to, &read, &count));
  TRUE(from == first && to == second && memcmp(&read, &early, sizeof read) == 0);
  CHECK(cuGraphNodeGetDependentNodes_v2(first, &to, &read, &count));
  TRUE(to == second && read.from_port == early.from_port);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &first, &second, 1)); /* that is another edge */
  CHECK(cuGraphRemoveDependencies_v2(graph, &first, &second, &early, 1));
  CHECK(cuGraphGetEdges(graph, NULL, NULL, &count));
  TRUE(count == 0);
  CHECK(cuGraphDestroy(graph));
}

static CUgraphExecUpdateResult update(CUresult code, CUgraphExec exec, CUgraph graph, CUgraphNode node) {
  CUgraphExecUpdateResultInfo info;
  EXPECT(code, cuGraphExecUpdate_v2(exec, graph, &info));
  TRUE(info.errorNode == node);
  return info.result;
}

static void updates(void) {
  CUgraph graph = new_graph(), changed = new_graph(), shorter = new_graph(), others = new_graph();
  CUgraphNode first = add_to(graph, NULL, 0, 1), second = add_to(graph, first, 0, 1), node;
  CUgraphExec exec = ready(graph);
  set_value(0, 0);
  run(exec);
  TRUE(value_of(0) == 2);
  CUgraphNode before = add_to(changed, NULL, 0, 10);
  add_to(changed, before, 0, 10);
  TRUE(update(CUDA_SUCCESS, exec, changed, NULL) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  run(exec);
  TRUE(value_of(0) == 22);
  node = add_to(shorter, NULL, 0, 1);
  CUresult refused = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  TRUE(update(refused, exec, shorter, NULL) == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CUgraphNode loose = add_to(shorter, NULL, 0, 1);
  TRUE(update(refused, exec, shorter, loose) == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  node = add_to(others, NULL, 0, 1);
  CHECK(cuGraphAddEmptyNode(&node, others, &node, 1));
  TRUE(update(refused, exec, others, node) == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  run(exec);
  TRUE(value_of(0) == 42); /* as before the refusals */
  (void)second;
  CHECK(cuGraphExecDestroy(exec));
  CUgraph all[] = {graph, changed, shorter, others};
  for (int i = 0; i < 4; i++) CHECK(cuGraphDestroy(all[i]));
}

/* ---- memory ---- */

static cuuint64_t memory_of(CUgraphMem_attribute attribute) {
  cuuint64_t bytes;
  CHECK(cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
  return bytes;
}

static size_t free_bytes(void) {
  size_t bytes, total;
  CHECK(cuMemGetInfo_v2(&bytes, &total));
  return bytes;
}

static CUresult allocate(CUgraph graph, CUgraphNode *ret_node, size_t bytes, CUdeviceptr *ret_address) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = bytes};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUresult result = cuGraphAddMemAllocNode(ret_node, graph, NULL, 0, &params);
  *ret_address = params.dptr;
  return result;
}

static void memory_is_reserved_by_the_first_launch(void) {
  size_t before = free_bytes();
  CUgraph graph = new_graph(), clone;
  CUgraphNode node, freed;
  CUdeviceptr address;
  CHECK(allocate(graph, &node, 3 * MIB, &address));
  CHECK(cuGraphAddMemFreeNode(&freed, graph, &node, 1, address));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, graph, &node, 1, address));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, graph, &node, 1, values));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(freed));
  CUgraphExec exec = ready(graph), second;
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&second, graph, 0));
  TRUE(free_bytes() == before && memory_of(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  run(exec);
  run(exec);
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 2 * GRANULE);
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 2 * GRANULE && free_bytes() == before - 2 * GRANULE);
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  TRUE(free_bytes() == before - 2 * GRANULE); /* kept for other graphs */
  CHECK(cuDeviceGraphMemTrim(0));
  TRUE(free_bytes() == before && memory_of(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 2 * GRANULE);
  cuuint64_t zero = 0;
  CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
}

static void memory_that_is_left_allocated(void) {
  size_t before = free_bytes();
  CUgraph graph = new_graph();
  CUgraphNode node;
  CUdeviceptr address;
  CUgraphExec exec;
  CHECK(allocate(graph, &node, MIB, &address));
  exec = ready(graph);
  run(exec);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
  CHECK(cuMemsetD8_v2(address, 1, MIB));
  CHECK(cuDeviceGraphMemTrim(0));
  TRUE(free_bytes() == before - GRANULE); /* it is in use */
  CHECK(cuMemFree_v2(address));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
  run(exec);
  CHECK(cuMemFreeAsync(address, NULL));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  for (int i = 0; i < 3; i++) run(exec);
  TRUE(memory_of(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == GRANULE);
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuMemFree_v2(address));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuDeviceGraphMemTrim(0));
  TRUE(free_bytes() == before);
}

static void memory_that_is_not_there(void) {
  size_t before = free_bytes();
  CUgraph graph = new_graph();
  CUgraphNode node;
  CUdeviceptr address;
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  CUgraphExec exec = NULL;
  CHECK(allocate(graph, &node, 200ull << 30, &address));
  CUresult result = cuGraphInstantiateWithFlags(&exec, graph, 0); /* a slice may say so here */
  if (result == CUDA_SUCCESS) {
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload(exec, NULL));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, NULL));
    CHECK(cuGraphExecDestroy(exec));
  } else {
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
  }
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithParams(&exec, graph, &how));
  CHECK(cuGraphDestroy(graph));
  TRUE(free_bytes() == before);
}

int main(void) {
  context = begin();
  load();
  branches();
  loops();
  conditions_have_rules();
  batches();
  edges();
  updates();
  memory_is_reserved_by_the_first_launch();
  memory_that_is_left_allocated();
  memory_that_is_not_there();
  puts("ok");
  return 0;
}
