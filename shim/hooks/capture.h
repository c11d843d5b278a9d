/*
 * capture.h - records of open stream captures.
 */
#ifndef VG_HOOK_CAPTURE_H
#define VG_HOOK_CAPTURE_H
#include "ledger/records.h"

void vg_capture_return(struct vg_record *record); /* the capture has ended: counts it no more and frees its record */

#endif
