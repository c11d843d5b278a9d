/* test_job_cgroup.c - vgpu-job's cgroups on a machine with version 2 alone, which test machines are not always: the
 * kernel's part is played by files. Controllers are handed down as the kernel demands it (none from a directory with
 * processes, none that the parent has not handed down), and every limit ends up in its file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "check.h"

static FILE *fake_fopen(const char *path, const char *mode);
static int fake_mkdir(const char *path, mode_t mode);
#define fopen fake_fopen
#define mkdir fake_mkdir
#define vj_read_file fake_read_file
#define vj_write_file fake_write_file
#include "job/cgroup.c"
#undef fopen
#undef mkdir

static char root[64], ours[PATH_MAX]; /* where we are */
static const char *own = "/user.slice";
static const char *const files[VJ_CONTROLLERS][5] = {
    {"cpu.max"}, {"memory.max", "memory.oom.group", "memory.peak", "memory.events"}, {"pids.max"}};

static void put_file(const char *directory, const char *name, const char *text, const char *mode) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, mode);
  CHECK(file);
  fputs(text, file);
  fclose(file);
}

static const char *get_file(const char *directory, const char *name) {
  static char text[4096];
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "r");
  size_t count = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[count] = 0;
  return file ? text : NULL;
}

static void parent_of(const char *path, char *ret_parent) {
  strcpy(ret_parent, path);
  *strrchr(ret_parent, '/') = 0;
}

/* The kernel's files of controllers that the parent hands down. */
static void show_controllers(const char *directory) {
  char parent[PATH_MAX], word[16];
  parent_of(directory, parent);
  for (size_t i = 0; i < VJ_CONTROLLERS; i++) {
    snprintf(word, sizeof word, "+%s", names[i]);
    if (!strstr(get_file(parent, "cgroup.subtree_control"), word)) continue;
    for (size_t j = 0; files[i][j]; j++)
      if (!get_file(directory, files[i][j])) put_file(directory, files[i][j], "", "w");
  }
}

static int fake_mkdir(const char *path, mode_t mode) {
  if (mkdir(path, mode)) return -1;
  for (size_t i = 0; i < 3; i++)
    put_file(path, (const char *[]){"cgroup.procs", "cgroup.subtree_control", "cpu.stat"}[i], "", "w");
  show_controllers(path);
  return 0;
}

static FILE *fake_fopen(const char *path, const char *mode) {
  (void)mode;
  CHECK(!strcmp(path, "/proc/self/mountinfo"));
  char text[256];
  int length = snprintf(text, sizeof text,
                        "22 1 0:21 / /proc rw - proc proc rw\n"
                        "30 22 0:26 / /has\\040blanks rw - cgroup2 cgroup2 rw\n"
                        "31 22 0:26 / %s rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
                        root);
  FILE *file = tmpfile();
  CHECK(file && fwrite(text, 1, (size_t)length, file) == (size_t)length);
  rewind(file);
  return file;
}

ssize_t fake_read_file(const char *path, char *ret_text, size_t text_bytes) {
  char directory[PATH_MAX];
  if (!strcmp(path, "/proc/self/cgroup")) return snprintf(ret_text, text_bytes, "1:name=systemd:/x\n0::%s\n", own);
  parent_of(path, directory);
  const char *text = get_file(directory, strrchr(path, '/') + 1);
  return text ? snprintf(ret_text, text_bytes, "%s", text) : -ENOENT;
}

static int hand_down_one(const char *directory, const char *word) {
  char parent[PATH_MAX];
  bool is_root = !strcmp(directory, root);
  parent_of(directory, parent);
  if (!is_root && *get_file(directory, "cgroup.procs")) return -EBUSY;
  if (is_root ? !strstr(get_file(root, "cgroup.controllers"), word + 1)
              : !strstr(get_file(parent, "cgroup.subtree_control"), word))
    return -ENOENT;
  put_file(directory, "cgroup.subtree_control", word, "a");
  return 0;
}

static int show_in_child(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info;
  if (kind == FTW_D && where->level == 1) show_controllers(path);
  return 0;
}

int fake_write_file(const char *path, const char *text) {
  char directory[PATH_MAX];
  const char *name = strrchr(path, '/') + 1;
  parent_of(path, directory);
  if (access(path, F_OK)) return -ENOENT;
  if (strcmp(name, "cgroup.subtree_control")) {
    if (!strcmp(name, "cgroup.procs") && !strcmp(text, "0")) put_file(ours, name, "", "w"); /* we are elsewhere now */
    put_file(directory, name, text, "w");
    return 0;
  }
  int error = hand_down_one(directory, text);
  if (!error) nftw(directory, show_in_child, 8, FTW_PHYS);
  return error;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info, (void)kind, (void)where;
  return remove(path);
}

