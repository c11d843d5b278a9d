/*
 * reclaim.h - a request to a slice to give memory back (DESIGN D7), pure: no clock, no pages. memory.c decides how many
 * bytes are asked for; this says when a request begins, asks for more, and ends. A slice whose request was not met in
 * time is not asked again for a while: no allocation waits for a program that does not answer.
 */
#ifndef VG_ARBITER_RECLAIM_H
#define VG_ARBITER_RECLAIM_H
#include <stdbool.h>
#include <stdint.h>

#define VG_RECLAIM_AGAIN_NS 60000000000ull /* from a request that was not met to the next one */
#define VG_RECLAIM_STEP_BYTES 1048576ull   /* less than that is not asked for in addition */

struct vg_reclaim {
  uint64_t remaining_bytes; /* of the open request: what has not come back yet; 0: none is open */
  uint64_t asked_bytes;
  uint64_t begin_used_bytes; /* what the slice used when the request began */
  uint64_t begin_ns;
  uint64_t deadline_ns;
  uint64_t again_ns; /* none begins before then */
  uint32_t serial;   /* grows when a request begins or asks for more */
  /* the last one that has ended */
  bool last_was_late;
  uint32_t end_count; /* how many have */
  uint64_t last_asked_bytes;
  uint64_t last_returned_bytes;
  uint64_t last_took_ns;
};

/* Whether the slice can be asked, or is being asked already. */
bool vg_reclaim_is_possible(const struct vg_reclaim *reclaim, uint64_t now_ns);
/* Ends a request whose time is up. used_bytes: what the slice uses now. */
void vg_reclaim_expire(struct vg_reclaim *reclaim, uint64_t used_bytes, uint64_t now_ns);
/* So many bytes are to come back, by deadline_ns if that is new; 0: no more, which ends the request. */
void vg_reclaim_update(struct vg_reclaim *reclaim, uint64_t bytes, uint64_t used_bytes, uint64_t deadline_ns,
                       uint64_t now_ns);

#endif
