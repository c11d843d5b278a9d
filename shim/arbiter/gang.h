/*
 * gang.h - gangs: slices with several shared devices. Their kernels may wait for each other across devices, so a gang
 * has to have all its devices at once (DESIGN D6; vgpud/core/slices/gangs.py chooses the leader). The arbiters of a
 * process share one board, under a lock of its own that is held for a few loads and stores: the leader's arbiter posts
 * that it has the slot, the followers' that work waits there. An arbiter for which there is news is woken by its
 * eventfd.
 *
 * When a lease ends, the gates of the devices close a moment apart, and the processes have not launched equally far: a
 * collective kernel may run on one device while its partner waits at the gate of another, and would spin there until
 * the next lease. So the shims count launches of collectives, and for a moment a device that is behind lets launches
 * through its closed gate until it has as many as the others. Collectives are known by their names
 * (gate/collectives.c). Kernels of other names that spin like this are known by drains that do not end while threads
 * wait at closed gates: the devices let launches through, few at first, until the drains make progress
 * (docs/design/sharing.md).
 */
#ifndef VG_ARBITER_GANG_H
#define VG_ARBITER_GANG_H
#include <stdbool.h>
#include <stdint.h>

struct vg_gang_part { /* posted by a device's arbiter after each round */
  bool leads;
  bool turns;           /* it takes turns in its device's slot */
  bool veto;            /* the gang is to stop, for its maximum on this device or for others there */
  bool open;            /* its gate */
  bool wants;           /* a thread waits at its closed gate */
  bool outstanding;     /* work is on the device */
  uint32_t collectives; /* launched there by all processes that are attached now */
  uint64_t overdue_ns;  /* when its work was last seen without progress, under a closed gate; 0: it does */
};

struct vg_gang_others {    /* the parts on the other devices, together */
  bool turns, go;          /* the leader takes turns; its gate is open, or there is no leader */
  bool veto;               /* of any of them */
  bool wants, outstanding; /* on any of them */
  bool idle_wants;         /* a thread waits at the closed gate of one that has no work */
  uint32_t collectives;    /* of the one that is furthest */
  uint64_t overdue_ns;     /* of any of them, the last time */
};

/* wake_fd is written when there is news, and names the arbiter. A full board: the slice is in no gang. A device is
 * woken for a slice at most VG_GANG_RINGS_PER_MS times, however often its pages change on the others: returns when to
 * post again, for a wake-up that was put off (UINT64_MAX: there is none). */
#define VG_GANG_RINGS_PER_MS 8
uint64_t vg_gang_post(uint64_t slice_id, int wake_fd, const struct vg_gang_part *part, uint64_t now_ns);
void vg_gang_read(uint64_t slice_id, int wake_fd, struct vg_gang_others *ret_others);
void vg_gang_leave(uint64_t slice_id, int wake_fd); /* unknown: no effect */

struct vg_arbiter;
/* In an arbiter's round: between reading the pages and deciding, and after publishing; returns when the next round is
 * due. */
void vg_gang_round_begins(struct vg_arbiter *arbiter);
uint64_t vg_gang_round_ends(struct vg_arbiter *arbiter, uint64_t now_ns);
void vg_gang_arbiter_gone(struct vg_arbiter *arbiter);

#endif
