/*
 * context_limits.h - limits of contexts that are device memory.
 */
#ifndef VG_HOOK_CONTEXT_LIMITS_H
#define VG_HOOK_CONTEXT_LIMITS_H

void vg_limit_forked_child(void);

#endif
