/*
 * granule.h - the unit in which the driver hands out device memory, and rounding to it. Inline: every allocation asks.
 */
#ifndef VG_GRANULE_H
#define VG_GRANULE_H
#include <stdint.h>

#include "session/session.h"

#define VG_GRANULE_DEFAULT_BYTES (2ull << 20)

static inline uint64_t vg_granule_bytes(const struct vg_device *device) {
  return device->resolved.granule_bytes ? device->resolved.granule_bytes : VG_GRANULE_DEFAULT_BYTES;
}

/* To the next multiple of unit; saturates. */
static inline uint64_t vg_round_up(uint64_t bytes, uint64_t unit) {
  uint64_t more = bytes % unit ? unit - bytes % unit : 0;
  return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
}

#endif
