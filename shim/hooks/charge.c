/*
 * charge.c - see charge.h. Called by the memory hooks, any thread.
 *
 * The device hands out granules (2 MiB). A large allocation is charged by whole granules; small ones share chunks of a
 * granule, so the ledger counts the chunks that live small allocations touch: address / granule. Without credit for a
 * chunk a small allocation may still fit into an open one (free_room.c): then the driver is asked, and the allocation
 * is undone if it opened a chunk nevertheless.
 */
#include "hooks/charge.h"

#include <pthread.h>

#include "context/context.h"
#include "hooks/free_room.h"
#include "ledger/credit.h"
#include "ledger/granule.h"

static bool is_small(const struct vg_device *device, uint64_t bytes) {
  return bytes < vg_granule_bytes(device);
}

/* ---- small allocations: chunks ---- */

static uint64_t chunk_key(const struct vg_device *device, uint64_t chunk) {
  return chunk | (uint64_t)(device - vg_session.devices) << 56;
}

static bool enter_chunk(struct vg_charge *charge, uint64_t chunk) {
  if (vg_table_add_or_put(charge->chunk, chunk_key(charge->device, chunk)) > 1) return false;
  charge->chunk = NULL;
  return true;
}

static void leave_chunk(struct vg_device *device, uint64_t chunk) {
  struct vg_record *closed;
  vg_table_add(VG_RECORD_CHUNK, chunk_key(device, chunk), -1, &closed);
  if (!closed) return;
  vg_record_free(closed);
  vg_memory_release(device, vg_granule_bytes(device));
}

/* A small allocation lies in one chunk; should a driver ever let one straddle two, it is charged by the first. */
static bool commit_small(struct vg_charge *charge, CUdeviceptr address) {
  struct vg_device *device = charge->device;
  uint64_t granule = vg_granule_bytes(device);
  bool opened = enter_chunk(charge, address / granule);
  charge->record->other = address / granule;
  if (opened && charge->without_credit && vg_memory_reserve(device, granule)) {
    struct vg_record *closed;
    uint32_t others = vg_table_add(VG_RECORD_CHUNK, chunk_key(device, address / granule), -1, &closed);
    vg_record_free(closed);
    if (others) vg_memory_force(device, granule); /* another thread has entered the chunk meanwhile: it stays open */
    return false;
  }
  if (!opened) vg_memory_release(device, charge->reserved_bytes);
  return true;
}

/* ---- reserve, commit, roll back ---- */

/* Of an allocation without credit, across its driver call: one at a time. */
static pthread_mutex_t without_credit_lock = PTHREAD_MUTEX_INITIALIZER;

static bool fits_open_chunk(struct vg_charge *charge, CUcontext context, uint64_t bytes) {
  pthread_mutex_lock(&without_credit_lock);
  charge->without_credit = vg_room_by_address(charge->device, context, bytes);
  if (!charge->without_credit) pthread_mutex_unlock(&without_credit_lock);
  return charge->without_credit;
}

static void end_without_credit(struct vg_charge *charge) {
  if (charge->without_credit) pthread_mutex_unlock(&without_credit_lock);
  charge->without_credit = false;
}

static bool prepare(struct vg_charge *charge, CUcontext context, bool small) {
  charge->record = vg_record_new(VG_RECORD_POINTER, charge->device, context);
  charge->chunk = small ? vg_record_new(VG_RECORD_CHUNK, charge->device, NULL) : NULL;
  if (charge->record && (charge->chunk || !small)) return true;
  vg_record_free(charge->record);
  vg_record_free(charge->chunk);
  return false;
}

bool vg_charge_begin(struct vg_charge *charge, uint64_t bytes) {
  CUcontext context;
  *charge = (struct vg_charge){.device = vg_context_current(&context)};
  if (!charge->device || !bytes) {
    charge->device = NULL;
    return true;
  }
  bool small = is_small(charge->device, bytes);
  if (!prepare(charge, context, small)) return false;
  charge->reserved_bytes = vg_round_up(bytes, vg_granule_bytes(charge->device));
  if (vg_memory_reserve(charge->device, charge->reserved_bytes) == 0) return true;
  charge->reserved_bytes = 0;
  if (small && fits_open_chunk(charge, context, bytes)) return true;
  vg_charge_cancel(charge);
  return false;
}

void vg_charge_cancel(struct vg_charge *charge) {
  if (charge->reserved_bytes) vg_memory_release(charge->device, charge->reserved_bytes);
  vg_record_free(charge->record);
  vg_record_free(charge->chunk);
  end_without_credit(charge);
}

bool vg_charge_grow(struct vg_charge *charge, uint64_t bytes) {
  uint64_t needed = vg_round_up(bytes, vg_granule_bytes(charge->device));
  if (charge->chunk && !is_small(charge->device, bytes)) {
    vg_record_free(charge->chunk);
    charge->chunk = NULL;
  }
  if (charge->chunk || needed <= charge->reserved_bytes) return true;
  if (vg_memory_reserve(charge->device, needed - charge->reserved_bytes)) return false;
  charge->reserved_bytes = needed;
  return true;
}

bool vg_charge_commit(struct vg_charge *charge, CUdeviceptr address, uint64_t bytes) {
  bool done = true;
  if (charge->chunk) {
    done = commit_small(charge, address);
    vg_record_free(charge->chunk);
  } else {
    charge->record->bytes = charge->reserved_bytes;
  }
  charge->record->size = bytes;
  if (done)
    vg_table_put(charge->record, address);
  else
    vg_record_free(charge->record);
  end_without_credit(charge);
  return done;
}

void vg_charge_return(struct vg_record *record) {
  if (record->bytes)
    vg_memory_release(record->device, record->bytes);
  else if (record->kind == VG_RECORD_POINTER)
    leave_chunk(record->device, record->other);
  vg_record_free(record);
}

void vg_charge_forked_child(void) {
  pthread_mutex_init(&without_credit_lock, NULL);
}
