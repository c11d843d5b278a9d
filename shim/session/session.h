/*
 * session.h - the slice of this process: one struct vg_device per device of the slice, found by the ordinal that the
 * program sees (the driver is shown only the slice's devices, so its ordinals are the same).
 * attach/pages.c fills it at attach and swaps the page pointers at re-attach (old pages are never unmapped, so a
 * reader may keep using a stale pointer for one call); gate/ and ledger/credit.c keep their private state in it.
 */
#ifndef VG_SESSION_H
#define VG_SESSION_H
#include <stdbool.h>
#include <stdint.h>

#include "abi/vg_abi.h"
#include "base/prim.h"

/* An arbiter whose heartbeat is older does not run; see vg_arbiter_seen_ns(). */
#define VG_HEARTBEAT_LATE_NS (100 * VG_NS_PER_MS)

struct vg_gate_state;   /* gate/state.h */
struct vg_memory_state; /* ledger/credit.c */

struct vg_device {
  const uint32_t *gate_word; /* read by the fast path: the control page's gate, or private_word */
  uint32_t open_word;        /* the open gate word that this process has accepted; anything else takes the slow path */
  uint32_t solo_word;        /* the accepted word while launches pass it uncounted, else VG_GATE_NO_WORD */
  uint32_t counted_word;     /* the accepted word while it is COUNT and the gate is busy, else VG_GATE_NO_WORD */
  uint32_t private_word;     /* stands in for the control page's gate while there is no daemon (coast, open, closed) */
  uint64_t epoch;            /* of waits, see vg_gate_sync_begin() */
  const struct vg_control_device *control; /* atomic pointers: see the head of this file */
  struct vg_report_device *report;
  int doorbell_fd;
  uint32_t rung_unread;            /* the value of control->unread for which the doorbell was rung */
  uint64_t rung_ns;                /* when */
  struct vg_slice_device resolved; /* the slice's limits as of attach; before the first daemon answers only the UUID */
  struct vg_gate_state *gate;
  struct vg_memory_state *memory;
};

struct vg_session {
  bool ledger;   /* devices[] is filled and memory is accounted, whether a daemon has answered yet or not */
  bool attached; /* a daemon has answered: devices[] have pages, except for those not in the slice (control == NULL) */
  bool daemon_gone; /* the daemon does not answer any more */
  bool link_lost;   /* the socket to the daemon was closed and there is no new one; atomic */
  uint32_t mode;    /* VG_MODE_* */
  uint32_t device_count;
  uint64_t process_id;
  char slice[VG_NAME_BYTES];
  char node[VG_NAME_BYTES];
  const struct vg_control_header *header; /* atomic pointer */
  struct vg_device devices[VG_DEVICES_MAX];
};

extern struct vg_session vg_session;

/* Called beside each change of the report page, without a lock that the arbiter needs: an arbiter that has not seen it
 * change for long reads it again when the doorbell rings. Once is enough: it then reads it for some heartbeats. */
static inline void vg_report_changes(struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t unread = control ? VG_LOAD_RELAXED(&control->unread) : 0;
  if (VG_LIKELY(!unread) || VG_LOAD_RELAXED(&device->rung_unread) == unread) return;
  int fd = VG_LOAD_RELAXED(&device->doorbell_fd);
  VG_STORE_RELAXED(&device->rung_ns, vg_prim_now_ns());
  VG_STORE(&device->rung_unread, unread);
  if (vg_prim_eventfd_is(fd)) vg_prim_eventfd_ring(fd); /* the program may have closed it, and opened a file there */
}

/* When the arbiter has last shown that it runs; now_ns while it owes this process no sign of life. */
static inline uint64_t vg_arbiter_seen_ns(const struct vg_device *device, const struct vg_control_device *control,
                                          uint64_t now_ns) {
  uint32_t unread = VG_LOAD(&control->unread); /* before the heartbeat, which is written first */
  uint64_t beat_ns = VG_LOAD_RELAXED(&control->heartbeat_ns);
  if (!unread) return beat_ns;
  if (VG_LOAD(&device->rung_unread) != unread) return now_ns;
  uint64_t rung_ns = VG_LOAD_RELAXED(&device->rung_ns);
  return beat_ns > rung_ns ? beat_ns : rung_ns;
}

#endif
