/* graph_work.h - what the operations of a graph compute, and how many bytes they move. */
#ifndef SC_CUDNN_GRAPH_WORK_H
#define SC_CUDNN_GRAPH_WORK_H
#include "simcuda/cudnn/nodes.h"

/* Dimensions of a tensor's node; their number; 0: not a tensor that is set. */
int sc_dnn_find_dims(const struct sc_dnn_node *tensor, const int64_t **ret_dims);

/* graph: finalized. are_tensor_cores_allowed: whether the engine rounds FP32 to TF32. */
struct sc_dnn_work sc_dnn_measure_graph(const struct sc_dnn_node *graph, bool are_tensor_cores_allowed);

/* What the inputs of a graph's products are computed with where tensor cores are allowed. */
enum sc_math sc_dnn_find_graph_math(const struct sc_dnn_node *graph);

#endif
