/*
 * launch.h - kernels of operations and how long they take (launch.c, duration.c).
 */
#ifndef SC_NCCL_LAUNCH_H
#define SC_NCCL_LAUNCH_H
#include "simcuda/nccl/operation.h"

ncclResult_t sc_launch_publish(struct sc_operation *operation);
ncclResult_t sc_launch_finish(struct sc_operation *operation);
/* Kernels of this rank that wait for other ranks' stop waiting. */
void sc_launch_disband(struct ncclComm *comm);

/* ---- duration.c ---- */

double sc_find_link(CUdevice device); /* bytes per nanosecond that a device sends to others */
uint64_t sc_duration_ns(const struct sc_operation *operation);

#endif
