/*
 * memory.h - how much memory credit processes may hold on a device (DESIGN D7), pure: no clock, no pages. arbiter.c
 * fills the rows from the report pages (validated) and publishes what has been granted.
 *
 * held = granted - returned. The sum over a slice never exceeds its maximum; what a slice holds above its minimum is
 * borrowed from memory that no minimum reserves. A want that does not fit is answered only after unused credit has been
 * asked back from other processes (pressure), or after a deadline.
 */
#ifndef VG_ARBITER_MEMORY_H
#define VG_ARBITER_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

#define VG_MEMORY_PATIENCE_NS 20000000ull

struct vg_memory_slice {
  uint64_t min_bytes;
  uint64_t max_bytes;
  bool away; /* what it holds is not on the device: it uses no memory there, and may hold up to its maximum */
  uint64_t unattributed_bytes; /* counted by the driver for its programs beyond the rows: held and used */
  uint64_t disconnected_bytes; /* credit of processes that closed their connections and live on: held and used */
  uint64_t held_bytes;         /* computed */
  uint64_t used_bytes;         /* computed */
  uint32_t rows;               /* computed */
};

struct vg_memory_row { /* one process on one device */
  int slice;           /* its slice's place in the table's slices */
  uint64_t granted_bytes;
  uint64_t returned_bytes; /* validated: monotone, at most granted */
  uint64_t used_bytes;     /* validated: at most held */
  uint64_t want_bytes;
  uint32_t want_seq;
  uint32_t want_answered;
  uint64_t want_since_ns; /* when the want was first seen; 0 = none */
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
  bool stale; /* the rows were read a while ago: no want is refused, and no process pressed, by them */
};

/* Takes over the values of a report page, limited to possible ones. Returns whether the row has changed. */
bool vg_memory_row_update(struct vg_memory_row *row, uint64_t returned_bytes, uint64_t used_bytes, uint64_t want_bytes,
                          uint32_t want_seq, uint64_t now_ns);
/* Answers wants, sets pressure and coast credit. Returns when it must be called again (UINT64_MAX: only on news;
 * now_ns: at once, after the rows were read again). */
uint64_t vg_memory_table_step(struct vg_memory_table *table, uint64_t now_ns);

#endif
