/* ring.h - the last output of a job's terminal. Pure; used by terminal.c.
 *
 * Positions are numbers of bytes since the terminal's first one. */
#ifndef VJ_RING_H
#define VJ_RING_H

#include <stddef.h>
#include <stdint.h>

#define VJ_RING_BYTES (64u << 10)

struct vj_ring {
  uint64_t end; /* position behind the last byte */
  char bytes[VJ_RING_BYTES];
};

void vj_ring_add(struct vj_ring *ring, const char *bytes, size_t count);

/* Position of the oldest byte that is still there. */
uint64_t vj_ring_begin(const struct vj_ring *ring);

/* The bytes from a position on that lie side by side; 0 at the end. */
size_t vj_ring_at(const struct vj_ring *ring, uint64_t position, const char **ret_bytes);

/* Where a viewer that joins late begins: at the first whole line, since the oldest byte may be within a character or a
 * control sequence. */
uint64_t vj_ring_first_line(const struct vj_ring *ring);

#endif
