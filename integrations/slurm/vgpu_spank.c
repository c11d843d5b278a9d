/*
 * vgpu_spank.c - SPANK plugin: a slice of the node's vgpud for each step of a Slurm job that has GPUs or shards.
 *
 * Loaded by srun, sbatch and salloc (for the options) and by slurmstepd, which runs as root. In the task, before it
 * gives up root, it runs `vgpu-runtime vgpu-slurm begin`, which asks vgpud and prints the variables that the task then
 * gets; when the step ends, `vgpu-runtime vgpu-slurm end`. vgpud's protocol is that program's matter alone: a new vgpud
 * needs no new plugin, a new Slurm does (make -C integrations/slurm).
 *
 * What the step has is taken from variables that slurmstepd sets, or removes where there is nothing, after it has taken
 * over the user's environment. With whole GPUs it leaves SLURM_SHARDS_ON_NODE alone: a user who sets that gets less.
 *
 * Nothing here waits without a deadline. A step that cannot have its slice fails; the node is not drained.
 */
#define _GNU_SOURCE
#define SLURM_BACKWARD_COMPAT /* from 26.05 on slurm_load_job() takes a job's number by this alone */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(vgpu, 1)

#define DEFAULT_HELPER "/usr/lib/vgpu/current/vgpu-runtime"
#define HELPER_S 10
#define COMMENT_S 2
#define ANSWER_BYTES (32 << 10)
#define VALUE_BYTES 4096
#define ARGS_MAX 16

/* Of slurmstepd and its tasks together: a task notes here that the step has a slice. */
struct shared {
  bool has_slice;
  uint32_t ended; /* tasks, counted by slurmstepd */
};

static struct shared *shared;
static char helper[PATH_MAX] = DEFAULT_HELPER; /* of the site, "%n" stands for the node's name */
static char comment[PATH_MAX];                 /* the program that notes the used time; "": none */
static char most[64], memory[64], class_name[64];
static char answer[ANSWER_BYTES]; /* what the helper printed, of this task */

/* ---- options ---- */

static int keep(const char *name, const char *value, const char *allowed, char *ret_kept, size_t bytes) {
  if (!value || !*value || strlen(value) >= bytes || strspn(value, allowed) < strlen(value)) {
    slurm_error("vgpu: --%s=%s is not valid: see docs/slurm.md", name, value ? value : "");
    return -1;
  }
  strcpy(ret_kept, value);
  return 0;
}

static int on_max(int val, const char *value, int remote) {
  (void)val, (void)remote;
  return keep("vgpu-max", value, "0123456789.", most, sizeof most);
}

static int on_memory(int val, const char *value, int remote) {
  (void)val, (void)remote;
  return keep("vgpu-mem", value, "0123456789.kKmMgGtTiIbB", memory, sizeof memory);
}

static int on_class(int val, const char *value, int remote) {
  (void)val, (void)remote;
  if (value && strcmp(value, "batch") && strcmp(value, "latency")) {
    slurm_error("vgpu: --vgpu-class=%s is not a class: write batch or latency", value);
    return -1;
  }
  return keep("vgpu-class", value, "abcehlnty", class_name, sizeof class_name);
}

static struct spank_option options[] = {
    {"vgpu-max", "GPUS", "up to how many GPUs (.8) the step may use while others are idle [default: its shards]", 1, 0,
     on_max},
    {"vgpu-mem", "SIZE", "GPU memory that the step may use (20G) [default: the part of the GPU that its shards are]", 1,
     0, on_memory},
    {"vgpu-class", "CLASS", "batch, or latency: the step's guarantee is served first [default: batch]", 1, 0,
     on_class}};

static int read_site(int ac, char **av) {
  for (int i = 0; i < ac; i++) {
    char *place = !strncmp(av[i], "helper=", 7) ? helper : !strncmp(av[i], "comment=", 8) ? comment : NULL;
    const char *value = place ? strchr(av[i], '=') + 1 : "";
    if (!place || *value != '/' || strlen(value) >= PATH_MAX) {
      slurm_error("vgpu: `%s` in plugstack.conf is neither helper=PATH nor comment=PATH", av[i]);
      return -1;
    }
    strcpy(place, value);
  }
  return 0;
}

