/*
 * reclaim_watch.h - passes on to the program what its slice is asked to give back of a device's memory. A part of the
 * program that wants to know has an eventfd, which becomes readable when a request begins or asks for more
 * (vgpud/client/memory.py calls the exported functions through ctypes). A program without one is never
 * asked.
 */
#ifndef VG_LEDGER_RECLAIM_WATCH_H
#define VG_LEDGER_RECLAIM_WATCH_H
#include <stdint.h>

#include "session/session.h"

#define VG_WATCHERS_MAX 16 /* in one process */

struct vg_reclaim_request { /* open, on one device */
  uint8_t uuid[VG_UUID_BYTES];
  uint64_t remaining_bytes; /* by all programs of the slice together */
  uint64_t deadline_ns;     /* CLOCK_MONOTONIC */
  uint32_t ordinal;         /* of the device, as the program sees it */
  uint32_t serial;
};

#define VG_EXPORT __attribute__((visibility("default")))

/* A new eventfd, or -errno; of a program that is not attached yet it serves from then on. Any thread. */
VG_EXPORT int vg_shim_reclaim_watch(void);
VG_EXPORT int vg_shim_reclaim_unwatch(int fd); /* closes it. 0, or -ENOENT: not one of these */
/* The open requests; returns how many, at most capacity. */
VG_EXPORT int vg_shim_reclaim_read(struct vg_reclaim_request *ret_requests, uint32_t capacity);

void vg_reclaim_bind(struct vg_device *device);   /* it has new pages */
void vg_reclaim_notify(struct vg_device *device); /* helper thread: its control page may have changed */
void vg_reclaim_forked_child(void);

#endif
