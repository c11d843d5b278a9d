/* pinned.h - host memory that the program has pinned: pinned.c. */
#ifndef VG_HOOK_PINNED_H
#define VG_HOOK_PINNED_H
#include "ledger/records.h"

void vg_pinned_return(struct vg_record *record);  /* it is not pinned any more; frees the record */
void vg_pinned_refresh(struct vg_device *device); /* shows it again, in the pages of another daemon */
void vg_pinned_forked_child(void);

#endif
