/* test_job_terminal.c - the keeper of a job's terminal and its ring, under AddressSanitizer and UBSan: what is kept for
 * a viewer that comes late, who may look, hostile messages, and a viewer that takes nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"
#include "job/job.h"
#include "job/ring.h"

#define PATIENCE_MS 60000
#define FLOOD_BYTES (4u << 20)

/* ---- the ring ---- */

static void test_ring_keeps_the_last(void) {
  static struct vj_ring ring;
  static char all[8 * VJ_RING_BYTES], part[3 * VJ_RING_BYTES];
  struct check_random random = {42};
  ring.end = 0;
  size_t count = 0;
  while (count < sizeof all - sizeof part) {
    size_t added = (size_t)check_below(&random, check_below(&random, 8) ? 4000 : sizeof part);
    for (size_t i = 0; i < added; i++) part[i] = all[count + i] = (char)check_random(&random);
    vj_ring_add(&ring, part, added);
    count += added;
    CHECK(ring.end == count);
    uint64_t begin = vj_ring_begin(&ring), at = begin;
    CHECK(begin == (count > VJ_RING_BYTES ? count - VJ_RING_BYTES : 0));
    const char *bytes;
    for (size_t got; (got = vj_ring_at(&ring, at, &bytes)); at += got) CHECK(!memcmp(bytes, all + at, got));
    CHECK(at == count);
    CHECK(!vj_ring_at(&ring, count, &bytes) && !vj_ring_at(&ring, count + 1, &bytes));
    CHECK(!begin || !vj_ring_at(&ring, begin - 1, &bytes));
  }
}

static void test_ring_begins_with_a_line(void) {
  static struct vj_ring ring;
  static char filling[VJ_RING_BYTES];
  ring.end = 0;
  vj_ring_add(&ring, "no line yet", 11);
  CHECK(vj_ring_first_line(&ring) == 0);
  memset(filling, 'x', sizeof filling);
  vj_ring_add(&ring, filling, sizeof filling);
  CHECK(vj_ring_first_line(&ring) == vj_ring_begin(&ring)); /* one endless line */
  vj_ring_add(&ring, "\r\nlast", 6);
  CHECK(vj_ring_first_line(&ring) == ring.end - 4);
}

/* ---- the keeper ---- */

struct kept {
  char directory[64], name[64]; /* name: the terminal's */
  int slave_fd, log_fd, running_fd;
  pid_t keeper;
};

static struct kept start_as(uid_t daemon_uid) {
  struct kept kept = {.directory = "/tmp/vgt-XXXXXX"};
  int master_fd, listen_fd, running[2];
  char log[128];
  CHECK(mkdtemp(kept.directory));
  CHECK((listen_fd = vj_terminal_listen(kept.directory)) >= 0);
  CHECK(vj_terminal_listen(kept.directory) == -EADDRINUSE);
  CHECK(!vj_terminal_open(&master_fd, &kept.slave_fd));
  CHECK(!ttyname_r(kept.slave_fd, kept.name, sizeof kept.name));
  CHECK(!pipe2(running, O_CLOEXEC));
  snprintf(log, sizeof log, "%s/log", kept.directory);
  CHECK((kept.log_fd = open(log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) >= 0);
  struct termios raw;
  CHECK(!tcgetattr(kept.slave_fd, &raw));
  CHECK(raw.c_iflag & IUTF8);
  cfmakeraw(&raw);
  CHECK(!tcsetattr(kept.slave_fd, TCSANOW, &raw));
  kept.keeper = fork();
  if (!kept.keeper) {
    close(running[1]);
    vj_terminal_serve((struct vj_terminal_fds){master_fd, kept.slave_fd, listen_fd, kept.log_fd, running[0]},
                      daemon_uid);
    exit(0); /* so that leaks and errors are reported */
  }
  close(master_fd);
  close(listen_fd);
  close(running[0]);
  kept.running_fd = running[1];
  return kept;
}

static struct kept start(void) {
  return start_as(geteuid());
}

static void close_one(int *fd) {
  if (*fd >= 0) CHECK(!close(*fd));
  *fd = -1;
}

static void end(struct kept *kept) {
  int status = 1;
  char path[128];
  close_one(&kept->running_fd);
  close_one(&kept->slave_fd);
  CHECK(waitpid(kept->keeper, &status, 0) == kept->keeper);
  CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
  close(kept->log_fd);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", kept->directory, i ? "log" : "terminal");
    unlink(path);
  }
  CHECK(!rmdir(kept->directory));
}

static int join(const struct kept *kept) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/terminal", kept->directory);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address));
  return fd;
}

