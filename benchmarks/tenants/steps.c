/*
 * steps.c - the job of benchmarks/cluster/acceptance: holds a device, mostly idle, until it has worked for so long, and
 * keeps a record of its runs. Started by a job's script, in gangs by srun once on each node.
 *
 *   steps FOLDER NAME MILLISECONDS
 *
 * FOLDER/progress/NAME.RANK is its checkpoint: what it has worked so far, and when it was last there. A run that is
 * ended by SIGTERM or SIGKILL is continued by the next one, and one that finds its work done leaves at once. The file
 * is locked for as long as it runs: a second run at the same time finds that out.
 *
 * FOLDER/records gets one line for each event, in one write, so that lines of many jobs never mix:
 *   WORD NAME RANK JOB RESTARTS NODE DEVICES MEMORY_BYTES NOW_NS BEFORE_NS
 * with the words start, stop (SIGTERM), end, again (its work was done), overlap (another run has the lock). BEFORE_NS:
 * when the run before it was last there, 0 of the first. Times are of the wall clock, as Slurm's and the controller's.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define TICK_NS 250000000ull
#define HELD_BYTES (1 << 20)

struct checkpoint {
  uint64_t done_ns; /* worked so far */
  uint64_t at_ns;   /* last written */
  uint64_t finished;
};

struct steps {
  const char *folder, *name;
  char job[64]; /* as scontrol takes it: 12, of an array 12_3 */
  uint64_t memory_bytes, before_ns;
  int file; /* the checkpoint's */
  struct checkpoint checkpoint;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal) {
  (void)signal;
  stopped = 1;
}

static uint64_t wall_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *variable(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static void fail(const char *what) {
  fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int open_in(const char *folder, const char *name, int flags) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) errno = ENAMETOOLONG;
  int file = open(path, flags | O_CLOEXEC, 0644);
  if (file < 0) fail(path);
  return file;
}

static void record(const struct steps *steps, const char *word) {
  char line[512];
  /* a step of srun has the devices of its node, a batch script those of the job there */
  const char *devices = variable("SLURM_STEP_GPUS", variable("SLURM_JOB_GPUS", "-"));
  int length = snprintf(line, sizeof line, "%s %s %s %s %s %s %s %llu %llu %llu\n", word, steps->name,
                        variable("SLURM_PROCID", "0"), steps->job, variable("SLURM_RESTART_COUNT", "0"),
                        variable("SLURMD_NODENAME", "-"), devices, (unsigned long long)steps->memory_bytes,
                        (unsigned long long)wall_ns(), (unsigned long long)steps->before_ns);
  int file = open_in(steps->folder, "records", O_WRONLY | O_APPEND);
  if (length >= (int)sizeof line || write(file, line, (size_t)length) != length) fail("records");
  close(file);
}

static void save(struct steps *steps) {
  steps->checkpoint.at_ns = wall_ns();
  if (pwrite(steps->file, &steps->checkpoint, sizeof steps->checkpoint, 0) != sizeof steps->checkpoint)
    fail("progress");
}

/* Takes over what earlier runs have done. Returns false where nothing is left to do, or another run is at it. */
static int resume(struct steps *steps) {
  char name[256];
  snprintf(name, sizeof name, "progress/%s.%s", steps->name, variable("SLURM_PROCID", "0"));
  steps->file = open_in(steps->folder, name, O_RDWR | O_CREAT);
  if (flock(steps->file, LOCK_EX | LOCK_NB)) {
    record(steps, "overlap");
    exit(3);
  }
  if (pread(steps->file, &steps->checkpoint, sizeof steps->checkpoint, 0) != sizeof steps->checkpoint)
    steps->checkpoint = (struct checkpoint){0};
  steps->before_ns = steps->checkpoint.at_ns;
  if (steps->checkpoint.finished) record(steps, "again");
  return !steps->checkpoint.finished;
}

static void work(struct steps *steps, struct driver *driver, device_pointer held, uint64_t total_ns) {
  struct checkpoint *checkpoint = &steps->checkpoint;
  uint64_t since_ns = now_ns();
  while (!stopped && checkpoint->done_ns < total_ns) {
    uint64_t left_ns = total_ns - checkpoint->done_ns;
    uint64_t tick_ns = left_ns < TICK_NS ? left_ns : TICK_NS;
    struct timespec tick = {(time_t)(tick_ns / 1000000000), (long)(tick_ns % 1000000000)};
    nanosleep(&tick, NULL);
    CHECK(driver->cuMemsetD8(held, 1, HELD_BYTES));
    CHECK(driver->cuCtxSynchronize());
    uint64_t now = now_ns();
    checkpoint->done_ns += now - since_ns;
    since_ns = now;
    checkpoint->finished = checkpoint->done_ns >= total_ns;
    save(steps);
  }
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: steps FOLDER NAME MILLISECONDS\n");
    return 2;
  }
  struct steps steps = {.folder = argv[1], .name = argv[2]};
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGTERM, &action, NULL);
  const char *array = variable("SLURM_ARRAY_JOB_ID", ""), *index = variable("SLURM_ARRAY_TASK_ID", "");
  snprintf(steps.job, sizeof steps.job, *array ? "%s_%s" : "%s", *array ? array : variable("SLURM_JOB_ID", "-"), index);
  if (!resume(&steps)) return 0;
  struct driver driver;
  handle context;
  device_pointer held;
  size_t free_bytes = 0, total_bytes = 0;
  driver_open(&driver, "libcuda.so.1");
  CHECK(driver.cuInit(0));
  CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(driver.cuCtxSetCurrent(context));
  CHECK(driver.cuMemGetInfo(&free_bytes, &total_bytes));
  CHECK(driver.cuMemAlloc(&held, HELD_BYTES));
  steps.memory_bytes = total_bytes;
  record(&steps, "start");
  save(&steps);
  work(&steps, &driver, held, strtoull(argv[3], NULL, 10) * 1000000);
  record(&steps, steps.checkpoint.finished ? "end" : "stop");
  return steps.checkpoint.finished ? 0 : 143;
}
