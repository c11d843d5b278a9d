/*
 * lifecycle.c - see lifecycle.h. Above all families of memory hooks, none of which calls it. Called by the hooks of
 * contexts and of cuInit, by the ledger (vg_memory_refresh) and after a fork.
 */
#include "hooks/lifecycle.h"

#include "gate/residence.h"
#include "hooks/array.h"
#include "hooks/capture.h"
#include "hooks/charge.h"
#include "hooks/context_limits.h"
#include "hooks/graph_memory.h"
#include "hooks/late_free.h"
#include "hooks/multicast.h"
#include "hooks/pinned.h"
#include "hooks/pool.h"
#include "hooks/vmm.h"
#include "ledger/records.h"
#include "moves/movable.h"
#include "moves/move.h"

/* The driver keeps what is mapped. */
static void return_movable(struct vg_record *record) {
  vg_movable_drop((struct vg_movable *)(uintptr_t)record->other);
  vg_charge_return(record);
}

/* Records of graphs and handles belong to no context. */
static void return_record(struct vg_record *record) {
  if (record->kind == VG_RECORD_ARRAY)
    vg_array_return(record);
  else if (record->kind == VG_RECORD_CAPTURE)
    vg_capture_return(record);
  else if (record->kind == VG_RECORD_PINNED)
    vg_pinned_return(record);
  else if (record->kind == VG_RECORD_POINTER && record->bytes && record->other)
    return_movable(record);
  else
    vg_charge_return(record);
}

void vg_lifecycle_context_gone(struct vg_device *device, CUcontext context) {
  struct vg_record *record = vg_table_take_context(context);
  while (record) {
    struct vg_record *next = record->next;
    return_record(record);
    record = next;
  }
  vg_lifecycle_refresh(device);
}

/* Nothing changes while the memory is away, and the driver does not answer. */
void vg_lifecycle_refresh(struct vg_device *device) {
  struct vg_gate_line *here;
  vg_pinned_refresh(device);
  if (!vg_residence_try(&here)) return;
  vg_late_free_rest();
  vg_pool_refresh(device);
  vg_graph_refresh(device);
  vg_residence_leave(here);
}

void vg_lifecycle_forked_child(void) {
  vg_charge_forked_child();
  vg_table_forked_child();
  vg_pinned_forked_child();
  vg_pool_forked_child();
  vg_graph_forked_child();
  vg_array_forked_child();
  vg_handle_forked_child();
  vg_multicast_forked_child();
  vg_limit_forked_child();
  vg_movable_forked_child();
  vg_move_forked_child();
}
