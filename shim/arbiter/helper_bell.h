/* helper_bell.h - wakes the helper thread of a process. */
#ifndef VG_ARBITER_HELPER_BELL_H
#define VG_ARBITER_HELPER_BELL_H
#include "arbiter/state.h"

/* Its helper thread is to look at its control page. */
void vg_helper_bell_ring(struct vg_process *process);

#endif
