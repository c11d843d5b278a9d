/*
 * array.h - records of arrays, for the other families of memory hooks.
 */
#ifndef VG_HOOK_ARRAY_H
#define VG_HOOK_ARRAY_H
#include "ledger/records.h"

#define VG_ARRAY_DEFERRED UINT32_MAX /* count of an array's record: memory is mapped into all of it at once */

/* Returns what an array's record holds to the ledger, lets go of memory that is mapped into the array, and frees the
 * record. */
void vg_array_return(struct vg_record *record);
void vg_array_forked_child(void);

#endif
