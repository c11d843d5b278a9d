/* visible_devices.c - see visible_devices.h. */
#include "session/visible_devices.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NOT_FOUND (-1)

void vg_visible_uuid_text(const struct vg_slice_device *device, char ret_text[VG_VISIBLE_UUID_TEXT]) {
  char *out = ret_text + sprintf(ret_text, device->kind == VG_DEVICE_MIG ? "MIG-" : "GPU-");
  for (int i = 0; i < VG_UUID_BYTES; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    out += sprintf(out, "%02x", device->uuid[i]);
  }
}

static int by_uuid(const struct vg_slice_device *devices, int count, const char *entry, size_t length) {
  int found = NOT_FOUND;
  for (int i = 0; i < count; i++) {
    char text[VG_VISIBLE_UUID_TEXT];
    vg_visible_uuid_text(&devices[i], text);
    if (length >= sizeof text || strncasecmp(text, entry, length)) continue;
    if (found != NOT_FOUND) return NOT_FOUND; /* the prefix fits two */
    found = i;
  }
  return found;
}

/* As strtol() reads it: +1 is 1, -0 is 0, 1gpu is 1. */
static int by_index(int count, const char *entry, size_t length) {
  int index = 0;
  size_t first = length && (*entry == '+' || *entry == '-'), i = first;
  for (; i < length && isdigit((unsigned char)entry[i]); i++) {
    index = index * 10 + (entry[i] - '0');
    if (index >= count) return NOT_FOUND;
  }
  return i == first || (index && *entry == '-') ? NOT_FOUND : index;
}

static int find(const struct vg_slice_device *devices, int count, const char *entry, size_t length) {
  while (length && isspace((unsigned char)*entry)) entry++, length--;
  while (length && isspace((unsigned char)entry[length - 1])) length--;
  bool named = length > 4 && (!strncmp(entry, "GPU-", 4) || !strncmp(entry, "MIG-", 4));
  return named ? by_uuid(devices, count, entry, length) : by_index(count, entry, length);
}

int vg_visible_select(const struct vg_slice_device *devices, int count, const char *visible_devices, int *ret_order) {
  int chosen = 0;
  if (!visible_devices) {
    for (; chosen < count; chosen++) ret_order[chosen] = chosen;
    return chosen;
  }
  for (const char *entry = visible_devices;; entry++) {
    size_t length = strcspn(entry, ",");
    int index = find(devices, count, entry, length);
    if (index == NOT_FOUND) return chosen;
    for (int i = 0; i < chosen; i++)
      if (ret_order[i] == index) return 0;
    ret_order[chosen++] = index;
    entry += length;
    if (!*entry) return chosen;
  }
}

/* ---- what is reported to the daemon ---- */

static int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* Whether this is GPU- or MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx. */
static bool read_uuid(const char *entry, size_t length, uint8_t *ret_uuid) {
  char text[VG_VISIBLE_UUID_TEXT];
  struct vg_slice_device device = {.kind = strncmp(entry, "MIG-", 4) ? VG_DEVICE_GPU : VG_DEVICE_MIG};
  if (length != sizeof text - 1 || (strncmp(entry, "GPU-", 4) && strncmp(entry, "MIG-", 4))) return false;
  const char *digit = entry + 4;
  for (int i = 0; i < VG_UUID_BYTES; i++, digit += 2) {
    if (*digit == '-') digit++;
    int high = hex_value(digit[0]), low = high < 0 ? -1 : hex_value(digit[1]);
    if (low < 0) return false;
    device.uuid[i] = (uint8_t)(high << 4 | low);
  }
  memcpy(ret_uuid, device.uuid, VG_UUID_BYTES);
  vg_visible_uuid_text(&device, text); /* the kind's name and the hyphens are where they belong */
  return !strncasecmp(text, entry, length);
}

void vg_visible_name(const char *visible_devices, struct vg_attach_request *ret_request) {
  ret_request->device_count = 0;
  for (const char *entry = visible_devices; entry && ret_request->device_count < VG_DEVICES_MAX; entry++) {
    size_t length = strcspn(entry, ",");
    struct vg_attach_device *device = &ret_request->devices[ret_request->device_count];
    if (!read_uuid(entry, length, device->uuid)) return;
    device->held_bytes = 0;
    ret_request->device_count++;
    entry += length;
    if (!*entry) return;
  }
}
