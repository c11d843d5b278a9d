/*
 * test_ml_slice.c - what the NVML shim knows of its slice while limits change: threads of a program look devices up
 * and ask for usage, a daemon of this test's answers with other devices each time.
 */
#define _GNU_SOURCE
#include "nvml/slice.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/prim.h"
#include "check.h"
#include "nvml/resolve_ml.h"

#define SOCKET "attach.sock"
#define THREADS 4
#define RUN_NS (600 * VG_NS_PER_MS) /* several times the age at which usage is asked for again */

/* ---- the real NVML: a handle for every UUID, its last byte ---- */

struct vg_nvml_device {
  int number;
};
static struct vg_nvml_device real[16];

static nvmlReturn_t handle_by_uuid(const char *uuid, nvmlDevice_t *ret_device) {
  *ret_device = &real[strtoul(uuid + strlen(uuid) - 2, NULL, 16) % 16];
  return NVML_SUCCESS;
}

void *vg_ml_symbol(const char *name) {
  return strcmp(name, "nvmlDeviceGetHandleByUUID") == 0 ? (void *)handle_by_uuid : NULL;
}
nvmlReturn_t vg_ml_missing(void) {
  return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* ---- the daemon: one and two devices in turn; the second answer's limit is twice the first's ---- */

static int listening;
static uint32_t answers;

static void answer(int fd) {
  uint32_t count = 1 + VG_LOAD_RELAXED(&answers) % 2;
  struct vg_attach_request request;
  struct vg_attach_reply reply = {.magic = VG_ABI_MAGIC,
                                  .abi_version = VG_ABI_VERSION,
                                  .bytes = sizeof reply,
                                  .status = VG_ATTACH_OK,
                                  .device_count = count};
  struct vg_attach_usage usage = {.magic = VG_ABI_MAGIC, .bytes = sizeof usage, .device_count = count};
  for (uint32_t i = 0; i < count; i++) {
    reply.devices[i].uuid[15] = (uint8_t)i;
    reply.devices[i].mem_max_bytes = usage.used_bytes[i] = (uint64_t)count << 30;
  }
  CHECK(recv(fd, &request, sizeof request, 0) == sizeof request && request.resume == VG_ATTACH_QUERY);
  CHECK(send(fd, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply);
  CHECK(send(fd, &usage, sizeof usage, MSG_NOSIGNAL) == sizeof usage);
  __atomic_fetch_add(&answers, 1, __ATOMIC_RELAXED);
}

static void *daemon_main(void *unused) {
  (void)unused;
  int fd;
  while ((fd = accept(listening, NULL, NULL)) >= 0) {
    answer(fd);
    close(fd);
  }
  return NULL;
}

/* ---- the program ---- */

static void *program_main(void *unused) {
  (void)unused;
  struct vg_attach_usage usage;
  struct vg_ml_device device;
  for (uint64_t end_ns = vg_prim_now_ns() + RUN_NS; vg_prim_now_ns() < end_ns;) {
    uint32_t count = vg_ml_count();
    CHECK(count == 1 || count == 2);
    CHECK(vg_ml_handle(0) == &real[0] && vg_ml_handle(2) == NULL);
    CHECK(vg_ml_find(&real[0], &device) && device.order == 0 && !vg_ml_find(&real[5], &device));
    CHECK(device.numbers.mem_max_bytes == 1ull << 30 || device.numbers.mem_max_bytes == 2ull << 30);
    CHECK(vg_ml_usage(&usage) && usage.used_bytes[0] == (uint64_t)usage.device_count << 30);
  }
  return NULL;
}

static void looking_up_while_limits_change(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, program_main, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(VG_LOAD_RELAXED(&answers) > 2);
}

static void without_a_daemon_the_last_word_holds(void) {
  struct vg_attach_usage usage;
  uint32_t count = vg_ml_count();
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 150 * VG_NS_PER_MS);
  CHECK(!vg_ml_usage(&usage) && usage.device_count == count && vg_ml_count() == count);
}

int main(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
  pthread_t daemon;
  listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  CHECK(listening >= 0 && bind(listening, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(listening, 16) == 0 && setenv("VGPU_SOCKET", SOCKET, 1) == 0);
  CHECK(pthread_create(&daemon, NULL, daemon_main, NULL) == 0);
  CHECK(vg_ml_slice_open() == NVML_SUCCESS && vg_ml_in_slice());
  RUN(looking_up_while_limits_change);
  CHECK(shutdown(listening, SHUT_RDWR) == 0 && pthread_join(daemon, NULL) == 0);
  close(listening);
  RUN(without_a_daemon_the_last_word_holds);
  return 0;
}
