/*
 * main.c - vgpu-simd, the simulated device: vgpu-simd --dir D [--config F] [--foreground] [--exit-on-stdin-eof]. One
 * thread, one loop: sockets, then a round of the simulation, then sleep until something can be decided. Prints one line
 * when it is ready; without --foreground it goes to the background at that moment.
 */
#define _GNU_SOURCE
#include "simgpu/server/places.h"
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
  const char *directory;
  const char *config;
  bool foreground;
  bool lifeline; /* end when stdin ends */
  int listener;
  int timer;
  int signals;
} options;

/* What epoll says beside processes; the addresses are the marks. */
static char mark_listener, mark_timer, mark_signals, mark_kick, mark_stdin, mark_tickets;

static int fail(const char *what, const char *name) {
  fprintf(stderr, "vgpu-simd: %s %s: %s\n", what, name, strerror(errno));
  return -1;
}

static int usage(void) {
  fprintf(stderr, "usage: vgpu-simd --dir DIRECTORY [--config FILE] [--foreground] [--exit-on-stdin-eof]\n");
  return -1;
}

static int options_read(int argc, char **argv) {
  static const struct option longs[] = {{"dir", required_argument, NULL, 'd'},
                                        {"config", required_argument, NULL, 'c'},
                                        {"foreground", no_argument, NULL, 'f'},
                                        {"exit-on-stdin-eof", no_argument, NULL, 'e'},
                                        {NULL, 0, NULL, 0}};
  int option;
  while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
    if (option == 'd')
      options.directory = optarg;
    else if (option == 'c')
      options.config = optarg;
    else if (option == 'f')
      options.foreground = true;
    else if (option == 'e')
      options.lifeline = true;
    else
      return usage();
  }
  return options.directory && optind == argc ? 0 : usage();
}

/* One server per directory: the lock lives as long as the process. */
static int directory_open(void) {
  if (mkdir(options.directory, 0755) < 0 && errno != EEXIST) return fail("cannot make", options.directory);
  server.directory = open(options.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (server.directory < 0) return fail("cannot open", options.directory);
  int lock = openat(server.directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return fail("cannot make a lock in", options.directory);
  if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
    fprintf(stderr, "vgpu-simd: %s: another vgpu-simd runs there: stop it or choose another directory\n",
            options.directory);
    return -1;
  }
  return 0;
}

/* The path of a socket is short (108 bytes): bind through /proc/self/fd, which is short always. */
static int listener_bind(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", server.directory, SIM_SOCKET_NAME);
  unlinkat(server.directory, SIM_SOCKET_NAME, 0);
  options.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (options.listener < 0 || bind(options.listener, (struct sockaddr *)&address, sizeof address) < 0 ||
      fchmodat(server.directory, SIM_SOCKET_NAME, 0666, 0) < 0)
    return fail("cannot listen in", options.directory);
  return 0;
}

static void watch(int fd, char *mark) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};
  epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event);
}

static int loop_open(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);
  server.epoll = epoll_create1(EPOLL_CLOEXEC);
  server.tickets = epoll_create1(EPOLL_CLOEXEC);
  server.kick = vg_prim_eventfd();
  options.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  options.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (server.epoll < 0 || server.tickets < 0 || server.kick < 0 || options.timer < 0 || options.signals < 0)
    return fail("cannot start in", options.directory);
  watch(options.listener, &mark_listener);
  watch(server.kick, &mark_kick);
  watch(server.tickets, &mark_tickets);
  watch(options.timer, &mark_timer);
  watch(options.signals, &mark_signals);
  if (options.lifeline) watch(STDIN_FILENO, &mark_stdin);
  return 0;
}

static void devices_fill(void) {
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    server.devices[i].index = i;
    server.devices[i].memory_bytes = server.config.devices[i].memory_bytes;
    server.devices[i].next_decision_ns = NEVER;
    for (uint32_t j = 0; j < SIM_LINKS; j++)
      server.devices[i].own_links[j] = (struct link){.direction = j, .next_decision_ns = NEVER};
    uint32_t parent = server.config.devices[i].parent;
    server.devices[i].links = server.devices[parent ? parent - 1 : i].own_links;
  }
}

