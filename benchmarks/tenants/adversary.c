/*
 * adversary.c - a tenant of benchmarks/sharing that means harm. Run hooked or not, beside honest tenants; JSON lines on
 * stdout as load.c's, "completed" counts its misdeeds. It never synchronises and never queries: it feeds the device as
 * fast as it is let, and ends at SIGTERM without waiting for anything.
 *
 *   adversary MODE [KERNEL_US [SEED]]
 *
 * endless  feeds from one thread
 * strange  feeds with a module of its own for every launch: such a kernel cannot have been timed before
 * threads  feeds from 16 threads, each over a stream of its own
 * respawn  a child opens the driver, feeds for up to .2 s and ends without notice; then the next
 * reopen   feeds for up to .2 s, gives its context back with all that is queued, and opens the next
 * forks    feeds, and forks children that do nothing, as fast as it can, up to 32 at a time
 * ring     feeds, and looks for the arbiter's doorbell among its descriptors: an eventfd that does not block (the
 *          simulated device has one that does, which concerns no other tenant). Makes it blocking, and writes to it
 *          and reads from it as fast as it can
 * stop     a child feeds; it is stopped at random moments, for up to half a second
 * capture  feeds, while another stream captures into a graph that is not used: for up to a second, then the next one
 * hang_up  feeds, and at random moments closes the socket to the daemon, one that does not block: the rest of what it
 *          was given stays
 * claim    a context and nothing else; its report page says all the time that a thread waits at the gate, and it rings
 *          every 50 us
 * boast    feeds; its report page says that all of the time is completed work
 */
#define _GNU_SOURCE
#include "driver.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/abi/vg_abi.h"

enum { THREADS = 16, CHILDREN_MAX = 32, FORKS_AT_ONCE = 4, FDS_MAX = 64, BLOCK_THREADS = 256 };
enum {
  FEED_MS_MAX = 200,
  RUN_MS_MAX = 200,
  STOP_MS_MAX = 500,
  CAPTURE_MS_MAX = 1000,
  HANG_UP_MS_MAX = 200,
  REPORT_MS = 100
};
static const uint64_t NS_PER_MS = 1000000;

static struct {
  struct driver driver;
  uint64_t kernel_us, rounds;
  handle context, function;
  unsigned grid;
  device_pointer sink;
  unsigned seed;
} adversary;

static volatile uint64_t misdeeds;

static void count(void) {
  __atomic_add_fetch(&misdeeds, 1, __ATOMIC_RELAXED);
}

static void say(const char *event) {
  unsigned long long done = misdeeds;
  printf("{\"event\": \"%s\", \"pid\": %d, \"time_ns\": %llu, \"issued\": %llu, \"completed\": %llu}\n", event,
         getpid(), (unsigned long long)now_ns(), done, done);
  fflush(stdout);
}

static uint64_t up_to(uint64_t most) {
  return 1 + (uint64_t)rand_r(&adversary.seed) % most;
}

static void sleep_ms(uint64_t ms) {
  struct timespec span = {(time_t)(ms / 1000), (long)(ms % 1000 * NS_PER_MS)};
  nanosleep(&span, NULL);
}

/* ---- work ---- */

static handle new_kernel(void) {
  char name[64];
  snprintf(name, sizeof name, "spin_%llu", (unsigned long long)adversary.kernel_us);
  return spin_kernel(&adversary.driver, name);
}

static void open_context(void) {
  struct driver *driver = &adversary.driver;
  CHECK(driver->cuDevicePrimaryCtxRetain(&adversary.context, 0));
  CHECK(driver->cuCtxSetCurrent(adversary.context));
  CHECK(driver->cuMemAlloc(&adversary.sink, 4096));
  adversary.function = new_kernel();
  adversary.rounds =
      spin_rounds(driver, adversary.function, adversary.grid, BLOCK_THREADS, adversary.sink, adversary.kernel_us);
}

static void open_device(void) {
  struct driver *driver = &adversary.driver;
  int sm_count;
  driver_open(driver, "libcuda.so.1");
  CHECK(driver->cuInit(0));
  CHECK(driver->cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SM_COUNT, 0));
  adversary.grid = (unsigned)sm_count * 8;
  open_context();
}

static void launch(handle function, handle stream) {
  void *arguments[] = {&adversary.rounds, &adversary.sink};
  CHECK(
      adversary.driver.cuLaunchKernel(function, adversary.grid, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL));
}

