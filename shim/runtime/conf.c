/* conf.c - vgpu-runtime.conf, which lies beside the executable. Called by main.c and hook.c.
 *
 * Not from the environment: engines run us with whatever they have. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/vgpud/runtime.sock"
#define CONF_BYTES_MAX (64u << 10)

static char *trimmed(char *text) {
  text += strspn(text, " \t\r");
  size_t length = strlen(text);
  while (length && strchr(" \t\r", text[length - 1])) text[--length] = 0;
  return text;
}

static void set(const char *name, int line, const char *key, const char *value, struct vr_conf *conf) {
  char *place = !strcmp(key, "socket") ? conf->socket : !strcmp(key, "runtime") ? conf->runtime : NULL;
  if (!place)
    vr_say(conf->problem, 0, "%s line %d: unknown setting `%s` (settings are `socket` and `runtime`)", name, line, key);
  else if (!*value || strlen(value) >= PATH_MAX)
    vr_say(conf->problem, 0, "%s line %d: `%s` needs a value of 1 to %d characters", name, line, key, PATH_MAX - 1);
  else if (place == conf->socket && *value != '/')
    vr_say(conf->problem, 0, "%s line %d: `socket` must be an absolute path, not `%s`", name, line, value);
  else if (place == conf->runtime && *value != '/' && strchr(value, '/'))
    vr_say(conf->problem, 0, "%s line %d: `runtime` must be a name or an absolute path, not `%s`", name, line, value);
  else
    strcpy(place, value);
}

void vr_conf_parse(const char *name, char *text, struct vr_conf *conf) {
  int number = 0;
  for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
    number++;
    line = trimmed(line);
    if (!*line || *line == '#') continue;
    char *equals = strchr(line, '=');
    if (!equals) {
      vr_say(conf->problem, 0, "%s line %d: `%s` is not `key = value`", name, number, line);
      continue;
    }
    *equals = 0;
    set(name, number, trimmed(line), trimmed(equals + 1), conf);
  }
}

/* The way we were called keeps working when an upgrade swaps the link that it goes through; /proc/self/exe's does not.
 */
static void find_self(const char *argv0, const char *executable, char *ret_self) {
  struct stat called, running;
  bool is_same = argv0 && *argv0 == '/' && strlen(argv0) < PATH_MAX && !stat(argv0, &called) &&
                 !stat("/proc/self/exe", &running) && called.st_dev == running.st_dev &&
                 called.st_ino == running.st_ino;
  strcpy(ret_self, is_same ? argv0 : executable);
}

void vr_conf_load(const char *argv0, struct vr_conf *ret_conf) {
  *ret_conf = (struct vr_conf){.socket = DEFAULT_SOCKET};
  char executable[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
  if (length <= 0) return;
  executable[length] = 0;
  find_self(argv0, executable, ret_conf->self);
  char path[PATH_MAX + 8];
  snprintf(path, sizeof path, "%s.conf", executable);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) return;
  fd = fd < 0 ? -errno : vr_above_stdio(fd);
  char *text = NULL;
  ssize_t got = fd < 0 ? fd : vr_read_all(fd, CONF_BYTES_MAX, UINT64_MAX, &text);
  if (fd >= 0) close(fd);
  if (got < 0)
    vr_say(ret_conf->problem, 0, "cannot read %s: %s", path, vr_reason((int)-got));
  else if (got > (ssize_t)CONF_BYTES_MAX)
    vr_say(ret_conf->problem, 0, "%s is longer than %u bytes", path, CONF_BYTES_MAX);
  else
    vr_conf_parse(path, text, ret_conf);
  free(text);
}
