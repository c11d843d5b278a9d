/*
 * context.h - making and ending contexts: what the files of entry points share. process/current.h says what a context
 * is.
 */
#ifndef VG_SIM_CONTEXT_H
#define VG_SIM_CONTEXT_H
#include "simgpu/process/current.h"

/* ---- context.c: green contexts, with the home retained, which destroying releases ---- */

CUresult sim_green_make(CUdevice ordinal, unsigned sm_count, unsigned sm_alignment, struct sim_context **ret_green);
CUresult sim_green_find(CUgreenCtx handle, struct sim_context **ret_green);
void sim_green_destroy(struct sim_context *green);

/* ---- context_info.c ---- */

void sim_limits_fill(struct sim_context *context);      /* the usual ones, a part of what it costs */
void sim_limits_end(const struct sim_context *context); /* gives back what larger ones took */

#endif
