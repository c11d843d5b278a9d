/*
 * helper_wake.h - the helper thread's sleep, and how threads of the same process end it. The daemon wakes the helper by
 * changing the word helper_wake in the control page. This process can only read that word: its own threads wake the
 * helper by a flag beside it.
 */
#ifndef VG_HELPER_WAKE_H
#define VG_HELPER_WAKE_H
#include <stdint.h>

/* From here on a wake-up is for the next sleep: called before the helper reads anything. */
void vg_helper_awake(void);
/* Until *word differs from seen, a thread has called vg_helper_wake() since vg_helper_awake(), or the deadline.
 */
void vg_helper_sleep(const uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void vg_helper_wake(void); /* by any thread, after writing what the helper is to see */

#endif