static void wait_for(int fd, short events) {
  struct pollfd watched = {.fd = fd, .events = events};
  CHECK(poll(&watched, 1, PATIENCE_MS) == 1);
}

/* Reads messages until one has this letter: its length without the letter. Others are counted in ret_skipped. */
static size_t hear(int fd, char letter, char *bytes, size_t bytes_max, size_t *ret_skipped) {
  static char message[1 + VJ_RING_BYTES];
  for (;;) {
    wait_for(fd, POLLIN);
    ssize_t count = recv(fd, message, sizeof message, 0);
    CHECK(count > 0);
    if (*message != letter) {
      if (ret_skipped) *ret_skipped += (size_t)count - 1;
      continue;
    }
    CHECK((size_t)count - 1 <= bytes_max);
    memcpy(bytes, message + 1, (size_t)count - 1);
    return (size_t)count - 1;
  }
}

static void hear_end(int fd) {
  char message[1 + VJ_RING_BYTES];
  ssize_t count;
  do {
    wait_for(fd, POLLIN);
    count = recv(fd, message, sizeof message, 0);
  } while (count > 0);
  close(fd);
}

static void print(const struct kept *kept, const char *text) {
  CHECK(write(kept->slave_fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void test_both_ways_and_again(void) {
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  int first = join(&kept);
  hear(first, 'A', bytes, 0, NULL);
  print(&kept, "prompt> ");
  CHECK(hear(first, 'O', bytes, sizeof bytes, NULL) == 8 && !memcmp(bytes, "prompt> ", 8));
  CHECK(send(first, "Ikeys", 5, 0) == 5);
  wait_for(kept.slave_fd, POLLIN);
  CHECK(read(kept.slave_fd, bytes, sizeof bytes) == 4 && !memcmp(bytes, "keys", 4));

  int second = join(&kept); /* takes over, and is shown what was there */
  hear(first, 'T', bytes, 0, NULL);
  hear_end(first);
  CHECK(hear(second, 'R', bytes, sizeof bytes, NULL) == 8 && !memcmp(bytes, "prompt> ", 8));
  hear(second, 'A', bytes, 0, NULL);
  close_one(&kept.running_fd); /* the first process has ended, and another one has the terminal */
  print(&kept, "bye");
  close_one(&kept.slave_fd);
  CHECK(hear(second, 'O', bytes, sizeof bytes, NULL) == 3);
  hear_end(second);
  CHECK(pread(kept.log_fd, bytes, sizeof bytes, 0) == 11 && !memcmp(bytes, "prompt> bye", 11));
  end(&kept);
}

/* As a program does that writes to a file, and asks a question at its terminal later. */
static void test_closed_and_opened_again(void) {
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  int viewer = join(&kept);
  hear(viewer, 'A', bytes, 0, NULL);
  close_one(&kept.slave_fd);
  close(viewer);
  viewer = join(&kept); /* the keeper, if it is there, has looked at the terminal before */
  hear(viewer, 'A', bytes, 0, NULL);
  CHECK(send(viewer, "Iyes", 4, 0) == 4);
  CHECK((kept.slave_fd = open(kept.name, O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0);
  print(&kept, "sure?");
  CHECK(hear(viewer, 'O', bytes, sizeof bytes, NULL) == 5);
  wait_for(kept.slave_fd, POLLIN);
  CHECK(read(kept.slave_fd, bytes, sizeof bytes) == 3 && !memcmp(bytes, "yes", 3));
  close_one(&kept.slave_fd);
  close_one(&kept.running_fd);
  hear_end(viewer);
  end(&kept);
}

static void test_size(void) {
  struct kept kept = start();
  struct winsize size;
  char bytes[1];
  CHECK(!ioctl(kept.slave_fd, TIOCGWINSZ, &size) && size.ws_row == 24 && size.ws_col == 80);
  int viewer = join(&kept);
  unsigned short wanted[2] = {50, 132};
  char message[5] = {'W'};
  memcpy(message + 1, wanted, 4);
  CHECK(send(viewer, message, 5, 0) == 5);
  for (size.ws_row = 0; size.ws_row != 50;) CHECK(!usleep(1000) && !ioctl(kept.slave_fd, TIOCGWINSZ, &size));
  CHECK(size.ws_col == 132);
  memset(message + 1, 0, 4); /* not known: stays */
  CHECK(send(viewer, message, 5, 0) == 5 && send(viewer, "I.", 2, 0) == 2);
  wait_for(kept.slave_fd, POLLIN);
  CHECK(read(kept.slave_fd, bytes, 1) == 1);
  CHECK(!ioctl(kept.slave_fd, TIOCGWINSZ, &size) && size.ws_row == 50);
  close(viewer);
  end(&kept);
}

/* Whatever a viewer says, it loses its place at most, and the next one is served. */
static void test_hostile(void) {
  static char huge[100000];
  struct check_random random = {7};
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  for (int round = 0; round < 300; round++) {
    int viewer = join(&kept);
    for (uint64_t messages = check_below(&random, 4); messages; messages--) {
      size_t count =
          check_below(&random, 6) ? (size_t)check_below(&random, 12) : (size_t)check_below(&random, sizeof huge);
      for (size_t i = 0; i < count && i < 16; i++) huge[i] = (char)check_random(&random);
      if (count && check_below(&random, 2)) huge[0] = check_below(&random, 2) ? 'I' : 'W';
      send(viewer, huge, count, MSG_DONTWAIT | MSG_NOSIGNAL);
      tcflush(kept.slave_fd, TCIFLUSH);
    }
    close(viewer);
  }
  int viewer = join(&kept);
  hear(viewer, 'A', bytes, 0, NULL);
  tcflush(kept.slave_fd, TCIFLUSH);
  print(&kept, "alive");
  CHECK(hear(viewer, 'O', bytes, sizeof bytes, NULL) == 5);
  close(viewer);
  end(&kept);
}

static void test_only_the_daemon_may_look(void) {
  struct kept kept = start_as(geteuid() + 1);
  hear_end(join(&kept));
  print(&kept, "unseen");
  end(&kept);
}

static void flood(const struct kept *kept) {
  char line[1024];
  memset(line, 'y', sizeof line);
  line[sizeof line - 1] = '\n';
  for (size_t sent = 0; sent < FLOOD_BYTES; sent += sizeof line)
    CHECK(write(kept->slave_fd, line, sizeof line) == (ssize_t)sizeof line);
}

static void test_nobody_looks(void) {
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  struct stat log;
  size_t replayed = 0;
  flood(&kept); /* and is not held up */
  int viewer;
  do CHECK(!usleep(1000) && !fstat(kept.log_fd, &log));
  while (log.st_size < (off_t)FLOOD_BYTES);
  viewer = join(&kept);
  hear(viewer, 'A', bytes, 0, &replayed);
  CHECK(replayed > VJ_RING_BYTES - 2048 && replayed <= VJ_RING_BYTES);
  close(viewer);
  end(&kept);
}

/* A viewer that takes nothing holds the job up for a moment only, and gets a note of how much it has missed. */
static void test_viewer_takes_nothing(void) {
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  uint64_t lost;
  size_t seen = 0;
  int viewer = join(&kept);
  flood(&kept);
  CHECK(hear(viewer, 'L', bytes, sizeof lost, &seen) == sizeof lost);
  memcpy(&lost, bytes, sizeof lost);
  close_one(&kept.running_fd);
  close_one(&kept.slave_fd);
  for (ssize_t count; (wait_for(viewer, POLLIN), count = recv(viewer, bytes, sizeof bytes, 0)) > 0;)
    if (*bytes == 'O') seen += (size_t)count - 1;
  CHECK(lost && seen + lost == FLOOD_BYTES);
  close(viewer);
  end(&kept);
}

/* Ctrl-S stops the output of a terminal; when its viewer goes it continues. */
static void test_stopped_output_continues(void) {
  struct kept kept = start();
  char bytes[VJ_RING_BYTES];
  struct termios settings;
  CHECK(!tcgetattr(kept.slave_fd, &settings));
  settings.c_iflag |= IXON;
  CHECK(!tcsetattr(kept.slave_fd, TCSANOW, &settings));
  int viewer = join(&kept);
  CHECK(send(viewer, "I\x13", 2, 0) == 2 && send(viewer, "I.", 2, 0) == 2);
  wait_for(kept.slave_fd, POLLIN); /* the keys have arrived */
  CHECK(!fcntl(kept.slave_fd, F_SETFL, O_NONBLOCK));
  CHECK(write(kept.slave_fd, "held", 4) < 0 && errno == EAGAIN);
  close(viewer);
  wait_for(kept.slave_fd, POLLOUT);
  print(&kept, "free");
  viewer = join(&kept);
  hear(viewer, 'A', bytes, 0, NULL);
  close(viewer);
  end(&kept);
}

int main(void) {
  RUN(test_ring_keeps_the_last);
  RUN(test_ring_begins_with_a_line);
  RUN(test_both_ways_and_again);
  RUN(test_closed_and_opened_again);
  RUN(test_size);
  RUN(test_hostile);
  RUN(test_only_the_daemon_may_look);
  RUN(test_nobody_looks);
  RUN(test_viewer_takes_nothing);
  RUN(test_stopped_output_continues);
  return 0;
}
