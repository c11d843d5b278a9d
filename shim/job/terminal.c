/* terminal.c - the keeper of a job's terminal: it holds the master side, so that the job outlives the daemon and its
 * viewers. Made by main.c and child.c; speaks with vgpud/jobs/terminal.py.
 *
 * It runs as the job's user, in the job's cgroup, and trusts neither side: bytes from the job are passed on as they
 * are, each message of the daemon is checked. All output goes to the log and into a ring; a viewer (one at a time, the
 * next one takes over) first gets the ring. The job does not wait for a viewer that takes nothing: after a while output
 * is left out, and counted. Messages on the SEQPACKET socket: a letter and what follows, numbers in little-endian
 * order.
 *
 * - I bytes (to us): keys
 * - W rows columns (to us; uint16_t each): the size of the window
 * - R bytes: output of before
 * - A: that was all of it
 * - O bytes: output
 * - L count (uint64_t): so many bytes were left out
 * - T: another viewer has taken over */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "job/job.h"
#include "job/ring.h"

#define CHUNK_BYTES (16u << 10)
#define INPUT_BYTES_MAX 4096
#define STALL_NS (5 * VJ_NS_PER_S)
/* Once the job's first process has ended and the terminal is closed: for a viewer to take the rest. */
#define FLUSH_NS (2 * VJ_NS_PER_S)
/* From the start: for a first viewer to come, also if the programs have ended. */
#define LINGER_NS (3 * VJ_NS_PER_S)
#define ROWS 24 /* before a viewer has sent the size of a window */
#define COLUMNS 80
#define BACKLOG 8
#define LOWEST_FREE_FD 8 /* above those of keep_only: a job may have few */

struct keeper {
  int master_fd, listen_fd, log_fd;
  int viewer_fd;  /* -1: there is none */
  int slave_fd;   /* open while the job's first process lives: a program may close the terminal and open it again */
  int running_fd; /* says when that has ended; -1 from then on */
  uid_t daemon_uid;
  bool was_viewed, is_replaying, is_sized, is_stalled, has_ended;
  uint64_t sent, replay_until; /* positions in the output: the viewer has it up to there */
  uint64_t lost;               /* bytes left out that were not reported to the viewer */
  uint64_t began_ns, progress_ns, deadline_ns;
  size_t input_at, input_end;
  char input[INPUT_BYTES_MAX];
  struct vj_ring ring;
};

static void let_output_continue(int slave_fd) {
  /* A viewer may have gone after Ctrl-S. Only this side can be restarted. */
  if (!tcflow(slave_fd, TCOOFF)) tcflow(slave_fd, TCOON);
}

static void drop_viewer(struct keeper *keeper) {
  if (keeper->viewer_fd < 0) return;
  close(keeper->viewer_fd);
  keeper->viewer_fd = -1;
  keeper->input_at = keeper->input_end = 0;
  if (keeper->slave_fd >= 0) let_output_continue(keeper->slave_fd);
}

static void accept_viewer(struct keeper *keeper) {
  int fd = accept4(keeper->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  if (fd < 0) return;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) || peer.uid != keeper->daemon_uid) {
    close(fd);
    return;
  }
  if (keeper->viewer_fd >= 0) send(keeper->viewer_fd, "T", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  drop_viewer(keeper);
  keeper->viewer_fd = fd;
  keeper->was_viewed = keeper->is_replaying = true;
  keeper->is_sized = keeper->is_stalled = false;
  keeper->sent = vj_ring_first_line(&keeper->ring);
  keeper->replay_until = keeper->ring.end;
  keeper->lost = 0;
  keeper->progress_ns = vj_now_ns();
}

/* ---- to the viewer ---- */

static bool has_to_send(const struct keeper *keeper) {
  return keeper->viewer_fd >= 0 && (keeper->sent < keeper->ring.end || keeper->is_replaying || keeper->lost);
}

