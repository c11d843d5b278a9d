/*
 * graph_wait.h - graphs with nodes that wait for something else: see gate/graph_work.c.
 */
#ifndef VG_HOOK_GRAPH_WAIT_H
#define VG_HOOK_GRAPH_WAIT_H
#include "gen/abi/cuda_abi.h"

/* An executable graph has been made of a graph, or brought up to it. A query that fails makes its waits count as device
 * time. */
void vg_graph_note_waits(CUgraphExec exec, CUgraph graph);

#endif
