/*
 * graph.h - graphs, their nodes and executables. Used by capture/ as well. A graph is not thread-safe (as the
 * programming guide says of the real one).
 */
#ifndef VG_SIM_GRAPH_H
#define VG_SIM_GRAPH_H
#include "simgpu/modules/module.h"
#include "simgpu/streams/stream.h"

#define SIM_GRAPH_MAGIC 0x47524150u
#define SIM_NODE_MAGIC 0x4e4f4445u
#define SIM_EXEC_MAGIC 0x45584543u

/* Of nodes that signal or wait for external semaphores. */
struct sim_semaphores {
  CUexternalSemaphore *handles;
  void *params; /* of the type that goes with the kind of node */
  uint32_t count;
};

struct sim_node;

/* What nodes of a type do. */
struct sim_node_work {
  CUresult (*copy)(struct sim_node *node, const struct sim_node *from); /* sets the work of a node of the same type */
  void (*drop)(struct sim_node *node);                                  /* frees what it holds; NULL: nothing */
  CUresult (*run)(const struct sim_node *node, struct sim_stream *stream);
};

struct sim_node {
  struct sim_object object;
  struct sim_graph *graph;
  CUgraphNodeType type;
  const struct sim_node_work *work; /* set with what it does; NULL: nothing yet, or an empty node */
  uint32_t index;                   /* in graph->nodes */
  bool enabled;
  struct sim_node **dependencies;
  CUgraphEdgeData *edges; /* of the dependencies, in the same order */
  uint32_t dependency_count;
  struct sim_node *original; /* of a node in a clone or an executable */
  union {
    struct {
      struct sim_launch launch;
      void **pointers; /* into launch.params, for cuGraphKernelNodeGetParams */
    } kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_HOST_NODE_PARAMS host;
    struct sim_graph *child;
    CUevent event;
    struct {
      CUDA_MEM_ALLOC_NODE_PARAMS params;
      struct sim_block *block;
    } memory;            /* of allocation nodes */
    CUdeviceptr address; /* of free nodes */
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    struct sim_semaphores semaphores;
    struct {
      struct sim_condition *condition;
      struct sim_graph **bodies;
      uint32_t size; /* of bodies */
      CUgraphConditionalNodeType type;
    } conditional;
  };
  struct sim_context *context;      /* of kernels, copies and memsets */
  struct sim_attribute *attributes; /* of kernels */
};

/* A graph's references to a thing of the program. */
struct sim_held {
  struct sim_user *user;
  uint32_t count;
  struct sim_held *next;
};

struct sim_graph {
  struct sim_object object;
  struct sim_node **nodes;
  uint32_t count;
  struct sim_graph *original; /* of a clone */
  struct sim_held *held;
  struct sim_condition *conditions; /* handles that were made for it */
};

struct sim_exec {
  struct sim_object object;
  struct sim_graph *graph; /* a clone; owned */
  struct sim_node **order; /* its nodes, each behind what it depends on */
  uint64_t flags;
};

/* graph.c */
struct sim_graph *sim_graph_find(CUgraph handle);
struct sim_node *sim_node_find(CUgraphNode handle);
struct sim_graph *sim_graph_make(void);
void sim_graph_free(struct sim_graph *graph);
CUresult sim_graph_copy(struct sim_graph *graph, struct sim_graph **ret_copy);
CUresult sim_node_make(struct sim_graph *graph, CUgraphNodeType type, struct sim_node *const *dependencies,
                       size_t count, struct sim_node **ret_node);
void sim_node_free(struct sim_node *node); /* takes it out of its graph too */
/* edge NULL: a plain one. */
CUresult sim_node_depend(struct sim_node *node, struct sim_node *on, const CUgraphEdgeData *edge);
/* Copies what the node does (not where it stands) from one of the same type. */
CUresult sim_node_copy_work(struct sim_node *node, const struct sim_node *from);
void sim_node_drop_work(struct sim_node *node);