/* Whether the viewer has taken it; one that is gone is dropped. */
static bool say(struct keeper *keeper, char letter, const void *bytes, size_t count) {
  struct iovec parts[2] = {{&letter, 1}, {(void *)(uintptr_t)bytes, count}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  if (sendmsg(keeper->viewer_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
    keeper->progress_ns = vj_now_ns();
    keeper->is_stalled = false;
    return true;
  }
  if (errno != EAGAIN && errno != EINTR) drop_viewer(keeper);
  return false;
}

/* As much as the viewer takes. */
static void send_output(struct keeper *keeper) {
  while (has_to_send(keeper)) {
    if (keeper->lost) {
      if (!say(keeper, 'L', &keeper->lost, sizeof keeper->lost)) return;
      keeper->lost = 0;
      continue;
    }
    uint64_t until = keeper->is_replaying ? keeper->replay_until : keeper->ring.end;
    if (keeper->sent >= until) {
      if (!say(keeper, 'A', NULL, 0)) return;
      keeper->is_replaying = false;
      continue;
    }
    const char *bytes = NULL;
    size_t count = vj_ring_at(&keeper->ring, keeper->sent, &bytes);
    if (count > until - keeper->sent) count = (size_t)(until - keeper->sent);
    if (count > CHUNK_BYTES) count = CHUNK_BYTES;
    if (!say(keeper, keeper->is_replaying ? 'R' : 'O', bytes, count)) return;
    keeper->sent += count;
  }
}

/* ---- from the job ---- */

static bool may_read(const struct keeper *keeper) {
  if (keeper->has_ended) return false;
  return keeper->viewer_fd < 0 || keeper->is_stalled || keeper->ring.end - keeper->sent + CHUNK_BYTES <= VJ_RING_BYTES;
}

static void read_output(struct keeper *keeper) {
  char bytes[CHUNK_BYTES];
  ssize_t count = read(keeper->master_fd, bytes, sizeof bytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) { /* EIO: neither we nor a program have the other side open any more */
    keeper->has_ended = true;
    keeper->deadline_ns = keeper->was_viewed ? vj_now_ns() + FLUSH_NS : keeper->began_ns + LINGER_NS;
    return;
  }
  vj_write_all(keeper->log_fd, bytes, (size_t)count);          /* a full disk costs the log, not the terminal */
  if (!has_to_send(keeper)) keeper->progress_ns = vj_now_ns(); /* the viewer is not late yet */
  vj_ring_add(&keeper->ring, bytes, (size_t)count);
  uint64_t begin = vj_ring_begin(&keeper->ring);
  if (keeper->viewer_fd < 0 || keeper->sent >= begin) return;
  keeper->lost += begin - keeper->sent;
  keeper->sent = begin;
}

/* ---- from the viewer ---- */

/* A terminal that is joined again is to be redrawn: a program does that when the size changes. */
static void set_size(struct keeper *keeper, unsigned short rows, unsigned short columns) {
  struct winsize now = {0}, size = {.ws_row = rows, .ws_col = columns};
  if (!rows || !columns) return;
  ioctl(keeper->master_fd, TIOCGWINSZ, &now);
  if (!keeper->is_sized && now.ws_row == rows && now.ws_col == columns) {
    size.ws_row = (unsigned short)(rows > 1 ? rows - 1 : rows + 1);
    ioctl(keeper->master_fd, TIOCSWINSZ, &size);
    size.ws_row = rows;
  }
  ioctl(keeper->master_fd, TIOCSWINSZ, &size);
  keeper->is_sized = true;
}

static void write_input(struct keeper *keeper) {
  while (keeper->input_at < keeper->input_end) {
    size_t left = keeper->input_end - keeper->input_at;
    ssize_t count = write(keeper->master_fd, keeper->input + keeper->input_at, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) break; /* its end is noticed where its output is read */
    keeper->input_at += (size_t)count;
  }
  keeper->input_at = keeper->input_end = 0;
}

static void hear_viewer(struct keeper *keeper) {
  char message[1 + INPUT_BYTES_MAX];
  ssize_t count = recv(keeper->viewer_fd, message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  unsigned short size[2];
  if (count == 1 + (ssize_t)sizeof size && *message == 'W') {
    memcpy(size, message + 1, sizeof size);
    set_size(keeper, size[0], size[1]);
  } else if (count > 1 && count <= (ssize_t)sizeof message && *message == 'I') {
    memcpy(keeper->input, message + 1, (size_t)count - 1);
    keeper->input_at = 0;
    keeper->input_end = (size_t)count - 1;
    write_input(keeper);
  } else { /* it has gone, or is no daemon of ours */
    drop_viewer(keeper);
  }
}

/* ---- from the first byte to the last ---- */

static int wait_ms(const struct keeper *keeper) {
  bool is_late = has_to_send(keeper) && !keeper->is_stalled;
  if (!keeper->has_ended && !is_late) return -1;
  uint64_t now_ns = vj_now_ns(), until_ns = keeper->has_ended ? keeper->deadline_ns : keeper->progress_ns + STALL_NS;
  return now_ns >= until_ns ? 0 : (int)((until_ns - now_ns) / VJ_NS_PER_MS) + 1;
}

static bool is_done(const struct keeper *keeper) {
  if (!keeper->has_ended) return false;
  if (vj_now_ns() >= keeper->deadline_ns) return true;
  return keeper->was_viewed && !has_to_send(keeper);
}

/* From here on the terminal ends when the programs that are left have closed it. */
static void first_process_ended(struct keeper *keeper) {
  close(keeper->slave_fd);
  keeper->slave_fd = keeper->running_fd = -1;
}

void vj_terminal_serve(struct vj_terminal_fds fds, uid_t daemon_uid) {
  static struct keeper kept;
  struct keeper *keeper = &kept;
  *keeper = (struct keeper){.master_fd = fds.master, .slave_fd = fds.slave, .listen_fd = fds.listener};
  keeper->log_fd = fds.log;
  keeper->running_fd = fds.running;
  keeper->viewer_fd = -1;
  keeper->daemon_uid = daemon_uid;
  keeper->began_ns = vj_now_ns();
  while (!is_done(keeper)) {
    bool has_input = keeper->input_at < keeper->input_end;
    short master = (short)((may_read(keeper) ? POLLIN : 0) | (has_input && !keeper->has_ended ? POLLOUT : 0));
    short viewer = (short)((has_input ? 0 : POLLIN) | (has_to_send(keeper) ? POLLOUT : 0));
    struct pollfd watched[4] = {{.fd = master ? fds.master : -1, .events = master},
                                {.fd = fds.listener, .events = POLLIN},
                                {.fd = keeper->viewer_fd, .events = viewer},
                                {.fd = keeper->running_fd, .events = POLLIN}};
    if (poll(watched, 4, wait_ms(keeper)) < 0) continue;
    if (watched[3].revents) first_process_ended(keeper);
    if (has_to_send(keeper) && vj_now_ns() >= keeper->progress_ns + STALL_NS) keeper->is_stalled = true;
    if (watched[2].revents & POLLOUT) send_output(keeper);
    if (keeper->viewer_fd >= 0 && (watched[2].revents & POLLIN)) hear_viewer(keeper);
    if (keeper->viewer_fd >= 0 && (watched[2].revents & (POLLHUP | POLLERR)) && !(watched[2].revents & POLLIN))
      drop_viewer(keeper);
    if (watched[0].revents & POLLOUT) write_input(keeper);
    if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) && may_read(keeper)) read_output(keeper);
    if (watched[1].revents) accept_viewer(keeper);
    send_output(keeper);
  }
  close(fds.listener); /* before the viewer hears the end: whoever comes now is refused, not left waiting */
  if (keeper->viewer_fd >= 0) close(keeper->viewer_fd);
}

/* ---- making it ---- */

int vj_terminal_listen(const char *directory) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return -errno;
  /* the directory's own path may be longer than an address */
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/terminal", at);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = fd < 0 ? errno : 0;
  if (!error && (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG))) error = errno;
  close(at);
  if (error && fd >= 0) close(fd);
  return error ? -error : fd;
}

