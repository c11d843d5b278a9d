/* lowlevel.c - a low-level runtime for vgpu-runtime's tests: writes down how it was run, beside itself, and ends
 * with 7.
 *
 * One line per fact, `key value`, written with plain descriptors: what is open must be what was handed down. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void note(int out, const char *key, const char *value) {
  char line[2 * PATH_MAX];
  int length = snprintf(line, sizeof line, "%s %s", key, value);
  for (int i = 0; i < length; i++)
    if (line[i] == '\n') line[i] = '|';
  line[length++] = '\n';
  if (write(out, line, (size_t)length) != length) abort();
}

static void note_status(int out) {
  static char status[1 << 14];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t length = read(fd, status, sizeof status - 1);
  close(fd);
  if (length <= 0) abort();
  for (char *line = strtok(status, "\n"); line; line = strtok(NULL, "\n"))
    if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6) || !strncmp(line, "SigCgt", 6) ||
        !strncmp(line, "Umask", 5))
      note(out, "status", line);
}

int main(int argc, char **argv, char **environment) {
  char path[PATH_MAX + 8], target[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
  if (length <= 0) return 1;
  strcpy(path + length, ".seen");
  DIR *fds = opendir("/proc/self/fd"); /* before `out`, so that neither is listed */
  struct dirent *entry;
  char found[256][PATH_MAX + NAME_MAX + 2];
  int count = 0;
  while ((entry = readdir(fds))) {
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(fds) || count == 256) continue;
    length = readlinkat(dirfd(fds), entry->d_name, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    snprintf(found[count++], sizeof *found, "%s=%s", entry->d_name, target);
  }
  closedir(fds);
  int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  for (int i = 0; i < count; i++) note(out, "fd", found[i]);
  for (int i = 0; i < argc; i++) note(out, "arg", argv[i]);
  for (; *environment; environment++) note(out, "env", *environment);
  if (getcwd(target, sizeof target)) note(out, "cwd", target);
  int signal_number = 0;
  prctl(PR_GET_PDEATHSIG, &signal_number);
  snprintf(target, sizeof target, "%d", signal_number);
  note(out, "pdeathsig", target);
  snprintf(target, sizeof target, "%d", (int)getpid());
  note(out, "pid", target);
  note_status(out);
  return 7;
}
