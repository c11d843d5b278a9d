/*
 * multicast.h - bindings of multicast objects.
 */
#ifndef VG_HOOK_MULTICAST_H
#define VG_HOOK_MULTICAST_H

void vg_multicast_forked_child(void);

#endif
