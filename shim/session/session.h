/*
 * session.h - what this process knows of its slice: one struct vg_device per device the slice has, found by the
 * ordinal that the program sees (the driver is shown only the slice's devices, so its ordinals are ours).
 * attach/attach.c fills it at attach and swaps the page pointers at re-attach (old pages are never unmapped, so a
 * reader may keep using a stale pointer for one call); gate/gate.c and ledger/credit.c keep their private state in it.
 */
#ifndef VG_SESSION_H
#define VG_SESSION_H
#include <stdbool.h>
#include <stdint.h>

#include "abi/vg_abi.h"
#include "base/prim.h"

/* An arbiter whose heartbeat is older does not run. Those who are calm get one every 40 ms (arbiter/pages.c). */
#define VG_HEARTBEAT_LATE_NS (100 * VG_NS_PER_MS)

struct vg_gate_state;   /* gate/gate.c */
struct vg_memory_state; /* ledger/credit.c */

struct vg_device {
  const uint32_t *gate_word; /* what the fast path reads: the control page's gate, or private_word */
  uint32_t open_word;        /* the open gate word that this process has accepted; anything else takes the slow path */
  uint32_t private_word;     /* stands in for the control page's gate while there is no daemon (coast, open, closed) */
  const struct vg_control_device *control; /* atomic pointers: see the head of this file */
  struct vg_report_device *report;
  int doorbell_fd;
  struct vg_slice_device resolved; /* the slice's numbers at attach; without a daemon so far only the UUID */
  struct vg_gate_state *gate;
  struct vg_memory_state *memory;
};

struct vg_session {
  bool ledger;   /* devices[] is filled and memory is accounted: a slice was asked for, a daemon met or not yet */
  bool attached; /* a daemon has been met at least once: devices[] have pages (but for foreign ones: control == NULL) */
  bool daemon_gone; /* the last one met does not answer any more */
  bool link_lost;   /* the socket to the daemon is at its end and no new one is there; atomic */
  uint32_t mode;    /* VG_MODE_* */
  uint32_t device_count;
  uint64_t process_id;
  char slice[VG_NAME_BYTES];
  char node[VG_NAME_BYTES];
  const struct vg_control_header *header; /* atomic pointer */
  struct vg_device devices[VG_DEVICES_MAX];
};

extern struct vg_session vg_session;

#endif