void vj_terminal_prepare(struct vj_launch *launch, const char *directory) {
  bool has_pipe = !pipe2(launch->running_fds, O_CLOEXEC);
  launch->terminal_fd = has_pipe ? vj_terminal_listen(directory) : -errno;
}

void vj_terminal_hand_over(const struct vj_launch *launch) {
  if (launch->terminal_fd >= 0) close(launch->terminal_fd);
  if (launch->terminal_fd >= 0) close(launch->running_fds[0]);
}

void vj_terminal_end(const struct vj_launch *launch) {
  if (launch->terminal_fd >= 0) close(launch->running_fds[1]);
}

int vj_terminal_open(int *ret_master_fd, int *ret_slave_fd) {
  int unlocked = 0;
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (master < 0) return errno;
  int slave = ioctl(master, TIOCSPTLCK, &unlocked) ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    int error = errno;
    close(master);
    return error;
  }
  struct termios settings;
  struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
  if (!tcgetattr(slave, &settings)) {
    settings.c_iflag |= IUTF8; /* backspace erases a whole character */
    tcsetattr(slave, TCSANOW, &settings);
  }
  ioctl(master, TIOCSWINSZ, &size);
  *ret_master_fd = master;
  *ret_slave_fd = slave;
  return 0;
}

/* Moves them to 3, 4, ... and closes all others: the keeper may outlive whoever waits for one of those to be closed. */
static void keep_only(int *fds, int count) {
  for (int i = 0; i < count; i++) fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, LOWEST_FREE_FD);
  for (int i = 0; i < count; i++) fds[i] = dup2(fds[i], 3 + i);
  vj_close_above(3 + count);
}

/* A stop of the job is not the keeper's: it has the last output to pass on. */
static void ignore_signals(void) {
  static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1,
                                SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ, SIGXCPU};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
}

static _Noreturn void keep(const struct vj_launch *launch, int master_fd, int slave_fd, int log_fd, int null_fd) {
  setsid();
  if (launch->is_client && vj_become_user(launch)) _exit(1);
  prctl(PR_SET_NAME, "vgpu-terminal");
  prctl(PR_SET_DUMPABLE, 0); /* the environment of the job lies in our memory */
  for (int fd = 0; fd < 3; fd++) dup2(null_fd, fd);
  int fds[5] = {master_fd, slave_fd, launch->terminal_fd, log_fd, launch->running_fds[0]};
  uid_t daemon_uid = launch->daemon_uid;
  keep_only(fds, 5);
  vj_terminal_serve((struct vj_terminal_fds){fds[0], fds[1], fds[2], fds[3], fds[4]}, daemon_uid);
  _exit(0);
}

int vj_terminal_keep(const struct vj_launch *launch, int master_fd, int slave_fd, int log_fd, int null_fd) {
  pid_t between = fork();
  if (between < 0) return errno;
  if (!between) {     /* a job's program may not expect a child that it has not started */
    ignore_signals(); /* before it can be stopped: a short job may be over by the time that the keeper runs */
    pid_t keeper = fork();
    if (!keeper) keep(launch, master_fd, slave_fd, log_fd, null_fd);
    _exit(keeper < 0);
  }
  int status = 1;
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) continue;
  return status ? EAGAIN : 0;
}
