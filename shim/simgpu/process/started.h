/* started.h - whether cuInit succeeded in this process; for the layer before the entry points as well. */
#ifndef VG_SIM_STARTED_H
#define VG_SIM_STARTED_H
#include <stdbool.h>
#include <stdint.h>

bool sim_is_started(void); /* state.c */
/* Not 0: the calling thread only asks for facts, which a locked process is answered as well. */
extern __thread uint32_t sim_asks __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Where the last such call of this thread comes from: whose code it is. */
extern __thread const void *sim_caller __attribute__((tls_model("initial-exec"), visibility("hidden")));

#endif
