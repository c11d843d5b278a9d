/* workspace.h - how much memory the convolutions of a program may work in beside their tensors. */
#ifndef SC_CUDNN_WORKSPACE_H
#define SC_CUDNN_WORKSPACE_H
#include "simcuda/cudnn/nodes.h"

/* Remembers the convolutions of a graph for which a plan is made. */
void sc_dnn_note_workspaces(const struct sc_dnn_node *graph, bool are_tensor_cores_used);

#endif
