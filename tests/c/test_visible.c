/*
 * test_visible.c - CUDA_VISIBLE_DEVICES: which of a slice's devices a program sees, and which devices it names to the
 * daemon by UUID.
 */
#include "session/visible_devices.h"

#include <string.h>

#include "check.h"

#define FIRST "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define SECOND "GPU-ffeeddcc-bbaa-9988-7766-554433221100"

static struct vg_attach_request request;

static uint32_t named(const char *visible_devices) {
  memset(&request, 0xff, sizeof request);
  vg_visible_name(visible_devices, &request);
  return request.device_count;
}

static void test_uuids_are_named(void) {
  static const uint8_t first[VG_UUID_BYTES] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                               0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
  CHECK(named(FIRST) == 1 && !memcmp(request.devices[0].uuid, first, sizeof first));
  CHECK(request.devices[0].held_bytes == 0);
  CHECK(named("GPU-00112233-4455-6677-8899-AABBCCDDEEFF") == 1 && request.devices[0].uuid[15] == 0xff);
  CHECK(named("MIG-00112233-4455-6677-8899-aabbccddeeff") == 1 &&
        !memcmp(request.devices[0].uuid, first, sizeof first));
  CHECK(named(SECOND "," FIRST) == 2 && !memcmp(request.devices[1].uuid, first, sizeof first));
}

static void test_other_forms_end_the_list(void) {
  CHECK(named(NULL) == 0 && named("") == 0 && named("0") == 0 && named("-1") == 0 && named("NoDevFiles") == 0);
  CHECK(named("GPU-00112233") == 0 && named(FIRST "0") == 0);
  CHECK(named("GPU-00112233-4455-6677-8899-aabbccddeefg") == 0);
  CHECK(named("GPU-001122334-455-6677-8899-aabbccddeeff") == 0);
  CHECK(named("gpu-00112233-4455-6677-8899-aabbccddeeff") == 0);
  CHECK(named("XYZ-00112233-4455-6677-8899-aabbccddeeff") == 0);
  CHECK(named("GPU-00-12233-4455-6677-8899-aabbccddeeff") == 0);
  CHECK(named(FIRST ",1," SECOND) == 1 && named(FIRST ",") == 1 && named("," FIRST) == 0);
}

static void test_there_is_an_end(void) {
  char text[2 * VG_DEVICES_MAX * VG_VISIBLE_UUID_TEXT] = FIRST;
  for (int i = 1; i < 2 * VG_DEVICES_MAX - 1; i++) strcat(text, "," SECOND);
  CHECK(named(text) == VG_DEVICES_MAX);
}

static void test_devices_of_the_slice_are_selected(void) {
  struct vg_slice_device devices[2] = {{.uuid = {0x11}}, {.uuid = {0x22}}};
  int order[VG_DEVICES_MAX];
  CHECK(vg_visible_select(devices, 2, NULL, order) == 2 && order[0] == 0 && order[1] == 1);
  CHECK(vg_visible_select(devices, 2, "1", order) == 1 && order[0] == 1);
  CHECK(vg_visible_select(devices, 2, "GPU-22", order) == 1 && order[0] == 1);
  CHECK(vg_visible_select(devices, 2, FIRST, order) == 0);
}

int main(void) {
  RUN(test_uuids_are_named);
  RUN(test_other_forms_end_the_list);
  RUN(test_there_is_an_end);
  RUN(test_devices_of_the_slice_are_selected);
  return 0;
}
