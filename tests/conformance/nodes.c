/*
 * nodes: what graphs are made of: child graphs, conditional nodes, host nodes, clones, and changes to what can run.
 */
#include "row.h"

static CUgraph graph;
static CUgraphExec exec;
static CUdeviceptr block;
static CUcontext context;

static CUDA_MEMSET_NODE_PARAMS set_to(unsigned value) {
  return (CUDA_MEMSET_NODE_PARAMS){.dst = block, .value = value, .elementSize = 1, .width = 16, .height = 1};
}

static CUgraphNode add_set(CUgraph to, CUgraphNode after, unsigned value) {
  CUgraphNode node;
  CUDA_MEMSET_NODE_PARAMS params = set_to(value);
  NEED(cuGraphAddMemsetNode(&node, to, &after, after != NULL, &params, context));
  return node;
}

static void begin_graph(void) {
  begin();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuMemAlloc_v2(&block, 16));
  NEED(cuMemsetD8_v2(block, 0, 16));
  NEED(cuGraphCreate(&graph, 0));
}

static void launch_and_read(void) {
  unsigned char in = 0;
  CODE("launch", cuGraphLaunch(exec, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact("value", in);
}

static void instantiate(void) {
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void child_graph(void) {
  CUgraph child, inside = NULL;
  CUgraphNode node;
  size_t nodes = 0;
  begin_graph();
  NEED(cuGraphCreate(&child, 0));
  add_set(child, NULL, 7);
  CUgraphNode first = add_set(graph, NULL, 1);
  CODE("add", cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
  add_set(child, NULL, 9); /* the node has a copy of its own */
  CODE("inside", cuGraphChildGraphNodeGetGraph(node, &inside));
  fact("copy", inside != child);
  NEED(cuGraphGetNodes(inside, NULL, &nodes));
  fact("nodes", (long long)nodes);
  CODE("destroy", cuGraphDestroy(child));
  instantiate();
  launch_and_read();
}

static void child_graph_changed(void) {
  CUgraph child, same_shape, other_shape;
  CUgraphNode node;
  begin_graph();
  NEED(cuGraphCreate(&child, 0));
  add_set(child, NULL, 7);
  NEED(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
  instantiate();
  NEED(cuGraphClone(&same_shape, child));
  NEED(cuGraphGetNodes(same_shape, &node, &(size_t){1}));
  CUDA_MEMSET_NODE_PARAMS params = set_to(8);
  CODE("params", cuGraphMemsetNodeSetParams(node, &params));
  NEED(cuGraphGetNodes(graph, &node, &(size_t){1}));
  CODE("child", cuGraphExecChildGraphNodeSetParams(exec, node, same_shape));
  launch_and_read();
  NEED(cuGraphCreate(&other_shape, 0));
  add_set(other_shape, add_set(other_shape, NULL, 1), 2);
  fact("other_refused", cuGraphExecChildGraphNodeSetParams(exec, node, other_shape) != CUDA_SUCCESS);
  launch_and_read();
}

static CUgraph add_conditional(CUgraphConditionalNodeType type, unsigned size, unsigned value, CUgraph *ret_second) {
  CUgraphConditionalHandle handle;
  CUgraphNode node;
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
  CODE("handle", cuGraphConditionalHandleCreate(&handle, graph, context, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
  params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){handle, type, size, NULL, context};
  CODE("add", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
  if (params.conditional.phGraph_out == NULL) finish();
  if (ret_second != NULL) *ret_second = params.conditional.phGraph_out[1];
  return params.conditional.phGraph_out[0];
}

static void run_if(unsigned value) {
  begin_graph();
  add_set(add_conditional(CU_GRAPH_COND_TYPE_IF, 1, value, NULL), NULL, 5);
  instantiate();
  launch_and_read();
}

static void conditional_if(void) {
  run_if(1);
}

static void conditional_if_not(void) {
  run_if(0);
}

static void conditional_switch(void) {
  CUgraph second;
  begin_graph();
  add_set(add_conditional(CU_GRAPH_COND_TYPE_SWITCH, 2, 1, &second), NULL, 5);
  add_set(second, NULL, 6);
  instantiate();
  launch_and_read();
  launch_and_read();
}

static void conditional_refused(void) {
  CUgraphConditionalHandle handle;
  CUgraphNode node, alloc;
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
  begin_graph();
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
  fact("unused_refused", cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS);
  params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){handle, CU_GRAPH_COND_TYPE_WHILE, 2, NULL, context};
  CODE("while_with_two", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
  params.conditional.size = 1;
  CODE("add", cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
  CODE("handle_twice", cuGraphAddNode_v2(&alloc, graph, NULL, NULL, 0, &params));
}

static void count_calls(void *calls) {
  ++*(int *)calls;
}

static void host_node(void) {
  static int calls;
  CUDA_HOST_NODE_PARAMS params = {.fn = count_calls, .userData = &calls};
  CUgraphNode node;
  begin_graph();
  CODE("add", cuGraphAddHostNode(&node, graph, NULL, 0, &params));
  instantiate();
  for (int i = 0; i < 3; i++) NEED(cuGraphLaunch(exec, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  fact("calls", calls);
}

static void node_changed(void) {
  CUDA_MEMSET_NODE_PARAMS params;
  unsigned enabled = 9;
  begin_graph();
  CUgraphNode node = add_set(graph, add_set(graph, NULL, 1), 2);
  instantiate();
  params = set_to(3);
  CODE("change", cuGraphExecMemsetNodeSetParams(exec, node, &params, context));
  launch_and_read();
  CODE("off", cuGraphNodeSetEnabled(exec, node, 0));
  launch_and_read();
  CODE("ask", cuGraphNodeGetEnabled(exec, node, &enabled));
  fact("is", enabled);
  CODE("on", cuGraphNodeSetEnabled(exec, node, 1));
  launch_and_read();
}

static void graph_cloned(void) {
  CUgraph clone;
  CUgraphNode node = NULL;
  CUDA_MEMSET_NODE_PARAMS params = {0};
  begin_graph();
  CUgraphNode original = add_set(graph, NULL, 4);
  CODE("clone", cuGraphClone(&clone, graph));
  CODE("find", cuGraphNodeFindInClone(&node, original, clone));
  fact("another", node != NULL && node != original);
  CODE("params", cuGraphMemsetNodeGetParams(node, &params));
  fact("value", params.value);
  CODE("destroy", cuGraphDestroy(graph));
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, clone, 0));
  launch_and_read();
}

static void node_removed(void) {
  size_t nodes = 9, edges = 9;
  begin_graph();
  CUgraphNode first = add_set(graph, NULL, 1), second = add_set(graph, first, 2);
  CODE("edges", cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges));
  fact("are", (long long)edges);
  CODE("destroy", cuGraphDestroyNode(second));
  NEED(cuGraphGetNodes(graph, NULL, &nodes));
  NEED(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges));
  fact("nodes", (long long)nodes);
  fact("edges", (long long)edges);
  instantiate();
  launch_and_read();
}

ROWS(ROW(child_graph), ROW(child_graph_changed), ROW(conditional_if), ROW(conditional_if_not), ROW(conditional_switch),
     ROW(conditional_refused), ROW(host_node), ROW(node_changed), ROW(graph_cloned), ROW(node_removed))
