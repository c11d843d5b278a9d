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

static int by_index(int count, const char *entry, size_t length) {
  int index = 0;
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)entry[i])) return NOT_FOUND;
    index = index * 10 + (entry[i] - '0');
    if (index >= count) return NOT_FOUND;
  }
  return length ? index : NOT_FOUND;
}

static int find(const struct vg_slice_device *devices, int count, const char *entry, size_t length) {
  while (length && isspace((unsigned char)*entry)) entry++, length--;
  while (length && isspace((unsigned char)entry[length - 1])) length--;
  bool named = length > 4 && (!strncasecmp(entry, "GPU-", 4) || !strncasecmp(entry, "MIG-", 4));
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
      if (ret_order[i] == index) return chosen;
    ret_order[chosen++] = index;
    entry += length;
    if (!*entry) return chosen;
  }
}
