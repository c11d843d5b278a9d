/*
 * test_wire.c - what a tenant makes of the answers on its attach socket: right ones are mapped, everything else is
 * refused, and no descriptor stays open.
 */
#define _GNU_SOURCE
#include "attach/socket.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prim.h"
#include "check.h"

static int open_descriptors(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  CHECK(directory);
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

static int pages(uint32_t devices, uint32_t version) {
  int fd = memfd_create("pages", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)(1 + devices) * VG_PAGE_BYTES) == 0);
  struct vg_control_header header = {.magic = VG_ABI_MAGIC, .abi_version = version, .device_count = devices};
  CHECK(pwrite(fd, &header, sizeof header, 0) == sizeof header);
  return fd;
}

static struct vg_attach_reply good_reply(uint32_t devices) {
  struct vg_attach_reply reply = {.magic = VG_ABI_MAGIC,
                                  .abi_version = VG_ABI_VERSION,
                                  .bytes = sizeof reply,
                                  .status = VG_ATTACH_OK,
                                  .device_count = devices};
  return reply;
}

/* Sends a message with descriptors and closes them here. */
static void answer(int fd, const void *message, size_t bytes, const int *fds, int count) {
  union {
    char bytes[CMSG_SPACE(64 * sizeof(int))];
    struct cmsghdr align;
  } control = {0};
  struct iovec piece = {.iov_base = (void *)message, .iov_len = bytes};
  struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
  if (count) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
  }
  CHECK(sendmsg(fd, &header, MSG_NOSIGNAL) == (ssize_t)bytes);
  for (int i = 0; i < count; i++) close(fds[i]);
}

static int receive(int *sockets, struct vg_wire_answer *ret_answer) {
  return vg_wire_receive(sockets[0], ret_answer);
}

static void make(int *ret_sockets) {
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_sockets) == 0);
}

static void unmake(const int *sockets) {
  close(sockets[0]);
  close(sockets[1]);
}

static void drop(struct vg_wire_answer *answer, uint32_t devices) {
  munmap((void *)(uintptr_t)answer->control, (size_t)(1 + devices) * VG_PAGE_BYTES);
  munmap(answer->report, (size_t)(1 + devices) * VG_PAGE_BYTES);
  for (uint32_t i = 0; i < devices; i++) close(answer->doorbell_fds[i]);
}

static void a_right_answer_is_mapped(void) {
  int sockets[2], before = open_descriptors();
  make(sockets);
  struct vg_wire_answer got;
  CHECK(receive(sockets, &got) == -EAGAIN);
  struct vg_attach_reply reply = good_reply(2);
  memset(reply.slice, 'x', sizeof reply.slice); /* not terminated */
  int fds[] = {pages(2, VG_ABI_VERSION), pages(2, VG_ABI_VERSION), vg_prim_eventfd(), vg_prim_eventfd()};
  answer(sockets[1], &reply, sizeof reply, fds, 4);
  CHECK(receive(sockets, &got) == 0);
  CHECK(strlen(got.reply.slice) == VG_NAME_BYTES - 1);
  CHECK(got.control->device_count == 2);
  CHECK((const char *)vg_wire_control(got.control, 1) == (const char *)got.control + 2 * VG_PAGE_BYTES);
  CHECK(vg_wire_report(got.report, 0)->used_bytes == 0);
  drop(&got, 2);
  close(sockets[1]);
  CHECK(receive(sockets, &got) == -ECONNRESET);
  CHECK(vg_wire_ended(sockets[0]));
  close(sockets[0]);
  CHECK(open_descriptors() == before);
}

static void another_version_is_told_apart(void) {
  int sockets[2], before = open_descriptors();
  make(sockets);
  struct vg_attach_reply reply = good_reply(1);
  reply.abi_version = VG_ABI_VERSION + 1;
  struct vg_wire_answer got;
  answer(sockets[1], &reply, sizeof reply / 2, NULL, 0); /* a later version may be of any size */
  CHECK(receive(sockets, &got) == -EPROTONOSUPPORT);
  int fds[] = {pages(1, VG_ABI_VERSION + 1), pages(1, 0), vg_prim_eventfd()};
  reply = good_reply(1);
  answer(sockets[1], &reply, sizeof reply, fds, 3);
  CHECK(receive(sockets, &got) == -EPROTO); /* the pages are of another version than the reply */
  unmake(sockets);
  CHECK(open_descriptors() == before);
}

static void pages_that_are_too_short_are_refused(void) {
  int sockets[2], before = open_descriptors();
  make(sockets);
  struct vg_wire_answer got;
  for (int which = 0; which < 2; which++) {
    struct vg_attach_reply reply = good_reply(4);
    int fds[] = {pages(4, VG_ABI_VERSION), pages(4, VG_ABI_VERSION), vg_prim_eventfd(),
                 vg_prim_eventfd(),        vg_prim_eventfd(),        vg_prim_eventfd()};
    CHECK(ftruncate(fds[which], VG_PAGE_BYTES) == 0);
    answer(sockets[1], &reply, sizeof reply, fds, 6);
    CHECK(receive(sockets, &got) == -EPROTO);
  }
  unmake(sockets);
  CHECK(open_descriptors() == before);
}

