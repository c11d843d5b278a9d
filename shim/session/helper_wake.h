/*
 * helper_wake.h - the helper thread's sleep, and how threads of the same process end it. The daemon rings by changing
 * the bell in the control page, which this process can only read: who wakes the helper from inside cannot change the
 * word that it sleeps on, so a flag of our own says that it is not to sleep.
 */
#ifndef VG_HELPER_BELL_H
#define VG_HELPER_BELL_H
#include <stdint.h>

/* From here on a wake-up is for the next sleep: called before the helper looks at anything. */
void vg_helper_awake(void);
/* Until the bell is not `seen` any more, somebody has called vg_helper_wake() since vg_helper_awake(), or the deadline.
 */
void vg_helper_sleep(const uint32_t *bell, uint32_t seen, uint64_t deadline_ns);
void vg_helper_wake(void); /* any thread, after what the helper is to see was written */

#endif
