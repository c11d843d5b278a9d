/*
 * visible_devices.h - which of the slice's devices the program sees, and in which order: the user's
 * CUDA_VISIBLE_DEVICES applied within the slice. Pure; used by attach/attach.c (order of vg_session.devices),
 * hooks/device.c (the driver's CUDA_VISIBLE_DEVICES), attach/pages.c and nvml/slice.c (what is reported to the daemon).
 */
#ifndef VG_VISIBLE_H
#define VG_VISIBLE_H
#include <stddef.h>
#include <stdint.h>

#include "abi/vg_abi.h"

#define VG_VISIBLE_UUID_TEXT 41 /* "GPU-" or "MIG-", 8-4-4-4-12, NUL */
#define VG_VISIBLE_LIST_TEXT (VG_DEVICES_MAX * VG_VISIBLE_UUID_TEXT)

/*
 * Entries are indices within the slice or UUIDs ("GPU-...", "MIG-...", a unique prefix is enough). As in CUDA the first
 * entry that names no device ends the list, here also one that is not in the slice; and one that is named twice leaves
 * none.
 * NULL: unset, all. Returns how many are visible; ret_order holds their indices.
 */
int vg_visible_select(const struct vg_slice_device *devices, int count, const char *visible_devices, int *ret_order);
/* Puts the devices that are named by their whole UUID into a message: a pending slice is bound to them. As in CUDA the
 * first entry of another form ends the list. */
void vg_visible_name(const char *visible_devices, struct vg_attach_request *ret_request);
void vg_visible_uuid_text(const struct vg_slice_device *device, char ret_text[VG_VISIBLE_UUID_TEXT]);

#endif
