/*
 * ipc.h - memory that other processes have opened to this one (cuIpc*Mem*).
 */
#ifndef VG_SIM_IPC_H
#define VG_SIM_IPC_H
#include "simgpu/process/current.h"

void sim_ipc_destroy(struct sim_context *context); /* ipc.c: closes what the context has open */

#endif
