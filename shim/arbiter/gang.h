/*
 * gang.h - gangs: slices with several shared devices, whose kernels may wait for each other over them, so that
 * all devices have to be theirs at once (DESIGN D6; who leads: vgpud/core/gangs.py). The arbiters of a process tell
 * each other through one board, under a lock of its own that is held for a few loads and stores: the leader's, that it
 * has the slot; the followers', that work waits there. Who learns something new is rung by its eventfd.
 *
 * When a lease ends, the gates of the devices close a moment apart, and the processes have not launched equally far: a
 * collective kernel may be on one device whose partner stands at the gate of another, and would spin there until the
 * next lease. So the shims count launches of collectives, and for a moment a device that is behind lets launches
 * through its closed gate until it has as many as the others. Collectives are known by their names
 * (gate/collectives.c); others that are caught like this are not missed: overrun becomes overlap.
 */
#ifndef VG_ARBITER_GANG_H
#define VG_ARBITER_GANG_H
#include <stdbool.h>
#include <stdint.h>

struct vg_gang_told { /* by a device's arbiter after each round, of its part of a gang */
  bool leads;
  bool turns;           /* it takes turns in its device's slot */
  bool veto;            /* it is to make room for others on its device */
  bool open;            /* its gate */
  bool wants;           /* a thread waits at its closed gate */
  bool outstanding;     /* work is on the device */
  uint32_t collectives; /* launched there by all processes that are attached now */
};

struct vg_gang_heard {     /* from the other devices' */
  bool turns, go;          /* the leader takes turns, and its gate is open; without a leader: go as you like */
  bool veto;               /* of any of them */
  bool wants, outstanding; /* on any of them */
  uint32_t collectives;    /* of the one that is furthest */
};

/* wake_fd is rung when there is something to hear, and names the arbiter. A full board: the slice is in no gang. A
 * device is rung for a slice VG_GANG_RINGS_PER_MS times at most, however often its pages change on the others: returns
 * when to tell again, for a ring that was put off (UINT64_MAX: there is none). */
#define VG_GANG_RINGS_PER_MS 8
uint64_t vg_gang_tell(uint64_t slice_id, int wake_fd, const struct vg_gang_told *told, uint64_t now_ns);
void vg_gang_hear(uint64_t slice_id, int wake_fd, struct vg_gang_heard *ret_heard);
void vg_gang_leave(uint64_t slice_id, int wake_fd); /* unknown: no effect */

struct vg_arbiter;
/* In an arbiter's round: between reading the pages and deciding, and after what was decided was published; returns when
 * the next round is due. */
void vg_gang_round_begins(struct vg_arbiter *arbiter);
uint64_t vg_gang_round_ends(struct vg_arbiter *arbiter, uint64_t now_ns);
void vg_gang_arbiter_gone(struct vg_arbiter *arbiter);

#endif