/* ---- the helper ---- */

static char *no_environment[] = {NULL};

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void become(int out, char **args, char **env) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO); /* it prints either an answer or an error */
  execve(args[0], args, env);
  dprintf(out, "cannot run %s: %s: correct helper= in plugstack.conf\n", args[0], strerror(errno));
  _exit(127);
}

/* Whether a child has ended before the deadline. A program may close its output and continue. */
static bool has_ended(pid_t child, uint64_t deadline, int *ret_status) {
  for (;;) {
    pid_t found = waitpid(child, ret_status, WNOHANG);
    if (found < 0 && errno != EINTR) *ret_status = -1; /* another one has waited for it: it counts as failed */
    if (found == child || (found < 0 && errno != EINTR)) return true;
    if (now_ms() >= deadline) return false;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
}

/* What a program prints, within so many seconds, with the given environment. Returns its exit status, or -1. */
static int run(char **args, char **env, unsigned seconds, char *ret_text, size_t bytes) {
  int ends[2];
  *ret_text = 0;
  if (pipe2(ends, O_CLOEXEC)) return -1;
  pid_t child = fork();
  if (!child) become(ends[1], args, env);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return -1;
  }
  size_t used = 0;
  uint64_t deadline = now_ms() + seconds * 1000ull;
  bool is_late = false;
  for (;;) {
    uint64_t now = now_ms();
    struct pollfd item = {.fd = ends[0], .events = POLLIN};
    is_late = now >= deadline;
    if (is_late) break;
    int ready = poll(&item, 1, (int)(deadline - now));
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    ssize_t got = read(ends[0], ret_text + used, bytes - 1 - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += (size_t)got;
  }
  ret_text[used] = 0;
  close(ends[0]);
  int status = 0;
  is_late = is_late || !has_ended(child, deadline, &status);
  if (is_late) {
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  }
  if (is_late) snprintf(ret_text, bytes, "%s did not answer within %u s", args[0], seconds);
  return !is_late && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct arguments {
  char *args[ARGS_MAX + 1];
  char texts[ARGS_MAX][VALUE_BYTES + 16];
  int count;
};

static void add(struct arguments *list, const char *key, const char *value) {
  if (!value || !*value || list->count >= ARGS_MAX) return;
  char *text = list->texts[list->count];
  int length = snprintf(text, sizeof list->texts[0], "%s%s", key, value);
  if (length < 0 || (size_t)length >= sizeof list->texts[0]) return; /* no value of Slurm's is that long */
  list->args[list->count++] = text;
  list->args[list->count] = NULL;
}

static void add_number(struct arguments *list, const char *key, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  add(list, key, text);
}

/* The path with the node's name for each "%n", as Slurm's own paths have it. */
static void add_path(struct arguments *list, const char *path) {
  char made[PATH_MAX] = "", node[256] = "";
  const char *name = getenv("SLURMD_NODENAME");
  if (name && strlen(name) < sizeof node)
    strcpy(node, name);
  else
    gethostname(node, sizeof node - 1);
  for (size_t used = 0; *path && used + sizeof node < sizeof made; path++) {
    bool is_name = path[0] == '%' && path[1] == 'n';
    used += (size_t)snprintf(made + used, sizeof made - used, is_name ? "%s" : "%.1s", is_name ? node : path);
    path += is_name;
  }
  add(list, "", made);
}

static bool is_gpu_step(uint32_t step) {
  return step < SLURM_MAX_NORMAL_STEP_ID || step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP;
}

static const char *step_name(uint32_t step, char *number, size_t bytes) {
  if (step == SLURM_BATCH_SCRIPT) return "batch";
  if (step == SLURM_INTERACTIVE_STEP) return "interactive";
  snprintf(number, bytes, "%u", step);
  return number;
}

/* helper vgpu-slurm WORD job=... step=...; false for a step that has no slice, such as `extern`. */
static bool begin_arguments(spank_t sp, const char *word, struct arguments *list) {
  uint32_t job = 0, step = 0;
  char number[16];
  if (spank_get_item(sp, S_JOB_ID, &job) || spank_get_item(sp, S_JOB_STEPID, &step) || !is_gpu_step(step)) return false;
  add_path(list, helper);
  add(list, "", "vgpu-slurm");
  add(list, "", word);
  add_number(list, "job=", job);
  add(list, "step=", step_name(step, number, sizeof number));
  return true;
}

/* ---- what the whole job has ---- */

/* Of "shard:600(IDX:0)" 600, of "gpu:a100:2(IDX:0-1)" 2000, of anything else 0. */
static uint64_t milli_in(const char *text) {
  uint64_t shards = 0, gpus = 0;
  while (*text) {
    size_t length = strcspn(text, "(,");
    const char *colon = memrchr(text, ':', length);
    uint64_t count = colon ? strtoull(colon + 1, NULL, 10) : 0;
    if (!strncmp(text, "shard:", 6)) shards += count;
    if (!strncmp(text, "gpu:", 4)) gpus += count;
    text += length;
    if (*text == '(') text += strcspn(text, ")");
    text += strcspn(text, ",");
    text += *text == ',';
  }
  return shards ? shards : gpus * 1000;
}

/* Milli-GPU of the whole job on this node, as slurmctld says; 0 if it does not. Asked only for a step beside another
 * one: each question is work for the one process that all jobs wait for. */
static uint64_t milli_of_job(uint32_t job) {
  job_info_msg_t *found = NULL;
  const char *node = getenv("SLURMD_NODENAME");
  uint64_t milli = 0;
  if (!node || slurm_load_job(&found, job, SHOW_DETAIL)) return 0;
  for (uint32_t i = 0; i < found->record_count; i++) {
    slurm_job_info_t *one = &found->job_array[i];
    if (one->job_id != job || !one->nodes) continue;
    __auto_type nodes = slurm_hostlist_create(one->nodes); /* of another type in newer versions */
    int at = nodes ? slurm_hostlist_find(nodes, node) : -1;
    if (at >= 0 && (uint32_t)at < one->gres_detail_cnt && one->gres_detail_str[at])
      milli = milli_in(one->gres_detail_str[at]);
    if (nodes) slurm_hostlist_destroy(nodes);
  }
  slurm_free_job_info_msg(found);
  return milli;
}

/* ---- Slurm's hooks ---- */

/* Options of the table `spank_options` would be srun's alone. */
int slurm_spank_init(spank_t sp, int ac, char **av) {
  if (read_site(ac, av)) return -1;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (spank_option_register(sp, &options[i])) return -1;
  if (spank_remote(sp) != 1) return 0;
  void *pages = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared = pages == MAP_FAILED ? NULL : pages;
  return shared ? 0 : -1;
}

static bool value_of(spank_t sp, const char *name, char *ret_value) {
  *ret_value = 0;
  return !spank_getenv(sp, name, ret_value, VALUE_BYTES) && *ret_value;
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av) {
  (void)ac, (void)av;
  static struct arguments list;
  char gpus[VALUE_BYTES], shards[VALUE_BYTES];
  uid_t uid = 0;
  list.count = 0;
  uint32_t job = 0, step = 0;
  if (spank_get_item(sp, S_JOB_ID, &job) || spank_get_item(sp, S_JOB_STEPID, &step)) return -1;
  /* A batch script has the variable of the job, and hands it down to its steps, where it means nothing. */
  bool is_script = step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP;
  bool has_gpu = value_of(sp, is_script ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", gpus);
  if (!has_gpu && !*most && !*memory && !*class_name) return 0;
  /* the options are the script's, which has GPUs: this step was given none of them */
  if (!has_gpu && !is_script && value_of(sp, "SLURM_JOB_GPUS", gpus)) return 0;
  if (!begin_arguments(sp, "begin", &list)) return 0;
  if (spank_get_item(sp, S_JOB_UID, &uid)) return -1;
  add_number(&list, "uid=", uid);
  add_number(&list, "stepd=", (uint64_t)getppid());
  add(&list, "gpus=", gpus);
  if (has_gpu && value_of(sp, "SLURM_SHARDS_ON_NODE", shards)) add(&list, "shards=", shards);
  add(&list, "max=", most);
  add(&list, "mem=", memory);
  add(&list, "class=", class_name);
  add(&list, "total=", "ask");
  int error = run(list.args, no_environment, HELPER_S, answer, sizeof answer);
  if (!error && !strcmp(answer, "ask=total\n")) {
    /* Beside other steps of its job: if they have all of it (srun --overlap), it joins one of them, and so it does
     * where slurmctld does not say. */
    uint64_t milli = milli_of_job(job);
    list.args[--list.count] = NULL;
    if (milli) add_number(&list, "total=", milli);
    error = run(list.args, no_environment, HELPER_S, answer, sizeof answer);
  }
  if (error) {
    answer[strcspn(answer, "\n")] = 0;
    slurm_error("vgpu: %s", *answer ? answer : "the helper was ended");
    *answer = 0;
    return -1;
  }
  if (shared) shared->has_slice = true;
  return 0;
}

/* Takes out what an outer `vgpu sim run` has put there: the libraries of the simulated device are no others' slice's.
 */
static void remove_simulated(char *list) {
  char *end = list;
  for (char *rest = list, *entry; (entry = strsep(&rest, ": ")) != NULL;) {
    if (!*entry || strstr(entry, "/SIMULATED/")) continue;
    if (end > list) *end++ = ':';
    size_t length = strlen(entry);
    memmove(end, entry, length);
    end += length;
  }
  *end = 0;
}

/* LD_PRELOAD and LD_LIBRARY_PATH go before what the task has, the others replace it. */
static int set(spank_t sp, const char *name, const char *value) {
  char before[VALUE_BYTES], joined[2 * VALUE_BYTES];
  bool goes_before = !strcmp(name, "LD_PRELOAD") || !strcmp(name, "LD_LIBRARY_PATH");
  size_t length = strlen(value);
  if (!goes_before || !value_of(sp, name, before)) return spank_setenv(sp, name, value, 1);
  if (!strncmp(before, value, length) && (!before[length] || before[length] == ':'))
    return 0; /* srun in a job has it */
  remove_simulated(before);
  if (!*before) return spank_setenv(sp, name, value, 1);
  snprintf(joined, sizeof joined, "%s:%s", value, before);
  return spank_setenv(sp, name, joined, 1);
}

/* After slurmstepd has set the task's own CUDA_VISIBLE_DEVICES. */
int slurm_spank_task_init(spank_t sp, int ac, char **av) {
  (void)ac, (void)av;
  for (char *rest = answer, *line; *answer && (line = strsep(&rest, "\n"));) {
    char *equals = strchr(line, '=');
    if (!equals) continue;
    *equals = 0;
    if (set(sp, line, equals + 1)) {
      slurm_error("vgpu: cannot set %s for the task", line);
      return -1;
    }
  }
  return 0;
}

/* Ends the step's slice; what it has used goes to the site's program. */
static void end_step(spank_t sp) {
  static struct arguments list;
  uint32_t job = 0;
  list.count = 0;
  if (!shared || !shared->has_slice || !begin_arguments(sp, "end", &list)) return;
  shared->has_slice = false;
  if (run(list.args, no_environment, HELPER_S, answer, sizeof answer)) {
    slurm_info("vgpu: %.*s", (int)strcspn(answer, "\n"), answer); /* vgpud notices the end by itself */
    return;
  }
  for (char *at = answer; (at = strchr(at, '\n'));) *at = at[1] ? ' ' : 0;
  if (!*comment || !*answer || strstr(answer, "used_ms=0") || spank_get_item(sp, S_JOB_ID, &job)) return;
  list.count = 0;
  add_path(&list, comment);
  add_number(&list, "", job);
  add(&list, "", answer);
  run(list.args, environ, COMMENT_S, answer, sizeof answer);
}

/* At the end of the last task, and before srun and slurmctld hear of it: a job that has ended takes no comment. */
int slurm_spank_task_exit(spank_t sp, int ac, char **av) {
  (void)ac, (void)av;
  uint32_t tasks = 0;
  if (shared && !spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) && ++shared->ended >= tasks) end_step(sp);
  return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char **av) {
  (void)ac, (void)av;
  if (spank_remote(sp) == 1) end_step(sp);
  return 0;
}