static handle own_stream(void) {
  handle stream;
  CHECK(adversary.driver.cuCtxSetCurrent(adversary.context));
  CHECK(adversary.driver.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  return stream;
}

static void feed_until(uint64_t end_ns, bool counted) {
  handle stream = own_stream();
  while (now_ns() < end_ns) {
    launch(adversary.function, stream);
    if (counted) count();
  }
}

static void *feed_strange(void *unused) {
  handle stream = own_stream();
  for (;; count()) launch(new_kernel(), stream);
  return unused;
}

static void *feed_counted(void *unused) {
  feed_until(UINT64_MAX, true);
  return unused;
}

static void *feed(void *unused) {
  feed_until(UINT64_MAX, false);
  return unused;
}

static void start(void *(*body)(void *), void *argument, int threads) {
  pthread_t thread;
  for (int i = 0; i < threads; i++)
    if (pthread_create(&thread, NULL, body, argument)) exit(1);
}

/* A child that dies with us: for a child, `true`. */
static bool fork_child(pid_t *ret_child) {
  *ret_child = fork();
  if (*ret_child < 0) exit(1);
  if (*ret_child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return *ret_child == 0;
}

/* ---- modes: what begins it, and what is done every millisecond ---- */

static void begin_endless(void) {
  open_device();
  start(feed_counted, NULL, 1);
}

static void begin_strange(void) {
  open_device();
  start(feed_strange, NULL, 1);
}

static void begin_threads(void) {
  open_device();
  start(feed_counted, NULL, THREADS);
}

static void nothing(void) {}

static void respawn(void) {
  static pid_t child;
  if (child && waitpid(child, NULL, WNOHANG) != child) return;
  uint64_t feed_ms = up_to(FEED_MS_MAX);
  count();
  if (!fork_child(&child)) return;
  open_device();
  feed_until(now_ns() + feed_ms * NS_PER_MS, false);
  _exit(0);
}

static void *reopen(void *unused) {
  for (;;) {
    feed_until(now_ns() + up_to(FEED_MS_MAX) * NS_PER_MS, false);
    CHECK(adversary.driver.cuDevicePrimaryCtxRelease(0));
    count();
    open_context();
  }
  return unused;
}

static void begin_reopen(void) {
  open_device();
  start(reopen, NULL, 1);
}

static void begin_feeding(void) {
  open_device();
  start(feed, NULL, 1);
}

static void fork_storm(void) {
  static int children;
  while (children && waitpid(-1, NULL, WNOHANG) > 0) children--;
  for (int i = 0; i < FORKS_AT_ONCE && children < CHILDREN_MAX; i++, children++) {
    pid_t child;
    if (fork_child(&child)) {
      sleep_ms(1);
      _exit(0);
    }
    count();
  }
}

static void *write_bell(void *fd) {
  const uint64_t values[] = {1, UINT64_MAX - 1};
  for (int i = 0; write((int)(intptr_t)fd, &values[i], sizeof values[i]) > 0; i = !i) count();
  return NULL;
}

static void *read_bell(void *fd) {
  uint64_t value;
  while (read((int)(intptr_t)fd, &value, sizeof value) > 0);
  return NULL;
}

/* Our descriptors of a kind that do not block. */
static int find_fds(bool (*is_one)(int fd, const char *target), int *ret_fds) {
  char path[300], target[64];
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  while (folder && count < FDS_MAX && (entry = readdir(folder))) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = 0;
    int fd = atoi(entry->d_name);
    if (is_one(fd, target) && fcntl(fd, F_GETFL) & O_NONBLOCK) ret_fds[count++] = fd;
  }
  if (folder) closedir(folder);
  return count;
}

static bool is_bell(int fd, const char *target) {
  (void)fd;
  return !strcmp(target, "anon_inode:[eventfd]");
}

static void begin_ring(void) {
  int fds[FDS_MAX];
  begin_feeding();
  for (int i = find_fds(is_bell, fds) - 1; i >= 0; i--) {
    fcntl(fds[i], F_SETFL, 0);
    start(write_bell, (void *)(intptr_t)fds[i], 1);
    start(read_bell, (void *)(intptr_t)fds[i], 1);
  }
}

static bool is_link(int fd, const char *target) {
  int type = 0;
  socklen_t length = sizeof type;
  return !strncmp(target, "socket:", 7) && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) &&
         type == SOCK_SEQPACKET;
}