void sim_node_forget(struct sim_node *node, const struct sim_node *on); /* a dependency less */
struct sim_exec *sim_exec_find(CUgraphExec handle);
struct sim_exec *sim_exec_make(struct sim_graph *graph, struct sim_node **order); /* takes both; NULL: none left */
void sim_exec_free(struct sim_exec *exec);

/* user_object.c */
CUresult sim_graph_hold(struct sim_graph *graph, CUuserObject object, unsigned count, bool moves); /* the caller's */
CUresult sim_graph_release(struct sim_graph *graph, CUuserObject object, unsigned count);
CUresult sim_graph_copy_held(struct sim_graph *graph, const struct sim_graph *from);
void sim_graph_drop_held(struct sim_graph *graph);

/* graph_node_work.c */
CUresult sim_node_set_kernel(struct sim_node *node, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult sim_node_set_launch(struct sim_node *node, const struct sim_launch *launch, struct sim_context *context);
CUresult sim_node_set_copy(struct sim_node *node, const CUDA_MEMCPY3D *copy, CUcontext context);
CUresult sim_node_set_memset(struct sim_node *node, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context);
CUresult sim_node_set_host(struct sim_node *node, const CUDA_HOST_NODE_PARAMS *host);
CUresult sim_node_set_event(struct sim_node *node, CUevent event);
CUresult sim_node_set_child(struct sim_node *node, CUgraph handle);
CUresult sim_node_put_child(struct sim_node *node, struct sim_graph *graph); /* a copy of it, without a question */

/* graph_node_params.c */
CUresult sim_node_set_any(struct sim_node *node, CUgraphNodeParams *params);

/* graph_batch.c */
CUresult sim_node_set_batch(struct sim_node *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
CUresult sim_node_set_signal(struct sim_node *node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params);
CUresult sim_node_set_wait(struct sim_node *node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params);

/* graph_conditional.c */
CUresult sim_node_set_conditional(struct sim_node *node,
                                  CUDA_CONDITIONAL_NODE_PARAMS *params); /* answers phGraph_out */
bool sim_graph_bodies_allowed(const struct sim_graph *graph, struct sim_node **ret_node);
void sim_graph_reset_conditions(const struct sim_graph *graph); /* at a launch: those with a default */

/* graph_attribute.c */
CUresult sim_node_set_attribute(struct sim_node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
CUlaunchAttributeValue sim_node_attribute(const struct sim_node *node, CUlaunchAttributeID id); /* zeros: not set */
void sim_node_drop_attributes(struct sim_node *node);
CUresult sim_node_copy_attributes(struct sim_node *node, const struct sim_node *from);

/* graph_memory.c */
void sim_graph_memory_context_destroy(struct sim_context *context);
CUresult sim_node_set_alloc(struct sim_node *node, CUDA_MEM_ALLOC_NODE_PARAMS *params); /* answers params->dptr */
CUresult sim_graph_reserve(const struct sim_graph *graph); /* memory for its allocation nodes */

bool sim_graph_has_memory(const struct sim_graph *graph);      /* such a graph may not be copied, or lose nodes */
bool sim_graph_is_instantiated(const struct sim_graph *graph); /* says so of graphs with allocation nodes only */
/* What the last launch left allocated: freed, or the reason why the graph may not be launched. */
CUresult sim_graph_settle(const struct sim_graph *graph, bool frees);
CUresult sim_node_set_free(struct sim_node *node, CUdeviceptr address);

/* graph_run.c */
CUresult sim_graph_order(struct sim_graph *graph, struct sim_node ***ret_order); /* INVALID_VALUE: it has a cycle */
CUresult sim_graph_run(struct sim_node *const *order, uint32_t count, struct sim_stream *stream);
CUresult sim_graph_run_inner(struct sim_graph *graph, struct sim_stream *stream); /* a child graph or a body */

#endif
