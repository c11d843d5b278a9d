/*
 * told.h - what a program is told once. Called where a launch is made.
 */
#ifndef VG_SIM_TOLD_H
#define VG_SIM_TOLD_H
#include <stdbool.h>

/* Whether sim_tell_kernel has nothing more to say: read at each launch. */
extern bool sim_told_kernel;

/* Says, the first time, that this kernel and others like it compute nothing. */
void sim_tell_kernel(const char *name);

#endif
