/*
 * notice.h - messages to a program, each once. Called where a launch is made or results are read.
 */
#ifndef VG_SIM_NOTICE_H
#define VG_SIM_NOTICE_H
#include <stdbool.h>

/* Whether sim_notify_of_kernel has nothing more to say: read at each launch. */
extern bool sim_has_notified;

/* Says, the first time, that this kernel and others like it compute nothing. */
void sim_notify_of_kernel(const char *name);

/* For programs whose small reads are zeros (values.h): that is said at the first one, and nothing about a kernel. */
void sim_notify_of_zeros_only(void);
void sim_notify_of_zeros(void);

#endif
