/*
 * notice.h - messages to a program, each once. Called where a launch is made.
 */
#ifndef VG_SIM_NOTICE_H
#define VG_SIM_NOTICE_H
#include <stdbool.h>

/* Whether sim_notify_of_kernel has nothing more to say: read at each launch. */
extern bool sim_has_notified;

/* Says, the first time, that this kernel and others like it compute nothing. */
void sim_notify_of_kernel(const char *name);

#endif
