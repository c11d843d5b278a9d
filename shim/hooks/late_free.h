/*
 * late_free.h - movable memory (moves/movable.h) that the program frees while a stream captures. Its end waits for the
 * work of its context, which would end the capture, as the driver's own cuMemFree does not: so it is freed later, when
 * that work has completed: looked for at the end of a capture, when memory is short, and when more is freed. Until then
 * it stays charged, and its address is not used again.
 */
#ifndef VG_HOOK_LATE_FREE_H
#define VG_HOOK_LATE_FREE_H
#include "ledger/records.h"

/* The program frees this; the record was taken out of the table. */
CUresult vg_late_free(struct vg_record *record);
void vg_late_free_rest(void); /* what can be freed by now. Does not wait */

#endif
