/*
 * physical.h - what several handles stand for: physical memory, or a multicast object.
 */
#ifndef VG_HOOK_PHYSICAL_H
#define VG_HOOK_PHYSICAL_H
#include <stdbool.h>
#include <stdint.h>

#include "session/session.h"

/* With one reference, or NULL. bytes of device are charged to it when it is made, and released with its last
 * reference; device NULL: a multicast object. */
struct vg_physical *vg_physical_new(struct vg_device *device, uint64_t bytes);
void vg_physical_leave(struct vg_physical *physical);
void vg_physical_exported(struct vg_physical *physical, int fd);
/* One reference more to what this process has exported, or NULL for another process's. False: over the limit. */
bool vg_physical_imported(int fd, struct vg_physical **ret_physical);
struct vg_device *vg_physical_device(const struct vg_physical *physical);
/* The last reference to a multicast object is gone: its address here, or the handle of another process's object. Calls
 * what multicast.c has given to vg_physical_on_object_gone(); nothing before that. */
void vg_physical_object_gone(uint64_t object);
void vg_physical_on_object_gone(void (*call)(uint64_t object));
void vg_physical_forked_child(void);

#endif
