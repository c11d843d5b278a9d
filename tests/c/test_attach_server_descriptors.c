/*
 * test_attach_server_descriptors.c - the attach thread in a daemon that may have few descriptors: what is prepared or
 * waits takes a small part of them, and is given up before a process is turned away.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "attach_server_node.h"

#define FEW 256
#define PART (FEW / 16)

static void set_limit(rlim_t most) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = most;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static int open_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = -3; /* ".", ".." and the folder itself */
  CHECK(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

static uint32_t spare_sets(struct node *node) {
  struct vg_spare_pages *spare = &node->server->spare;
  pthread_mutex_lock(&spare->mutex);
  uint32_t count = spare->count;
  pthread_mutex_unlock(&spare->mutex);
  return count;
}

static void await_spares(struct node *node, uint32_t sets) {
  uint64_t limit_ns = vg_prim_now_ns() + DEADLINE_NS;
  while (spare_sets(node) < sets) {
    CHECK(vg_prim_now_ns() < limit_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
}

static void spare_pages_take_a_part_of_the_descriptors(void) {
  struct node node;
  open_node(&node);
  int before = open_descriptors();
  load(&node, geteuid(), MANY);
  await_spares(&node, PART / 3);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  CHECK(spare_sets(&node) == PART / 3);
  CHECK(open_descriptors() - before <= PART);
  close_node(&node);
}

static void silent_connections_take_a_part_of_the_descriptors(void) {
  struct node node;
  open_node(&node);
  enum { SILENT = 2 * PART };
  int peers[SILENT];
  for (int i = 0; i < SILENT; i++) peers[i] = call(&node);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  vg_attach_server_lock(node.server);
  CHECK(node.server->waiting.count == PART / 4); /* of one user */
  vg_attach_server_unlock(node.server);
  struct vg_attach_server_news news = next_news(&node);
  CHECK(news.kind == VG_ATTACH_SERVER_CLOSED && news.account == geteuid() && news.count == PART / 4);
  for (int i = 0; i < SILENT; i++) close(peers[i]);
  close_node(&node);
}

static int ask(const struct node *node) {
  struct vg_attach_request request = first_attach();
  request.resume = VG_ATTACH_QUERY; /* for Python */
  int fd = call(node);
  CHECK(send(fd, &request, sizeof request, 0) == sizeof request);
  return fd;
}

/* A silent one beside each message made way for it, so that messages took all places. */
static void a_stranger_has_its_share_whatever_it_sends(void) {
  struct node node;
  open_node(&node);
  enum { PAIRS = 2 * PART };
  int peers[2 * PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    peers[2 * i] = call(&node);
    peers[2 * i + 1] = ask(&node);
  }
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  vg_attach_server_lock(node.server);
  CHECK(node.server->waiting.count_with_message <= PART / 4);
  vg_attach_server_unlock(node.server);
  for (int i = 0; i < 2 * PAIRS; i++) close(peers[i]);
  close_node(&node);
}

/* Where Python takes each of them, rules are cleared again and again. */
static void a_crowd_that_may_attach_waits_and_is_heard(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  CHECK(vg_attach_server_load(node.server, NULL) == 0);
  enum { CROWD = 6 * PART };
  int peers[CROWD];
  for (int i = 0; i < CROWD; i++) peers[i] = ask(&node);
  for (int i = 0; i < CROWD; i++) {
    struct vg_attach_server_news news = next_news(&node);
    CHECK(news.kind == VG_ATTACH_SERVER_HANDED && news.account == geteuid());
    drop(&node, &news);
  }
  for (int i = 0; i < CROWD; i++) close(peers[i]);
  close_node(&node);
}

/* On a busy host programs have connected and wait for a processor to send their message. */
static void a_crowd_that_may_attach_is_not_closed_while_it_is_silent(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  enum { CROWD = 3 * PART };
  int peers[CROWD];
  struct vg_attach_request request = first_attach();
  request.resume = VG_ATTACH_QUERY;
  for (int i = 0; i < CROWD; i++) peers[i] = call(&node);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  for (int i = 0; i < CROWD; i++) CHECK(send(peers[i], &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
  for (int i = 0; i < CROWD; i++) {
    struct vg_attach_server_news news = next_news(&node);
    CHECK(news.kind == VG_ATTACH_SERVER_HANDED);
    drop(&node, &news);
  }
  for (int i = 0; i < CROWD; i++) close(peers[i]);
  close_node(&node);
}

/* Not one is free for the connection itself. */
static void spare_pages_are_given_up_for_a_process(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  await_spares(&node, PART / 3);
  vg_attach_server_lock(node.server); /* nothing is accepted before all descriptors are taken */
  int peer = attach(&node), taken[FEW], count = 0, fds[3];
  while ((taken[count] = fcntl(peer, F_DUPFD_CLOEXEC, 0)) >= 0) count++;
  vg_attach_server_unlock(node.server);
  struct vg_attach_reply reply;
  struct vg_attach_server_news news = next_news(&node);
  CHECK(news.kind == VG_ATTACH_SERVER_ATTACHED);
  for (int i = 0; i < count; i++) close(taken[i]);
  receive(peer, &reply, fds);
  CHECK(reply.status == VG_ATTACH_OK);
  for (int i = 0; i < 3; i++) close(fds[i]);
  drop(&node, &news);
  close(peer);
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED);
  close_node(&node);
}

static int table_places(void) {
  FILE *status = fopen("/proc/self/status", "r");
  char line[256];
  int places = 0;
  CHECK(status);
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, "FDSize:", 7)) places = atoi(line + 7);
  fclose(status);
  return places;
}

/* The kernel waits each time that it makes a larger one. */
static void the_table_of_descriptors_is_wide_from_the_start(void) {
  struct node node;
  open_node(&node);
  CHECK(table_places() >= 8 * FEW);
  close_node(&node);
}

int main(void) {
  set_limit(8 * FEW);
  RUN(the_table_of_descriptors_is_wide_from_the_start);
  set_limit(FEW);
  RUN(spare_pages_take_a_part_of_the_descriptors);
  RUN(silent_connections_take_a_part_of_the_descriptors);
  RUN(a_stranger_has_its_share_whatever_it_sends);
  RUN(a_crowd_that_may_attach_waits_and_is_heard);
  RUN(a_crowd_that_may_attach_is_not_closed_while_it_is_silent);
  RUN(spare_pages_are_given_up_for_a_process);
  return 0;
}