/* True at random moments, the first of them at once. */
static bool is_time(uint64_t *next_ns, uint64_t most_ms) {
  if (now_ns() < *next_ns) return false;
  *next_ns = now_ns() + up_to(most_ms) * NS_PER_MS;
  return true;
}

static void hang_up(void) {
  static uint64_t next_ns;
  static bool closed;
  int fds[FDS_MAX];
  if (!is_time(&next_ns, HANG_UP_MS_MAX)) return;
  for (int i = find_fds(is_link, fds) - 1; i >= 0; i--) closed |= !close(fds[i]);
  if (closed) count(); /* it feeds without one, too */
}

static void capture(void) {
  static uint64_t next_ns;
  static handle stream;
  handle graph;
  if (!is_time(&next_ns, CAPTURE_MS_MAX)) return;
  if (stream)
    CHECK(adversary.driver.cuStreamEndCapture(stream, &graph));
  else
    CHECK(adversary.driver.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
  CHECK(adversary.driver.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
  count();
}

static pid_t stopped_child;

static void begin_stop(void) {
  if (!fork_child(&stopped_child)) return;
  open_device();
  feed_until(UINT64_MAX, false);
}

static void stop_and_go(void) {
  static uint64_t next_ns;
  static bool stopped;
  if (now_ns() < next_ns) return;
  if (waitpid(stopped_child, NULL, WNOHANG) == stopped_child) exit(1);
  bool first = next_ns == 0;
  next_ns = now_ns() + up_to(stopped || first ? RUN_MS_MAX : STOP_MS_MAX) * NS_PER_MS;
  if (first) return;
  kill(stopped_child, stopped ? SIGCONT : SIGSTOP);
  stopped = !stopped;
  if (stopped) count();
}

/* The page of our first device, behind the header; NULL without a hook. */
static struct vg_report_device *report_page(void) {
  char row[512];
  char *begin = NULL;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && !begin && fgets(row, sizeof row, maps))
    if (strstr(row, "memfd:vgpu-report")) begin = (char *)(uintptr_t)strtoull(row, NULL, 16);
  if (maps) fclose(maps);
  return begin ? (struct vg_report_device *)(void *)(begin + VG_PAGE_BYTES) : NULL;
}

static void *claim(void *unused) {
  struct vg_report_device *page = report_page();
  int fds[FDS_MAX], bells = find_fds(is_bell, fds);
  const uint64_t once = 1;
  for (; page; count()) {
    __atomic_store_n(&page->outstanding, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->waiting, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < bells; i++)
      if (write(fds[i], &once, sizeof once) < 0) break;
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return unused;
}

static void begin_claim(void) {
  open_device();
  start(claim, NULL, 1);
}

static void boast(void) {
  static struct vg_report_device *page;
  if (!page) page = report_page();
  if (!page) return;
  __atomic_store_n(&page->done_ns, UINT64_MAX >> 8, __ATOMIC_RELAXED);
  count();
}

static const struct {
  const char *name;
  void (*begin)(void);
  void (*every_ms)(void);
} modes[] = {
    {"endless", begin_endless, nothing}, {"strange", begin_strange, nothing}, {"threads", begin_threads, nothing},
    {"respawn", nothing, respawn},       {"reopen", begin_reopen, nothing},   {"forks", begin_feeding, fork_storm},
    {"ring", begin_ring, nothing},       {"stop", begin_stop, stop_and_go},   {"capture", begin_feeding, capture},
    {"hang_up", begin_feeding, hang_up}, {"claim", begin_claim, nothing},     {"boast", begin_feeding, boast},
};

static void on_signal(int signal) {
  (void)signal;
  _exit(0);
}

int main(int argc, char **argv) {
  size_t mode = 0, all = sizeof modes / sizeof *modes;
  while (argc > 1 && mode < all && strcmp(argv[1], modes[mode].name)) mode++;
  adversary.kernel_us = argc > 2 ? strtoull(argv[2], NULL, 10) : 200;
  adversary.seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
  if (argc < 2 || argc > 4 || mode == all || !adversary.kernel_us) {
    fprintf(stderr, "adversary: MODE [KERNEL_US [SEED]]; see adversary.c\n");
    return 2;
  }
  signal(SIGTERM, on_signal);
  modes[mode].begin();
  say("ready");
  for (uint64_t report_ns = now_ns();; sleep_ms(1)) {
    modes[mode].every_ms();
    if (now_ns() < report_ns) continue;
    say("progress");
    report_ns = now_ns() + REPORT_MS * NS_PER_MS;
  }
}
