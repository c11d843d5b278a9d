/* socket.c - see socket.h. The only file of the shim with sockets. */
#define _GNU_SOURCE
#include "attach/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/prim.h"

#define CONTAINER_DIR "/run/vgpu"
#define FDS_MAX (2 + VG_DEVICES_MAX)
#define FD_LOWEST 3 /* a program may have closed 0, 1 or 2 and expects to find its own files there */

static int moved_up(int fd) {
  if (fd >= FD_LOWEST) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, FD_LOWEST);
  int error = errno;
  close(fd);
  return higher < 0 ? -error : higher;
}

/* What proves that this is a container with a slice: its directory is a mount of its own and read-only. One that was
 * left in an image, or by a container on the host whose /run it had, is neither, and says nothing. */
static bool is_contained(void) {
  struct statvfs status;
  return statvfs(CONTAINER_DIR, &status) == 0 && (status.f_flag & ST_RDONLY) != 0 &&
         vg_prim_may_be_mount_point(CONTAINER_DIR);
}

const char *vg_wire_path(bool *ret_contained) {
  *ret_contained = is_contained();
  if (*ret_contained) return CONTAINER_DIR "/attach.sock";
  const char *named = secure_getenv("VGPU_SOCKET");
  return named != NULL && *named != '\0' ? named : NULL;
}

int vg_wire_connect(const char *path, int *ret_socket_fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  memcpy(address.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  fd = moved_up(fd);
  if (fd < 0) return fd;
  if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
    int error = errno;
    close(fd);
    return -error;
  }
  *ret_socket_fd = fd;
  return 0;
}

int vg_wire_ask(int socket_fd, const struct vg_attach_request *request) {
  ssize_t sent = send(socket_fd, request, sizeof *request, MSG_NOSIGNAL);
  if (sent < 0) return -errno;
  return sent == sizeof *request ? 0 : -EPROTO;
}

/* Takes the descriptors out of the message, whatever else is wrong with it: they have to be closed. */
static int collect_fds(struct msghdr *message, int *ret_fds) {
  int count = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int in_message = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (int i = 0; i < in_message; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
      if (count < FDS_MAX)
        ret_fds[count++] = moved_up(fd);
      else
        close(fd);
    }
  }
  return count;
}

static void close_fds(const int *fds, int count) {
  for (int i = 0; i < count; i++) vg_prim_close(fds[i]);
}

static void *map_pages(int fd, uint32_t device_count, int protection) {
  size_t bytes = (size_t)(1 + device_count) * VG_PAGE_BYTES;
  struct stat status;
  /* A file shorter than the map would cause a bus error later. */
  if (fd < 0 || vg_prim_fstat(fd, &status) || status.st_size < (off_t)bytes) return NULL;
  void *pages = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
  return pages == MAP_FAILED ? NULL : pages;
}

static int map_answer(struct vg_wire_answer *answer, const int *fds, int fd_count) {
  uint32_t count = answer->reply.device_count;
  if (count == 0 || count > VG_DEVICES_MAX || fd_count != (int)(2 + count)) return -EPROTO;
  for (uint32_t i = 0; i < count; i++)
    if (fds[2 + i] < 0) return -EMFILE;
  const struct vg_control_header *control = map_pages(fds[0], count, PROT_READ);
  struct vg_report_header *report = map_pages(fds[1], count, PROT_READ | PROT_WRITE);
  size_t bytes = (size_t)(1 + count) * VG_PAGE_BYTES;
  if (!control || !report || control->magic != VG_ABI_MAGIC || control->abi_version != VG_ABI_VERSION) {
    if (control) munmap((void *)control, bytes);
    if (report) munmap(report, bytes);
    return -EPROTO;
  }
  report->magic = VG_ABI_MAGIC;
  report->abi_version = VG_ABI_VERSION;
  answer->control = control;
  answer->report = report;
  memcpy(answer->doorbell_fds, fds + 2, count * sizeof fds[0]);
  return 0;
}

static int check_reply(struct vg_attach_reply *reply, ssize_t got) {
  if (got < (ssize_t)(3 * sizeof(uint32_t)) || reply->magic != VG_ABI_MAGIC) return -EPROTO;
  if (reply->abi_version != VG_ABI_VERSION) return -EPROTONOSUPPORT;
  if (got != sizeof *reply || reply->bytes != sizeof *reply) return -EPROTO;
  reply->slice[VG_NAME_BYTES - 1] = reply->node[VG_NAME_BYTES - 1] = reply->text[VG_TEXT_BYTES - 1] = 0;
  return 0;
}

int vg_wire_receive(int socket_fd, struct vg_wire_answer *ret_answer) {
  memset(ret_answer, 0, sizeof *ret_answer);
  union {
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec piece = {.iov_base = &ret_answer->reply, .iov_len = sizeof ret_answer->reply};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  int fds[FDS_MAX];
  int fd_count = collect_fds(&message, fds); /* a message of 0 bytes may have some, too */
  if (got == 0 && fd_count == 0) return -ECONNRESET;
  int result = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO : check_reply(&ret_answer->reply, got);
  if (result == 0 && ret_answer->reply.status == VG_ATTACH_OK) result = map_answer(ret_answer, fds, fd_count);
  close_fds(fds, ret_answer->control ? 2 : fd_count); /* a map does not need its file any more; doorbells stay open */
  return result;
}

void vg_wire_wait(int socket_fd, uint64_t deadline_ns) {
  uint64_t now_ns = vg_prim_now_ns();
  if (now_ns >= deadline_ns) return;
  struct pollfd entry = {.fd = socket_fd, .events = POLLIN};
  poll(&entry, 1, (int)((deadline_ns - now_ns) / VG_NS_PER_MS + 1));
}

bool vg_wire_ended(int socket_fd) {
  struct pollfd entry = {.fd = socket_fd, .events = POLLIN};
  if (poll(&entry, 1, 0) <= 0) return false;
  if (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
  char byte; /* nothing is sent after the answer: readable means end of file, or noise that is dropped */
  ssize_t got = recv(socket_fd, &byte, sizeof byte, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

uint64_t vg_wire_identity(int fd) {
  struct stat status;
  return fd < 0 || vg_prim_fstat(fd, &status) ? 0 : (uint64_t)status.st_ino;
}

int vg_wire_replace(int old_fd, int new_fd) {
  if (old_fd < 0 || dup3(new_fd, old_fd, O_CLOEXEC) < 0) return new_fd;
  close(new_fd);
  return old_fd;
}

const struct vg_control_device *vg_wire_control(const struct vg_control_header *header, uint32_t index) {
  return (const struct vg_control_device *)((const char *)header + (size_t)(1 + index) * VG_PAGE_BYTES);
}

struct vg_report_device *vg_wire_report(struct vg_report_header *header, uint32_t index) {
  return (struct vg_report_device *)((char *)header + (size_t)(1 + index) * VG_PAGE_BYTES);
}
