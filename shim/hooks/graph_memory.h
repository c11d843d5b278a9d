/*
 * graph_memory.h - memory of graphs and the collectives in them, for launches (cuda_hook.c).
 */
#ifndef VG_HOOK_GRAPH_MEMORY_H
#define VG_HOOK_GRAPH_MEMORY_H
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

/* A launch or an upload of a graph, by the driver's function, after the graph's memory has been charged. OUT_OF_MEMORY:
 * it is over the limit. While vg_graphs_with_memory is 0 this is just the driver's call. */
typedef CUresult vg_graph_call(CUgraphExec exec, CUstream stream);
extern uint32_t vg_graphs_with_memory;
CUresult vg_graph_paid_call(CUgraphExec exec, CUstream stream, vg_graph_call *call);
/* A graph has been launched: counts the collectives in it for the devices of a gang. */
void vg_graph_launched(const struct vg_device *device, CUgraphExec exec);
/* What the driver holds for graphs of a device may have changed: asks, and brings the account to it. */
void vg_graph_refresh(struct vg_device *device);
void vg_graph_forked_child(void);

#endif
