/* started.h - whether cuInit succeeded in this process; for the layer before the entry points as well. */
#ifndef VG_SIM_STARTED_H
#define VG_SIM_STARTED_H
#include <stdbool.h>

bool sim_is_started(void); /* state.c */

#endif
