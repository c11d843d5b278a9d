/* bundle.c - reads a container's config.json and puts a new one in its place. Called by main.c. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* At least one of these is in every config.json that concerns us: requests for a slice, and other ways in which a GPU
 * gets into a container. As engines write them: JSON strings, ASCII unescaped. */
static const char *const marks[] = {
    "\"VGPU=",       "\"VGPU_",   "\"dev.vgpu/", "nvidia-container-runtime-hook", "nvidia-container-toolkit",
    "\"/dev/nvidia", "libcuda.so"};

bool vr_bundle_asks(const char *json, size_t json_bytes) {
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (memmem(json, json_bytes, marks[i], strlen(marks[i]))) return true;
  return false;
}

/* Where the configuration is: the bundle's canonical path, which the daemon reads through /proc/<our pid>/root. */
static int locate(const struct vr_call *call, struct vr_bundle *bundle) {
  if (!realpath(call->bundle ? call->bundle : ".", bundle->path)) return -errno;
  const char *config = call->config ? call->config : "config.json";
  const char *slash = strrchr(config, '/');
  const char *name = slash ? slash + 1 : config;
  if (!*name || strlen(name) > NAME_MAX) return -EINVAL;
  strcpy(bundle->name, name);
  if (!call->config) {
    strcpy(bundle->directory, bundle->path);
    return 0;
  }
  /* crun takes --config from the current directory, not from the bundle. */
  char above[PATH_MAX] = ".";
  if (slash && (size_t)snprintf(above, sizeof above, "%.*s/", (int)(slash - config), config) >= sizeof above)
    return -ENAMETOOLONG;
  return realpath(above, bundle->directory) ? 0 : -errno;
}

/* Searches the rest of a configuration that is longer than the maximum, in pieces that overlap by more than a mark. */
static bool rest_asks(int fd, off_t begin) {
  char window[64u << 10];
  const off_t overlap = 64;
  for (off_t at = begin - overlap;;) {
    ssize_t got = pread(fd, window, sizeof window, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= overlap) return false;
    if (vr_bundle_asks(window, (size_t)got)) return true;
    at += got - overlap;
  }
}

/* Errors that the low-level runtime meets as well, and reports itself. With any other it might start a container whose
 * configuration we have not read. */
static bool is_its_own_to_say(int error) {
  return error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES || error == EPERM ||
         error == ELOOP || error == ENAMETOOLONG || error == EINVAL;
}

static int unreadable(const struct vr_bundle *bundle, int error, char *text) {
  if (is_its_own_to_say(error)) return 0;
  return vr_say(text, error, "cannot read %s/%s: %s", bundle->directory, bundle->name, vr_reason(error));
}

static int read_config(int fd, struct vr_bundle *bundle, char *text) {
  struct stat status;
  if (fstat(fd, &status)) return unreadable(bundle, errno, text);
  if (S_ISDIR(status.st_mode)) return 0;
  if (!S_ISREG(status.st_mode))
    return vr_say(text, EINVAL, "%s/%s is not a regular file: put the configuration itself there", bundle->directory,
                  bundle->name);
  bundle->mode = status.st_mode & 07777;
  bundle->uid = status.st_uid;
  bundle->gid = status.st_gid;
  ssize_t got = vr_read_all(fd, VR_BODY_BYTES_MAX, UINT64_MAX, &bundle->json);
  if (got < 0) return unreadable(bundle, (int)-got, text);
  bundle->json_bytes = (size_t)got;
  bool asks = vr_bundle_asks(bundle->json, bundle->json_bytes);
  if (bundle->json_bytes <= VR_BODY_BYTES_MAX) return asks;
  if (!asks && !rest_asks(fd, (off_t)bundle->json_bytes)) return 0;
  return vr_say(
      text, E2BIG,
      "%s/%s has %lld bytes; the maximum for a container with a slice is %u: shorten its environment or mounts",
      bundle->directory, bundle->name, (long long)status.st_size, VR_BODY_BYTES_MAX);
}

int vr_bundle_read(const struct vr_call *call, struct vr_bundle *ret_bundle, char *text) {
  *ret_bundle = (struct vr_bundle){0};
  int error = locate(call, ret_bundle);
  if (error) return unreadable(ret_bundle, -error, text);
  char path[PATH_MAX + NAME_MAX + 2];
  snprintf(path, sizeof path, "%s/%s", ret_bundle->directory, ret_bundle->name);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe in its place must not hold us */
  fd = fd < 0 ? -errno : vr_above_stdio(fd);
  int result = fd < 0 ? unreadable(ret_bundle, -fd, text) : read_config(fd, ret_bundle, text);
  if (fd >= 0) close(fd);
  if (result <= 0) {
    free(ret_bundle->json);
    ret_bundle->json = NULL;
  }
  return result;
}

static int write_file(int fd, const struct vr_bundle *bundle, const char *json, size_t json_bytes) {
  int error = vr_write_all(fd, json, json_bytes);
  if (error) return error;
  struct stat status;
  if (fstat(fd, &status)) return -errno;
  /* Where that is not allowed the file stays ours; the low-level runtime that reads it is ours too. */
  bool is_owner_kept = status.st_uid == bundle->uid && status.st_gid == bundle->gid;
  if (!is_owner_kept && fchown(fd, bundle->uid, bundle->gid) && errno != EPERM && errno != EINVAL) return -errno;
  return fchmod(fd, bundle->mode) ? -errno : 0; /* after chown, which clears bits */
}

int vr_bundle_write(const struct vr_bundle *bundle, const char *json, size_t json_bytes, char *text) {
  /* By rename, so that a reader sees the old file or the new one. A symbolic link in its place becomes a file: what it
   * points to may be shared by other bundles and stays as it is. */
  int error = 0, fd = -1;
  char temporary[64];
  snprintf(temporary, sizeof temporary, ".vgpu-config-%d", (int)getpid());
  int directory = open(bundle->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  directory = directory < 0 ? -errno : vr_above_stdio(directory);
  if (directory < 0) {
    error = directory;
  } else {
    unlinkat(directory, temporary, 0); /* of an earlier process with our id that was killed */
    fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    fd = fd < 0 ? -errno : vr_above_stdio(fd);
    error = fd < 0 ? fd : write_file(fd, bundle, json, json_bytes);
    if (fd >= 0) close(fd);
    if (!error && renameat(directory, temporary, directory, bundle->name)) error = -errno;
    if (error) unlinkat(directory, temporary, 0);
    close(directory);
  }
  if (!error) return 0;
  return vr_say(text, -error, "cannot write %s/%s: %s", bundle->directory, bundle->name, vr_reason(-error));
}
