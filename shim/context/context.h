/*
 * context.h - the device of the calling thread, and the contexts of this process. Kept by the hooks of hooks/context.c;
 * read by the gate (per launch), by the memory hooks and by the helper thread (to close a lease with a marker per
 * context).
 */
#ifndef VG_CONTEXT_H
#define VG_CONTEXT_H
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

/* The device of the calling thread's current context, if launches on it are gated; else NULL. */
struct vg_device *vg_context_device(void);
/* The calling thread's current context, as it was when it last changed by a call that is hooked. */
CUcontext vg_context_remembered(void);
/* The same without a call: context, while generation is vg_context_generation. */
struct vg_work; /* gate/thread_work.h */

struct vg_context_here {
  uint32_t generation; /* 0: not known */
  struct vg_device *device;
  CUcontext context;
  struct vg_work *work;     /* the gate's: where the thread's last counted launch in this context is */
  uint32_t work_generation; /* while it is vg_context_generation, work is known; 0: it is not */
};
extern __thread struct vg_context_here vg_context_here __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Grows when what threads remember of their contexts may be wrong, and when a capture begins. */
extern uint32_t vg_context_generation __attribute__((visibility("hidden")));
/* The contexts of a device, of which at most capacity are written; returns how many there are. They stay alive until
 * vg_context_unlock(): a context is taken off the list under the lock before the driver destroys it. */
int vg_context_list(const struct vg_device *device, CUcontext *ret_contexts, int capacity);
void vg_context_lock(void);
void vg_context_unlock(void);

/* ---- for the hooks ---- */

/* The device of an ordinal as the driver counts; NULL when it is not in the slice, or there is no slice. */
struct vg_device *vg_context_ordinal(CUdevice ordinal);
/* The calling thread's current context, as the driver has it, and its device (NULL: pass on, nothing is accounted). */
struct vg_device *vg_context_current(CUcontext *ret_context);
CUdevice vg_context_handle(const struct vg_device *device);      /* the driver's ordinal; -1: it has no such device */
struct vg_device *vg_context_device_of(CUcontext context);       /* NULL: a context that is not on the list */
void vg_context_map(CUdevice ordinal, struct vg_device *device); /* hooks/device.c, after cuInit */
void vg_context_switched(void); /* the calling thread's current context may have changed */

/* Life of contexts: begin, the driver's call, then end. Between them the device's other creations and destructions
 * wait, so that each is paid for and paid back exactly once. */
enum vg_context_kind { VG_CONTEXT_OWN, VG_CONTEXT_PRIMARY, VG_CONTEXT_GREEN };
/* -ENOMEM: not enough free memory for the context; no lock is held then. */
int vg_context_begin(struct vg_device *device, enum vg_context_kind kind);
/* created NULL: it failed. */
void vg_context_end(struct vg_device *device, CUcontext created, enum vg_context_kind kind);
void vg_context_attached(CUcontext context); /* one more reference */
/* Drops one reference, or all of them. When that may end the context it is taken off the list, and vg_context_retired()
 * must follow the driver's call. False: the context does not end, or is not on the list; just call the driver. */
bool vg_context_retire(CUcontext context, bool all, struct vg_device **ret_device);
void vg_context_retired(struct vg_device *device, CUcontext context, bool gone); /* gone false: it lives on */
/* A green context holds a reference to the primary one, which is begun and ended for it, and is on the list only for
 * its device. */
void vg_context_green(struct vg_device *device, CUcontext green);
void vg_context_green_gone(CUcontext green);
CUcontext vg_context_primary(const struct vg_device *device); /* NULL: none retained */
void vg_context_charge_late(struct vg_device *device); /* at attach: the first context may be older than the pages */
void vg_context_forked_child(void);

#endif