/* A message of no bytes looks like the end of the connection, but for the descriptors that come with it. */
static void an_empty_message_is_refused(void) {
  int sockets[2], before = open_descriptors();
  make(sockets);
  struct vg_wire_answer got;
  int fds[] = {pages(1, VG_ABI_VERSION), pages(1, VG_ABI_VERSION), vg_prim_eventfd()};
  answer(sockets[1], "", 0, fds, 3);
  CHECK(receive(sockets, &got) == -EPROTO);
  answer(sockets[1], "", 0, NULL, 0);
  CHECK(receive(sockets, &got) == -ECONNRESET);
  unmake(sockets);
  CHECK(open_descriptors() == before);
}

/* Right answers with something wrong in them, thousands of them: wrong counts, lengths, fields, descriptors. */
static void rubbish_is_refused(void) {
  int sockets[2], before = open_descriptors();
  struct check_random random = {29};
  make(sockets);
  for (int i = 0; i < 5000; i++) {
    uint32_t devices = (uint32_t)check_below(&random, VG_DEVICES_MAX + 2);
    struct vg_attach_reply reply = good_reply(devices);
    size_t bytes = check_below(&random, 4) ? sizeof reply : check_below(&random, sizeof reply);
    for (uint64_t flips = check_below(&random, 3); flips; flips--)
      ((uint8_t *)&reply)[check_below(&random, 28)] = (uint8_t)check_random(&random);
    int fds[VG_DEVICES_MAX + 4], count = (int)check_below(&random, VG_DEVICES_MAX + 4);
    for (int j = 0; j < count; j++)
      fds[j] = check_below(&random, 8) ? pages(j < 2 ? devices : 0, VG_ABI_VERSION) : vg_prim_eventfd();
    answer(sockets[1], &reply, bytes, fds, count);
    struct vg_wire_answer got;
    int result = receive(sockets, &got);
    CHECK(result <= 0);
    if (result == 0 && got.control) drop(&got, got.reply.device_count);
  }
  unmake(sockets);
  CHECK(open_descriptors() == before);
}

#define PLACE "/run/vgpu"
#define NAMED "/named.sock"

static void remount(const char *path, unsigned long flags) {
  CHECK(mount("none", path, NULL, MS_REMOUNT | MS_BIND | flags, NULL) == 0);
}

/* Whether this is a container, and the socket is chosen accordingly, with and without one in the environment. */
static bool is_container(void) {
  bool contained, contained_too;
  CHECK(setenv("VGPU_SOCKET", NAMED, 1) == 0);
  const char *named = vg_wire_path(&contained);
  CHECK(named && !strcmp(named, contained ? PLACE "/attach.sock" : NAMED));
  CHECK(unsetenv("VGPU_SOCKET") == 0);
  const char *found = vg_wire_path(&contained_too);
  CHECK(contained == contained_too && (found != NULL) == contained);
  return contained;
}

static void look_at_leftovers(void) {
  CHECK(!is_container());
  CHECK(mkdir(PLACE, 0755) == 0); /* by a container that mounted the host's /run */
  CHECK(!is_container());
  FILE *socket = fopen(PLACE "/attach.sock", "w");
  CHECK(socket && fclose(socket) == 0);
  CHECK(!is_container());
  remount("/run", MS_RDONLY); /* docker run --read-only of an image with the directory */
  CHECK(!is_container());
  remount("/run", 0);
  CHECK(mount(PLACE, PLACE, NULL, MS_BIND, NULL) == 0); /* a user's volume */
  CHECK(!is_container());
  remount(PLACE, MS_RDONLY); /* as the runtime mounts it, here from the file system around it */
  CHECK(is_container());
  CHECK(umount(PLACE) == 0 && !is_container());
  CHECK(unlink(PLACE "/attach.sock") == 0 && rmdir(PLACE) == 0 && fclose(fopen(PLACE, "w")) == 0);
  CHECK(!is_container());
}

/* In a /run of its own, so that the host's stays as it is. */
static void a_leftover_directory_is_no_container(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/run", "tmpfs", 0, NULL)) {
      puts("not looked at: no mount namespace can be made here");
      fflush(stdout);
      _exit(0);
    }
    look_at_leftovers();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  RUN(a_right_answer_is_mapped);
  RUN(another_version_is_told_apart);
  RUN(pages_that_are_too_short_are_refused);
  RUN(an_empty_message_is_refused);
  RUN(rubbish_is_refused);
  RUN(a_leftover_directory_is_no_container);
  return 0;
}
