/*
 * charge.h - how an allocation goes through the ledger; common to the families of memory hooks.
 *
 *   struct vg_charge charge;
 *   if (!vg_charge_begin(&charge, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   if (!charge.device) return REAL(...)(out, ...);              // nothing is accounted here
 *   result = REAL(...)(&local, ...);
 *   if (result) vg_charge_cancel(&charge);
 *   else if (!vg_charge_commit(&charge, local, bytes)) { REAL(free)(local); result = CUDA_ERROR_OUT_OF_MEMORY; }
 *   else *out = local;                                            // untouched in all other cases
 */
#ifndef VG_HOOK_CHARGE_H
#define VG_HOOK_CHARGE_H
#include "gen/abi/cuda_abi.h"
#include "ledger/records.h"

struct vg_charge {
  struct vg_device *device; /* NULL: pass on */
  struct vg_record *record;
  struct vg_record *chunk; /* prepared for a small allocation that may open a chunk */
  uint64_t reserved_bytes;
  bool without_credit; /* a small allocation, no credit for a chunk: it must fit into an open one; one at a time */
};

bool vg_charge_begin(struct vg_charge *charge, uint64_t bytes);
/* The driver took more than was asked for: brings the reservation to it. False: over the limit. */
bool vg_charge_grow(struct vg_charge *charge, uint64_t bytes);
bool vg_charge_commit(struct vg_charge *charge, CUdeviceptr address, uint64_t bytes);
void vg_charge_cancel(struct vg_charge *charge);
/* Returns the bytes or the place in a chunk that a record holds to the ledger, and frees the record. */
void vg_charge_return(struct vg_record *record);
void vg_charge_forked_child(void);

#endif
