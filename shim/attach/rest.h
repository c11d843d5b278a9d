/*
 * rest.h - when the helper of an idle process looks again whether the daemon is there. A thousand helpers that were
 * woken together (by the daemon's end, or a slice's new parameters) would be woken together each second from then on,
 * and keep threads that launch from a processor for 10 ms each time. So each has its own moment in the period.
 */
#ifndef VG_ATTACH_REST_H
#define VG_ATTACH_REST_H
#include <stdint.h>

#include "base/prim.h"

#define VG_REST_NS (1000 * VG_NS_PER_MS)
/* VG_REST_NS times the golden ratio's fraction: the moments of consecutive ids lie apart as evenly as possible (Knuth,
 * The Art of Computer Programming, vol. 3, 6.4, multiplicative hashing). */
#define VG_REST_PHASE_NS 618033989ull

/* Within VG_REST_NS from now. Times are CLOCK_MONOTONIC. */
static inline uint64_t vg_rest_until_ns(uint64_t process_id, uint64_t now_ns) {
  uint64_t phase_ns = process_id % VG_REST_NS * VG_REST_PHASE_NS % VG_REST_NS;
  uint64_t since_ns = (now_ns % VG_REST_NS + VG_REST_NS - phase_ns) % VG_REST_NS;
  return now_ns + VG_REST_NS - since_ns;
}

#endif
