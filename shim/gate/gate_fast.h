/*
 * gate_fast.h - what every launch asks first: may it pass uncounted? Inline, so that a hook can jump to the driver
 * without a call: with one device three loads, and one number of the thread's own that is counted down.
 */
#ifndef VG_GATE_FAST_H
#define VG_GATE_FAST_H
#include "base/prim.h"
#include "session/session.h"

#define VG_GATE_NO_WORD UINT32_MAX /* no gate word ever has this value: an open_word that accepts none */

/* The device when there is just one, or NULL: several (see context/context.h) or none (no slice: everything passes). */
extern struct vg_device *vg_gate_only_device __attribute__((visibility("hidden")));
/* The same question where vg_gate_only_device is NULL: several devices, or no slice. */
bool vg_gate_solo_slow(void);
bool vg_gate_solo_launch_slow(void); /* for a launch, which uses up credit */

static inline bool vg_gate_solo_device(const struct vg_device *device) {
  return VG_LOAD(VG_LOAD_RELAXED(&device->gate_word)) == VG_LOAD_RELAXED(&device->solo_word);
}

/* False: the launch is counted, or vg_gate_only_device is NULL. */
static inline bool vg_gate_solo_fast(void) {
  const struct vg_device *device = VG_LOAD_RELAXED(&vg_gate_only_device);
  return VG_LIKELY(device != NULL) && vg_gate_solo_device(device);
}

/* How many launches the calling thread may still pass uncounted before it looks how far the device is behind (solo.c).
 */
extern __thread int32_t vg_gate_credit __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline bool vg_gate_solo_credit(void) {
  return VG_LIKELY(--vg_gate_credit >= 0);
}

#endif
