/* event_clock.c - see event_clock.h. */
#include "gate/event_clock.h"

#include "gen/abi/real.h"

#define REFERENCE_AGE_NS (5 * VG_NS_PER_S)
#define DRIFT_ALLOWED 20000 /* one part in: 50 ppm, more than two good clocks drift apart */

/* An event is seen late, by the poll and the wake-up, and never early: the least of (seen - elapsed since the
 * reference) is the best time of the reference. The clocks drift, so that least may rise a little with time. */
uint64_t vg_event_clock_read(struct vg_event_clock *clock, CUevent event, uint64_t now_ns) {
  float elapsed_ms = 0;
  if (!clock->reference || REAL(cuEventElapsedTime)(&elapsed_ms, clock->reference, event) != CUDA_SUCCESS) return 0;
  int64_t elapsed_ns = (int64_t)(elapsed_ms * 1e6F);
  if (now_ns > clock->observed_ns) {
    clock->reference_ns += (now_ns - clock->observed_ns) / DRIFT_ALLOWED;
    clock->observed_ns = now_ns;
  }
  if ((int64_t)clock->reference_ns + elapsed_ns > (int64_t)now_ns)
    clock->reference_ns = (uint64_t)((int64_t)now_ns - elapsed_ns);
  return (uint64_t)((int64_t)clock->reference_ns + elapsed_ns);
}

bool vg_event_clock_is_old(const struct vg_event_clock *clock, uint64_t now_ns) {
  return !clock->reference || now_ns > clock->made_ns + REFERENCE_AGE_NS;
}

CUevent vg_event_clock_set(struct vg_event_clock *clock, CUevent event, uint64_t done_ns, uint64_t now_ns) {
  CUevent before = clock->reference;
  *clock =
      (struct vg_event_clock){.reference = event, .reference_ns = done_ns, .made_ns = now_ns, .observed_ns = now_ns};
  return before;
}
