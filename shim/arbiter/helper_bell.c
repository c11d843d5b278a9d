/* helper_bell.c - see helper_bell.h. */
#include "arbiter/helper_bell.h"

#include "base/prim.h"

void vg_helper_bell_ring(struct vg_process *process) {
  __atomic_add_fetch(&process->header->helper_wake, 1, __ATOMIC_RELEASE);
  vg_prim_futex_wake(&process->header->helper_wake, 1);
}
