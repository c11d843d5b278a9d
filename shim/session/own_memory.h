/*
 * own_memory.h - what the ledger of this process reports to libvgpu-ml.so, which may be loaded beside it: memory as of
 * now, without a query to the daemon. Defined by ledger/own_memory.c; a weak reference in the NVML shim, which may also
 * be in a process without the ledger.
 */
#ifndef VG_OWN_MEMORY_H
#define VG_OWN_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

struct vg_own_memory {  /* on one device */
  uint64_t total_bytes; /* the slice's limit */
  uint64_t free_bytes;  /* of it: what cuMemGetInfo shows */
  uint64_t own_bytes;   /* used by this process, by its ledger */
  uint32_t contexts;    /* of this process */
};

/* False: this process is not attached, or the device is none that it sees (16 bytes of its UUID). Any thread. */
bool vg_shim_memory(const uint8_t *uuid, struct vg_own_memory *ret_memory) __attribute__((visibility("default")));

#endif