static void begin(const char *controllers) {
  strcpy(root, "/tmp/vj-cgroup-XXXXXX");
  CHECK(mkdtemp(root));
  put_file(root, "cgroup.controllers", controllers, "w");
  put_file(root, "cgroup.subtree_control", "", "w");
  strcpy(ours, root);
  put_file(ours, "cgroup.procs", "1\n", "w");
}

static void finish(void) {
  CHECK(!nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS));
}

static const struct vj_launch launch = {
    .name = "7.1", .member_count = 2, .cpu_milli = 500, .ram_bytes = 1 << 30, .pids_max = 99};

static void check_limits(const struct vj_cgroups *cgroups) {
  char leaf[PATH_MAX];
  CHECK(cgroups->unified && !*cgroups->note);
  for (size_t member = 0; member < 2; member++) {
    CHECK(!vj_path(leaf, "%s/%zu", cgroups->track, member));
    CHECK(!strcmp(get_file(leaf, "cpu.max"), "50000 100000"));
    CHECK(!strcmp(get_file(leaf, "memory.max"), "1073741824") && !strcmp(get_file(leaf, "memory.oom.group"), "1"));
    CHECK(!strcmp(get_file(leaf, "pids.max"), "99"));
  }
  for (size_t i = 0; i < VJ_CONTROLLERS; i++) CHECK(!strcmp(cgroups->limit[i], cgroups->track));
}

static void test_below_the_root(void) {
  struct vj_cgroups cgroups;
  char wanted[PATH_MAX], leaf[PATH_MAX];
  begin("cpuset cpu io memory pids");
  vj_cgroups_make(&launch, false, &cgroups);
  CHECK(!vj_path(wanted, "%s/vgpud-jobs/7.1.%d", root, (int)getpid()) && !strcmp(cgroups.track, wanted));
  CHECK(!vj_path(leaf, "%s/vgpud-jobs/supervisors", root) && !strcmp(get_file(leaf, "cgroup.procs"), "0"));
  check_limits(&cgroups);
  CHECK(!vj_cgroups_enter(&cgroups, 1, 4711) && !vj_path(leaf, "%s/1", cgroups.track));
  CHECK(!strcmp(get_file(leaf, "cgroup.procs"), "4711"));
  finish();
}

/* systemd's Delegate=: our own cgroup, in which we are ourselves at first. */
static void test_here(void) {
  struct vj_cgroups cgroups;
  char wanted[PATH_MAX], unit[PATH_MAX];
  begin("cpu memory pids");
  own = "/vgpu-job@1.service";
  for (size_t i = 0; i < VJ_CONTROLLERS; i++) {
    snprintf(wanted, sizeof wanted, "+%s", names[i]);
    put_file(root, "cgroup.subtree_control", wanted, "a");
  }
  CHECK(!vj_path(unit, "%s%s", root, own) && !fake_mkdir(unit, 0755));
  strcpy(ours, unit);
  put_file(ours, "cgroup.procs", "1\n", "w");
  vj_cgroups_make(&launch, true, &cgroups);
  CHECK(!vj_path(wanted, "%s/7.1.%d", unit, (int)getpid()) && !strcmp(cgroups.track, wanted));
  check_limits(&cgroups);
  finish();
}

static void test_controllers_that_are_missing_are_named(void) {
  struct vj_cgroups cgroups;
  begin("cpu");
  vj_cgroups_make(&launch, false, &cgroups);
  CHECK(*cgroups.track && !strcmp(cgroups.limit[VJ_CPU], cgroups.track) && !*cgroups.limit[VJ_MEMORY]);
  CHECK(!strstr(cgroups.note, "--cpus") && strstr(cgroups.note, "--ram is not enforced"));
  CHECK(strstr(cgroups.note, "the limit on processes is not enforced"));
  finish();
}

static void test_usage(void) {
  struct vj_cgroups cgroups;
  char leaf[PATH_MAX];
  uint64_t cpu_ns = 1, ram_bytes = 1;
  begin("cpu memory pids");
  vj_cgroups_make(&launch, false, &cgroups);
  put_file(cgroups.track, "cpu.stat", "usage_usec 1500\nuser_usec 1000\n", "w");
  for (size_t member = 0; member < 2; member++) {
    CHECK(!vj_path(leaf, "%s/%zu", cgroups.track, member));
    put_file(leaf, "memory.peak", "4096\n", "w");
    put_file(leaf, "memory.events", "low 0\noom 1\noom_kill 3\noom_group_kill 1\n", "w");
  }
  vj_cgroups_usage(&cgroups, &cpu_ns, &ram_bytes);
  CHECK(cpu_ns == 1500000 && ram_bytes == 8192 && vj_cgroups_oom_kills(&cgroups) == 6);
  finish();
}

int main(void) {
  RUN(test_below_the_root);
  RUN(test_here);
  RUN(test_controllers_that_are_missing_are_named);
  RUN(test_usage);
  return 0;
}
