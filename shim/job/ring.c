/* ring.c - the last output of a job's terminal (ring.h). Called by terminal.c. */
#include "job/ring.h"

#include <string.h>

void vj_ring_add(struct vj_ring *ring, const char *bytes, size_t count) {
  if (count > VJ_RING_BYTES) {
    ring->end += count - VJ_RING_BYTES;
    bytes += count - VJ_RING_BYTES;
    count = VJ_RING_BYTES;
  }
  while (count) {
    size_t at = ring->end % VJ_RING_BYTES;
    size_t part = count < VJ_RING_BYTES - at ? count : VJ_RING_BYTES - at;
    memcpy(ring->bytes + at, bytes, part);
    ring->end += part;
    bytes += part;
    count -= part;
  }
}

uint64_t vj_ring_begin(const struct vj_ring *ring) {
  return ring->end > VJ_RING_BYTES ? ring->end - VJ_RING_BYTES : 0;
}

size_t vj_ring_at(const struct vj_ring *ring, uint64_t position, const char **ret_bytes) {
  if (position >= ring->end || position < vj_ring_begin(ring)) return 0;
  size_t at = position % VJ_RING_BYTES, left = (size_t)(ring->end - position);
  *ret_bytes = ring->bytes + at;
  return left < VJ_RING_BYTES - at ? left : VJ_RING_BYTES - at;
}

uint64_t vj_ring_first_line(const struct vj_ring *ring) {
  uint64_t position = vj_ring_begin(ring);
  const char *bytes;
  if (!position) return 0;
  for (size_t count; (count = vj_ring_at(ring, position, &bytes)); position += count) {
    const char *newline = memchr(bytes, '\n', count);
    if (newline) return position + (uint64_t)(newline - bytes) + 1;
  }
  return vj_ring_begin(ring);
}
