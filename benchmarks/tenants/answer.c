/*
 * answer.c - the least that can answer attach.c's processes: accepts at a socket, reads the message and sends one
 * descriptor back, twice, with an empty reply. Who the process is, and whether it may, is not looked at. Runs until its
 * input ends. Argument: the socket.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../shim/abi/vg_abi.h"

static void answer(int fd, const int *fds) {
  struct vg_attach_request request;
  struct vg_attach_reply reply = {.device_count = 1, .status = VG_ATTACH_OK};
  union {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct iovec piece = {.iov_base = &reply, .iov_len = sizeof reply};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes};
  message.msg_controllen = sizeof control.bytes;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  memcpy(CMSG_DATA(header), fds, 2 * sizeof(int));
  if (recv(fd, &request, sizeof request, 0) > 0) (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
  strcpy(address.sun_path, argv[1]);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), page = memfd_create("answer", MFD_CLOEXEC);
  if (ftruncate(page, 2 * VG_PAGE_BYTES) || bind(listener, (struct sockaddr *)&address, sizeof address)) return 3;
  if (listen(listener, 1024)) return 3;
  puts("ready");
  fflush(stdout);
  struct pollfd entries[] = {{.fd = listener, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
  while (poll(entries, 2, -1) > 0 && !entries[1].revents) {
    int fd = accept(listener, NULL, NULL); /* kept open, as the daemon keeps it */
    if (fd >= 0) answer(fd, (const int[]){page, page});
  }
  return 0;
}
