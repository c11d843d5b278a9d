/*
 * pair.h - for rows of two processes: the other one is made before the first driver call, and what it says is added to
 * the row. They take turns: each waits for what the other sends.
 */
#ifndef CONFORMANCE_PAIR_H
#define CONFORMANCE_PAIR_H
#include "row.h"
#include <sys/socket.h>

static int pair_socket, pair_output;

static inline void say_bytes(const void *bytes, size_t count) {
  if (write(pair_socket, bytes, count) != (ssize_t)count) _exit(1);
}

static inline void hear_bytes(void *bytes, size_t count) {
  if (recv(pair_socket, bytes, count, MSG_WAITALL) != (ssize_t)count) _exit(1);
}

static inline void say_go(void) {
  say_bytes("g", 1);
}

static inline void await_go(void) {
  char go;
  hear_bytes(&go, 1);
}

static inline void move_fd(int *fd, ssize_t (*move)(int, struct msghdr *, int)) {
  char byte = 'f';
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  control.header.cmsg_len = CMSG_LEN(sizeof(int));
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  memcpy(CMSG_DATA(&control.header), fd, sizeof *fd);
  if (move(pair_socket, &message, 0) != 1) _exit(1);
  memcpy(fd, CMSG_DATA(&control.header), sizeof *fd);
}

static inline ssize_t send_message(int fd, struct msghdr *message, int flags) {
  return sendmsg(fd, message, flags);
}

static inline void say_fd(int fd) {
  move_fd(&fd, send_message);
}

static inline int hear_fd(void) {
  int fd = -1;
  move_fd(&fd, recvmsg);
  return fd;
}

/* Makes the other process, which runs other() after say_go(), and ends. */
static inline void with_other(void (*other)(void)) {
  int sockets[2], output[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || pipe(output) != 0) _exit(1);
  pid_t child = fork();
  if (child < 0) _exit(1);
  pair_socket = sockets[child == 0];
  pair_output = output[0];
  close(sockets[child != 0]);
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    snprintf(line, sizeof line, " other:");
    alarm(60);
    settled = 1;
    await_go();
    other();
    finish();
  }
  close(output[1]);
}

/* Our own context first, so that what the row before held is gone; then the other process goes. */
static inline void begin_first(void) {
  begin();
  say_go();
}

/* What the other process has said, once it has ended. */
static inline void hear_other(void) {
  size_t used = strlen(line);
  ssize_t got;
  while ((got = read(pair_output, line + used, sizeof line - 1 - used)) > 0) used += (size_t)got;
  if (used > 0 && line[used - 1] == '\n') used--;
  line[used] = 0;
}

#endif
