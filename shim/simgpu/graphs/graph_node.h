/*
 * graph_node.h - how the entry points of one kind of node are written: adding, reading, setting, setting in an
 * executable. Used by the graph_*.c files that hold types of nodes.
 */
#ifndef VG_SIM_GRAPH_NODE_H
#define VG_SIM_GRAPH_NODE_H
#include "simgpu/graphs/graph.h"

CUresult sim_node_begin(CUgraphNode *ret_handle, CUgraph handle, CUgraphNodeType type, const CUgraphNode *dependencies,
                        size_t count, struct sim_node **ret_node);
CUresult sim_node_finish(struct sim_node *node, CUresult result, CUgraphNode *ret_node); /* a failed one is gone */
CUresult sim_node_context(CUcontext handle, struct sim_context **ret_context);           /* NULL: the current one */
struct sim_node *sim_node_of_type(CUgraphNode handle, CUgraphNodeType type);             /* NULL: it is none */
/* The executable's node for a node of the graph that it was made from; NULL: there is none. */
struct sim_node *sim_exec_node(CUgraphExec exec, CUgraphNode handle);
struct sim_node *sim_exec_node_of_type(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type);

/* cuGraphAdd<...>Node: the head of the arguments is the same in all. */
#define SIM_NODE_ADD(name, type, work, ...)                                                                            \
  SIM_PUBLIC CUresult name(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,                      \
                           size_t count __VA_OPT__(, ) __VA_ARGS__) {                                                  \
    struct sim_node *node;                                                                                             \
    CUresult result = sim_node_begin(ret_node, graph, type, dependencies, count, &node);                               \
    return result != CUDA_SUCCESS ? result : sim_node_finish(node, work, ret_node);                                    \
  }

/* Get and Set of one kind of node. */
#define SIM_NODE_GET(name, node_type, out_type, expression)                                                            \
  SIM_PUBLIC CUresult name(CUgraphNode handle, out_type *ret_value) {                                                  \
    struct sim_node *node = sim_node_of_type(handle, node_type);                                                       \
    if (node == NULL || ret_value == NULL) return CUDA_ERROR_INVALID_VALUE;                                            \
    *ret_value = (expression);                                                                                         \
    return CUDA_SUCCESS;                                                                                               \
  }
#define SIM_NODE_SET(name, node_type, in_type, work)                                                                   \
  SIM_PUBLIC CUresult name(CUgraphNode handle, in_type value) {                                                        \
    struct sim_node *node = sim_node_of_type(handle, node_type);                                                       \
    return node == NULL ? CUDA_ERROR_INVALID_VALUE : (work);                                                           \
  }
#define SIM_NODE_SET_EXEC(name, node_type, in_type, work)                                                              \
  SIM_PUBLIC CUresult name(CUgraphExec exec, CUgraphNode handle, in_type value) {                                      \
    struct sim_node *node = sim_exec_node_of_type(exec, handle, node_type);                                            \
    return node == NULL ? CUDA_ERROR_INVALID_VALUE : (work);                                                           \
  }

#endif
