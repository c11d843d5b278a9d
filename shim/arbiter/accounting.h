/*
 * accounting.h - charges all slices for the time since the last step. Mirrors models/arbiter/accounting.py. Pure.
 */
#ifndef VG_ARBITER_ACCOUNTING_H
#define VG_ARBITER_ACCOUNTING_H
#include "arbiter/device.h"

void vg_core_charge_all(struct vg_core *core, uint64_t now_ns);

#endif