static void timer_set(uint64_t at_ns) {
  struct itimerspec when = {.it_value = {(time_t)(at_ns / VG_NS_PER_S), (long)(at_ns % VG_NS_PER_S)}};
  timerfd_settime(options.timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Arms the timer for the next round, if there is to be one: nothing under way, and the next command comes with a
 * message. What is decided is never behind the clock while the device is at work: the answer to a query is what is so.
 */
static void sleep_until_next(uint64_t now_ns) {
  uint64_t next_ns = engine_next_ns();
  if (next_ns == NEVER && now_ns > server.last_command_ns + LINGER_NS) {
    report_round(now_ns, true);
    if (queue_doze_all()) {
      if (places_late_ns() != NEVER) timer_set(places_late_ns());
      return;
    }
  }
  uint64_t at_ns = now_ns + ROUND_NS;
  if (next_ns != NEVER) {
    next_ns = next_ns > LOOK_AHEAD_NS ? next_ns - LOOK_AHEAD_NS : 0;
    if (next_ns < now_ns + ROUND_MIN_NS) next_ns = now_ns + ROUND_MIN_NS;
    if (next_ns < at_ns) at_ns = next_ns;
  }
  timer_set(at_ns);
}

static bool handle(void *mark) { /* false: the end */
  uint64_t count;
  if (mark == &mark_listener) {
    for (int i = 0; i < ACCEPTED_AT_ONCE && client_accept(options.listener) == 0; i++) {
    }
  } else if (mark == &mark_timer) {
    if (read(options.timer, &count, sizeof count) < 0) return true;
  } else if (mark == &mark_kick) {
    vg_prim_eventfd_drain(server.kick);
  } else if (mark == &mark_tickets) {
    share_tickets_look();
  } else if (mark == &mark_signals) {
    return false;
  } else if (mark == &mark_stdin) {
    char byte;
    return read(STDIN_FILENO, &byte, 1) > 0;
  } else {
    client_request(mark);
  }
  return true;
}

static void loop(void) {
  struct epoll_event events[64];
  for (bool goes_on = true; goes_on;) {
    sleep_until_next(vg_prim_now_ns());
    int count = epoll_wait(server.epoll, events, 64, -1);
    for (int i = 0; i < count; i++) goes_on = handle(events[i].data.ptr) && goes_on;
    uint64_t now_ns = vg_prim_now_ns();
    places_close_late(now_ns);
    client_reap();
    engine_round(now_ns);
    report_round(now_ns, !goes_on);
  }
}

/* Hardware is not slowed down by what the host's processors do: the server goes first where it may. It sleeps nearly
 * always, and the kernel's own limit on real-time threads holds. */
static void priority_raise(void) {
  struct sched_param first = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) < 0) setpriority(PRIO_PROCESS, 0, -10);
}

int main(int argc, char **argv) {
  if (options_read(argc, argv) < 0) return 2;
  if (config_read(options.config, &server.config) < 0) return 2;
  if (directory_open() < 0) return 1;
  devices_fill();
  server.process_died = client_died;
  if (report_open(server.directory) < 0) return fail("cannot write in", options.directory), 1;
  if (listener_bind() < 0) return 1;
  if (!options.foreground && daemon(1, 1) < 0) return fail("cannot go to the background from", options.directory), 1;
  server.page->server_pid = getpid();
  /* Here, not in the process that has ended: the peer that clients see is the process that called listen(). */
  if (listen(options.listener, 128) < 0) return fail("cannot listen in", options.directory), 1;
  if (loop_open() < 0 || places_open() < 0) return fail("cannot start in", options.directory), 1;
  priority_raise();
  printf("vgpu-simd: ready: %u device%s in %s\n", server.config.device_count,
         server.config.device_count == 1 ? "" : "s", options.directory);
  fflush(stdout);
  loop();
  unlinkat(server.directory, SIM_SOCKET_NAME, 0);
  unlinkat(server.directory, SIM_PAGE_NAME, 0);
  return 0;
}
