/*
 * memory.h - how much memory credit processes may hold on a device (DESIGN D7), pure: no clock, no pages. arbiter.c
 * fills the rows from the report pages (validated) and publishes what has been granted.
 *
 * held = granted - returned. The sum over a slice never exceeds its maximum; what a slice holds above its minimum is
 * borrowed from memory that no minimum reserves. A want that does not fit is answered only after unused credit has been
 * asked back from other processes (pressure), or after a deadline.
 *
 * A minimum that was promised while others held the memory may find it in use. Then slices that use more than their
 * minimum, and have a program that watches for it, are asked to give memory back (reclaim.h); the want waits for that
 * at most grace_ns. Then it is granted as it is without such programs, and the driver says whether there is memory.
 * A slice whose memory is to come back from the host (space_bytes) has them asked in the same way, and nothing is lent
 * out of its space meanwhile.
 */
#ifndef VG_ARBITER_MEMORY_H
#define VG_ARBITER_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/reclaim.h"

#define VG_MEMORY_PATIENCE_NS 20000000ull

struct vg_memory_slice {
  uint64_t min_bytes;
  uint64_t max_bytes;
  bool away;         /* what it holds is not on the device: it uses no memory there, and is granted up to its minimum */
  bool moves_itself; /* away, what its processes do not move is there all the same */
  uint64_t unattributed_bytes; /* counted by the driver for its programs beyond the rows: held and used */
  uint64_t disconnected_bytes; /* credit of processes that closed their connections and live on: held and used */
  struct vg_reclaim reclaim;
  uint32_t shortages; /* how often it was granted a part of its minimum that others hold */
  uint64_t last_short_bytes;
  uint64_t held_bytes;    /* computed */
  uint64_t used_bytes;    /* computed */
  uint64_t movable_bytes; /* computed: of used_bytes */
  uint32_t rows;          /* computed */
  uint32_t watchers;      /* computed: of its programs, that receive such requests */
  uint64_t pinned_bytes;  /* host memory that its processes have pinned: memory_pages.c */
};

struct vg_memory_row { /* one process on one device */
  int slice;           /* its slice's place in the table's slices */
  uint64_t granted_bytes;
  uint64_t returned_bytes; /* validated: monotone, at most granted */
  uint64_t used_bytes;     /* validated: at most held */
  uint64_t want_bytes;
  uint64_t want_least_bytes; /* of it: what the allocation needs; 0: all of it */
  uint64_t movable_bytes;    /* of used_bytes: what the process moves off the device, or has moved */
  uint32_t watchers;         /* in the program, for requests to give memory back */
  uint32_t want_seq;
  uint32_t want_answered;
  uint64_t want_since_ns;    /* when the want was first seen; 0 = none */
  uint64_t want_deadline_ns; /* it waits for memory that others are asked to give back, at most until then; 0: it does
                              * not */
  uint64_t waited_ns;        /* when it last did */
  bool pressure;
  bool denied; /* set by a step that refused a want, for counters */
  uint64_t coast_bytes;
};

struct vg_memory_table {
  uint64_t total_bytes;
  struct vg_memory_slice *slices;
  int slice_count;
  struct vg_memory_row **rows;
  int row_count;
  uint64_t space_bytes; /* to be free beyond what slices that are there hold or are guaranteed: for one that is to come
                         * back from the host; 0: none is */
  uint64_t grace_ns;    /* how long a slice has to give back what it is asked for; 0: none is asked */
  bool stale;           /* the rows were read a while ago: no want is refused, and no process pressed, by them */
  uint64_t waiting_bytes;       /* computed: of guaranteed wants that wait for others' memory */
  uint64_t waiting_deadline_ns; /* computed: of the last of them */
};

/* Takes over the values of a report page, limited to possible ones. Returns whether the row has changed. */
bool vg_memory_row_update(struct vg_memory_row *row, uint64_t returned_bytes, uint64_t used_bytes, uint64_t want_bytes,
                          uint32_t want_seq, uint64_t now_ns);
/* Answers wants, sets pressure and coast credit. Returns when it must be called again (UINT64_MAX: only on news;
 * now_ns: at once, after the rows were read again). */
uint64_t vg_memory_table_step(struct vg_memory_table *table, uint64_t now_ns);

#endif
