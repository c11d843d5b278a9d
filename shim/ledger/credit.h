/*
 * credit.h - the ledger of this process (DESIGN D7): how much device memory it uses, against credit that the daemon
 * hands out through the control page. Invariant: used <= granted - returned, at every moment, on every device.
 */
#ifndef VG_CREDIT_H
#define VG_CREDIT_H
#include "session/session.h"

int vg_memory_attach(struct vg_device *device); /* makes the private state; once per device; 0 or -ENOMEM */
/* Publishes fresh pages (attach/attach.c, at attach and re-attach), after the counters have been carried over. */
void vg_memory_rebind(struct vg_device *device, const struct vg_control_device *control,
                      struct vg_report_device *report);
/* The daemon is gone (attach/helper_thread.c, before vg_session.link_lost is set): fixes how much this process may use
 * until it has new pages, and how much it will claim then. */
void vg_memory_lost(struct vg_device *device);
void vg_memory_contexts(struct vg_device *device, uint32_t contexts); /* for the report page */
/* Takes bytes of credit, asking the daemon for more when needed (at most 50 ms). 0, or -ENOMEM: over the limit. */
int vg_memory_reserve(struct vg_device *device, uint64_t bytes);
void vg_memory_release(struct vg_device *device, uint64_t bytes);
/* Takes bytes that the device has handed out already (a pool that grew), with or without credit;
 * vg_memory_reserve(device, 0) then gets the credit for them, or fails. */
void vg_memory_force(struct vg_device *device, uint64_t bytes);
/* Called, without locks, before the daemon is asked for credit or when it asks for some back: releases memory that the
 * driver has given back without a call (pools). Set by the hooks. */
extern void (*vg_memory_refresh)(struct vg_device *device);
void vg_memory_info(struct vg_device *device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);
uint64_t vg_memory_limit_bytes(const struct vg_device *device); /* UINT64_MAX: none yet */
uint64_t vg_memory_held_bytes(struct vg_device *device);        /* for re-attach */
void vg_memory_return_unused(struct vg_device *device);         /* all credit that it holds and does not use */
uint64_t vg_memory_service(uint64_t now_ns); /* helper thread: gives unused credit back under pressure; next deadline */
void vg_memory_forked_child(void);

#endif
