/*
 * strict.h - a strict look at what a program does, if it is asked for, as compute-sanitizer takes one:
 *
 *   VGPU_SIM_STRICT=1     a line on standard error for each use of memory or of a handle after its end, each handle of
 *                         another context, each range that goes beyond its allocation, with the entry point and the
 *                         handle; at exit a line for each kind of thing that was not given back. =fail: then the
 *                         process ends with 1.
 *
 * The calls answer what they do without it. Handles are used again as late as possible, so that a stale one is known.
 */
#ifndef VG_SIM_STRICT_H
#define VG_SIM_STRICT_H
#include "base/prim.h"
#include <stdbool.h>
#include <stdint.h>

extern bool sim_strict;                      /* not known before the first call */
extern __thread const char *sim_strict_call; /* the entry point that the thread was in last */
#define SIM_STRICT VG_UNLIKELY(sim_strict)

void sim_strict_begin(const char *setting);
void sim_strict_count(void);  /* something wrong was found */
bool sim_strict_failed(void); /* =fail, and something wrong was found */
/* "stream" of "sizeof(struct sim_stream)"; other words are left as they are. */
void sim_strict_type_name(const char *type, char ret_name[32]);
void sim_strict_tell(const char *type, const void *handle, const char *wrong); /* a handle of that type is wrong */

#endif
