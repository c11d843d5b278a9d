/* wire_send.h - one request to vgpu-simd, as the simulated driver and NVML send it. */
#ifndef VG_SIM_WIRE_SEND_H
#define VG_SIM_WIRE_SEND_H
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "simgpu/wire.h"

/* send_fd: a descriptor that goes with it, -1: none. 0 or -EPIPE. */
static inline int sim_wire_send(int fd, struct sim_request *request, int send_fd) {
  struct iovec part = {.iov_base = request, .iov_len = sizeof *request};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (send_fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &send_fd, sizeof send_fd);
  }
  ssize_t size;
  while ((size = sendmsg(fd, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return size == sizeof *request ? 0 : -EPIPE;
}

#endif
