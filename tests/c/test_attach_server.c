/*
 * test_attach_server.c - the attach thread with peers over real sockets: what it answers by the rules, what it hands
 * over with the message unread, and callers that change everything meanwhile, as Python does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach_server_node.h"

/* ---- answers ---- */

static void a_plain_attach_is_answered(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  for (int round = 0; round < 20; round++) { /* with spare pages and without */
    int fd = attach(&node), fds[3];
    struct vg_attach_reply reply;
    receive(fd, &reply, fds);
    struct vg_attach_server_news news = next_news(&node);
    CHECK(news.kind == VG_ATTACH_SERVER_ATTACHED && news.slice_id == SLICE && news.account == geteuid());
    CHECK(news.pid == getpid() && news.process_id == reply.process_id && reply.status == VG_ATTACH_OK);
    CHECK(reply.process_id == 100 + (uint64_t)round);
    struct vg_process_stats stats;
    CHECK(vg_arbiter_process_stats(node.arbiter, reply.process_id, &stats) == 0);
    CHECK(mmap(NULL, 2 * VG_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED);
    CHECK(ftruncate(fds[1], 0) != 0 && ftruncate(fds[0], 0) != 0);
    for (int i = 0; i < 3; i++) close(fds[i]);
    drop(&node, &news);
    close(fd);
  }
  close_node(&node);
}

static void without_a_rule_or_a_place_it_is_handed_over(void) {
  struct node node;
  open_node(&node);
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  load(&node, geteuid() + 1, MANY); /* another user */
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  load(&node, geteuid(), 2);
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED);
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED);
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  vg_attach_server_load(node.server, NULL);
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  close_node(&node);
}

static void places_that_are_not_taken_yet_count_in_new_rules(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), 1);
  int first = attach(&node);
  struct pollfd entry = {.fd = first, .events = POLLIN};
  CHECK(poll(&entry, 1, 10000) == 1);
  load(&node, geteuid(), 1); /* Python does not know of it */
  vg_attach_server_forget(node.server, getpid());
  int second = attach(&node);
  expect(&node, first, VG_ATTACH_SERVER_ATTACHED);
  expect(&node, second, VG_ATTACH_SERVER_HANDED);
  close_node(&node);
}

static void a_second_connection_of_a_process_is_handed_over(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  int first = attach(&node);
  struct vg_attach_server_news news = next_news(&node);
  CHECK(news.kind == VG_ATTACH_SERVER_ATTACHED);
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  drop(&node, &news);
  close(first);
  vg_attach_server_know(node.server, getpid());
  expect(&node, attach(&node), VG_ATTACH_SERVER_HANDED);
  vg_attach_server_forget(node.server, getpid());
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED);
  close_node(&node);
}

static void nothing_is_admitted_under_the_lock(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  vg_attach_server_lock(node.server);
  int fd = attach(&node);
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  CHECK(poll(&entry, 1, 50) == 0);
  vg_attach_server_load(node.server, NULL);
  vg_attach_server_unlock(node.server);
  expect(&node, fd, VG_ATTACH_SERVER_HANDED);
  close_node(&node);
}

/* ---- hostile peers ---- */

/* Whatever is in a message, or its length: one field is not as it should be, so it is Python's to refuse, unread. */
static void other_messages_are_handed_over_unread(void) {
  struct node node;
  struct check_random random = {42};
  open_node(&node);
  load(&node, geteuid(), MANY);
  for (int round = 0; round < 300; round++) {
    struct vg_attach_request request = first_attach();
    size_t length = sizeof request;
    switch (round % 6) {
    case 0:
      request.magic ^= 1u << check_below(&random, 32);
      break;
    case 1:
      request.abi_version ^= 1u << check_below(&random, 32);
      break;
    case 2:
      request.bytes ^= 1u << check_below(&random, 32);
      break;
    case 3:
      request.resume = 1 + (uint32_t)check_below(&random, UINT32_MAX - 1);
      break;
    case 4:
      request.device_count = VG_DEVICES_MAX + 1 + (uint32_t)check_below(&random, 1000);
      break;
    default:
      length = 1 + check_below(&random, sizeof request - 1);
    }
    int fd = call(&node);
    CHECK(send(fd, &request, length, 0) == (ssize_t)length);
    struct vg_attach_server_news news = next_news(&node);
    CHECK(news.kind == VG_ATTACH_SERVER_HANDED);
    char unread[sizeof request + 1];
    CHECK(recv(news.socket_fd, unread, sizeof unread, 0) == (ssize_t)length && !memcmp(unread, &request, length));
    drop(&node, &news);
    close(fd);
  }
  close_node(&node);
}

static void a_silent_peer_delays_no_other(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  enum { SILENT = 20 };
  int silent[SILENT];
  for (int i = 0; i < SILENT; i++) silent[i] = call(&node);
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED);
  for (int i = 0; i < SILENT; i++) {
    struct pollfd entry = {.fd = silent[i]};
    CHECK(poll(&entry, 1, 10000) == 1 && entry.revents == POLLHUP); /* its time is up */
    close(silent[i]);
  }
  close_node(&node);
}

/* A user has a share of the queue, and the others come as Python takes some. */
static void what_python_does_not_take_waits_in_the_thread(void) {
  struct node node;
  open_node(&node);
  enum { CROWD = 2 * VG_QUEUE_SHARE_MAX };
  int peers[CROWD];
  vg_attach_server_lock(node.server);                       /* none is accepted before its message is there */
  for (int i = 0; i < CROWD; i++) peers[i] = attach(&node); /* no rules: all are handed over */
  vg_attach_server_unlock(node.server);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  vg_attach_server_lock(node.server);
  CHECK(node.server->queue.handed == VG_QUEUE_SHARE_MAX);
  vg_attach_server_unlock(node.server);
  for (int i = 0; i < CROWD; i++) expect(&node, peers[i], VG_ATTACH_SERVER_HANDED);
  close_node(&node);
}

/* One slice's socket is flooded, and each place that Python frees is taken at once. */
static void a_flooded_listener_keeps_no_other_waiting(void) {
  struct node node, other;
  open_node(&node);
  open_node(&other);
  vg_attach_server_unlisten(other.server, other.listener);
  CHECK(vg_attach_server_listen(node.server, other.listen_fd, &other.listener) == 0);
  enum { CROWD = 100 };
  int peers[CROWD];
  vg_attach_server_lock(node.server);
  for (int i = 0; i < CROWD; i++) peers[i] = attach(&node); /* no rules: all are handed over */
  vg_attach_server_unlock(node.server);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_MS);
  int fd = attach(&other), before = 0;
  for (uint32_t listener = 0; listener != other.listener; before++) {
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS); /* the thread fills the place */
    struct vg_attach_server_news news = next_news(&node);
    listener = news.listener;
    drop(&node, &news);
  }
  CHECK(before < VG_QUEUE_SHARE_MAX + 4);
  for (int i = 0; i < CROWD; i++) close(peers[i]);
  close(fd);
  close_node(&other);
  close_node(&node);
}

static void a_peer_that_hangs_up_leaves_nothing(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  for (int i = 0; i < 50; i++) close(call(&node));
  for (int i = 0; i < 5; i++) close(attach(&node)); /* before its answer, or after it */
  int last = attach(&node);
  struct pollfd entry = {.fd = last, .events = POLLIN};
  struct vg_attach_server_news news;
  while (!poll(&entry, 1, 10))
    if (vg_attach_server_take(node.server, &news)) drop(&node, &news);
  while (vg_attach_server_take(node.server, &news)) drop(&node, &news); /* the arbiter reads their pages */
  close(last);
  close_node(&node);
}

/* It lives, and would wait for ever, with a place that others could have. */
static void a_peer_that_cannot_be_answered_is_dropped(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), 1);
  int fd = call(&node);
  struct vg_attach_request request = first_attach();
  CHECK(shutdown(fd, SHUT_RD) == 0 && send(fd, &request, sizeof request, 0) == sizeof request);
  struct pollfd entry = {.fd = fd};
  CHECK(poll(&entry, 1, 10000) == 1 && entry.revents == POLLHUP); /* the other end is closed */
  CHECK(vg_arbiter_process_remove(node.arbiter, 100) == -ENOENT);
  expect(&node, attach(&node), VG_ATTACH_SERVER_ATTACHED); /* the only place */
  close(fd);
  close_node(&node);
}

static void untaken_news_are_closed_with_the_thread(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  int fd = attach(&node), silent = call(&node), second;
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  CHECK(poll(&entry, 1, 10000) == 1);
  second = attach(&node);
  vg_attach_server_stop(node.server);
  vg_arbiter_free(node.arbiter); /* no arbiter may read pages that go */
  node.arbiter = NULL;
  close_node(&node);
  char byte;
  struct vg_attach_reply reply;
  int fds[3];
  receive(fd, &reply, fds);
  for (int i = 0; i < 3; i++) close(fds[i]);
  CHECK(recv(fd, &byte, 1, 0) == 0);
  close(fd);
  close(silent);
  close(second);
}

/* ---- callers beside the thread ---- */

static uint32_t stop;

static void *attach_on_and_on(void *argument) {
  struct node *node = argument;
  while (!VG_LOAD(&stop)) {
    int fd = attach(node);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 1);
    close(fd);
  }
  return NULL;
}

static void rules_change_while_peers_come(void) {
  struct node node;
  open_node(&node);
  pthread_t peers[2];
  VG_STORE(&stop, 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&peers[i], NULL, attach_on_and_on, &node) == 0);
  uint64_t end_ns = vg_prim_now_ns() + 400 * VG_NS_PER_MS;
  uint32_t attached = 0, handed = 0;
  for (int round = 0; vg_prim_now_ns() < end_ns; round++) {
    if (round % 3 == 0) vg_attach_server_load(node.server, NULL);
    if (round % 3 == 1) load(&node, geteuid(), MANY);
    struct vg_attach_server_news news;
    vg_attach_server_lock(node.server);
    bool taken = vg_attach_server_take(node.server, &news);
    vg_attach_server_unlock(node.server);
    if (!taken) continue;
    attached += news.kind == VG_ATTACH_SERVER_ATTACHED;
    handed += news.kind == VG_ATTACH_SERVER_HANDED;
    drop(&node, &news);
    vg_attach_server_next_id(node.server);
    if (round % 50 == 0) {
      vg_attach_server_unlisten(node.server, node.listener);
      CHECK(vg_attach_server_listen(node.server, node.listen_fd, &node.listener) == 0);
    }
  }
  VG_STORE(&stop, 1);
  vg_attach_server_stop(node.server);
  close(node.listen_fd); /* peers that still connect are refused */
  node.listen_fd = -1;
  for (int i = 0; i < 2; i++) pthread_join(peers[i], NULL);
  struct vg_attach_server_news news;
  while (vg_attach_server_take(node.server, &news)) drop(&node, &news);
  CHECK(attached && handed);
  close_node(&node);
}

/* As beside peers that come and hang up faster than the thread serves them. */
static void python_hears_of_an_attachment_though_the_thread_is_never_idle(void) {
  struct node node;
  open_node(&node);
  load(&node, geteuid(), MANY);
  int always = vg_prim_eventfd();
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX}; /* as if it were woken, each time it looks */
  vg_prim_eventfd_ring(always);
  CHECK(epoll_ctl(node.server->epoll_fd, EPOLL_CTL_ADD, always, &event) == 0);
  int fd = attach(&node);
  struct pollfd entry = {.fd = vg_attach_server_news_fd(node.server), .events = POLLIN};
  CHECK(poll(&entry, 1, 5000) == 1);
  expect(&node, fd, VG_ATTACH_SERVER_ATTACHED);
  close(always);
  close_node(&node);
}

/* ---- the parts ---- */

static void cgroups_are_found_in_the_order_of_trust(void) {
  static const char text[] = "12:name=systemd:/last\n3:cpu,cpuacct:/cpu/c1 (deleted)\nrubbish\n5:pids:/\n0::/two/c2\n";
  static const char *const wanted[] = {"/two/c2", "/cpu/c1", "/last"};
  const char *path;
  int length;
  for (int i = 0; i < 3; i++) {
    CHECK(vg_peer_cgroup(text, i, &path, &length));
    CHECK(length == (int)strlen(wanted[i]) && !memcmp(path, wanted[i], (size_t)length));
  }
  CHECK(!vg_peer_cgroup(text, 3, &path, &length) && !vg_peer_cgroup("", 0, &path, &length));
}

static void any_text_of_cgroups_is_read_within_its_bounds(void) {
  struct check_random random = {7};
  for (int round = 0; round < 20000; round++) {
    size_t length = check_below(&random, 60);
    char *text = malloc(length + 1); /* exactly so much: the sanitizer sees a byte more */
    for (size_t i = 0; i < length; i++) text[i] = "0:/\n ab(deleted)name=,"[check_below(&random, 22)];
    text[length] = 0;
    const char *path;
    int found;
    for (int n = 0; vg_peer_cgroup(text, n, &path, &found); n++)
      CHECK(path >= text && found > 0 && path + found <= text + length && n < 60);
    free(text);
  }
}

static void a_container_is_the_innermost_that_has_the_cgroup(void) {
  struct vg_attach_server_container known[] = {{1ull << 32, "/c/outer"}, {(1ull << 32) + 1, "/c/outer/inner"}};
  struct vg_attach_server_rules given = {.container_count = 2, .containers = known};
  int error;
  struct vg_rules *rules = vg_rules_copy(&given, &error);
  CHECK(rules);
  struct vg_peer peer = {.uid = 5, .own_users = true};
  uint64_t account;
  CHECK(!vg_rules_account(rules, &peer, &account)); /* its cgroups were not read: only Python can say */
  strcpy(peer.cgroups, "0::/c/outer/inner/deep\n");
  CHECK(vg_rules_account(rules, &peer, &account) && account == (1ull << 32) + 1);
  strcpy(peer.cgroups, "0::/c/outer/innermost\n");
  CHECK(vg_rules_account(rules, &peer, &account) && account == 1ull << 32);
  strcpy(peer.cgroups, "0::/c/outermost\n");
  CHECK(vg_rules_account(rules, &peer, &account) && account == 5);
  peer.own_users = false; /* a uid of another user namespace is no account */
  CHECK(!vg_rules_account(rules, &peer, &account));
  vg_rules_free(rules);
}

static void rules_with_wrong_indices_are_refused(void) {
  struct vg_attach_server_table table = {1, 1};
  struct vg_attach_server_user user = {1, 1, 1};
  struct vg_attach_server_rules given = {.table_count = 1, .user_count = 1, .tables = &table, .users = &user};
  int error;
  CHECK(!vg_rules_copy(&given, &error) && error == -EINVAL);
  struct vg_attach_server_entry entry = {.slice = 0};
  given = (struct vg_attach_server_rules){.entry_count = 1, .entries = &entry};
  CHECK(!vg_rules_copy(&given, &error) && error == -EINVAL);
}

/* ---- places: vgpud/core/slices/bounds.py counts what is held, the thread counts down what is free ---- */

enum { USERS = 4, TABLES = 2 };

struct counted {
  int64_t capacity, own_max, held[USERS];
};

static int64_t few_of(const struct counted *table) {
  return table->capacity / 32 > 1 ? table->capacity / 32 : 1;
}

static int64_t reserved_of(const struct counted *table) {
  int64_t others = table->capacity - table->own_max, quarter = table->capacity / 4;
  return quarter < others ? quarter : others;
}

/* What users have beyond their small parts. */
static int64_t beyond(const struct counted *table) {
  int64_t sum = 0, few = few_of(table);
  for (int i = 0; i < USERS; i++) sum += table->held[i] > few ? table->held[i] - few : 0;
  return sum;
}

static int64_t total(const struct counted *table) {
  int64_t sum = 0;
  for (int i = 0; i < USERS; i++) sum += table->held[i];
  return sum;
}

/* bounds.which(): whether the user may have so many more. */
static bool core_admits(struct counted table, int who, int64_t cost) {
  table.held[who] += cost;
  if (total(&table) > table.capacity || table.held[who] > table.own_max) return false;
  return table.held[who] <= few_of(&table) || beyond(&table) <= table.capacity - reserved_of(&table);
}

static uint32_t count_refusals(struct check_random *random) {
  struct counted counted[TABLES] = {0};
  struct vg_attach_server_table tables[TABLES];
  struct vg_attach_server_user users[TABLES * USERS];
  struct vg_attach_server_entry entries[USERS] = {0};
  for (uint32_t t = 0; t < TABLES; t++) {
    struct counted *table = &counted[t];
    table->capacity = 4 + (int64_t)check_below(random, 200);
    table->own_max = table->capacity - (int64_t)check_below(random, (uint64_t)table->capacity * 3 / 4);
    for (int i = 0; i < USERS; i++)
      if (check_below(random, 2)) table->held[i] = (int64_t)check_below(random, (uint64_t)table->capacity / USERS);
    tables[t].free = table->capacity - total(table);
    tables[t].free_for_large = table->capacity - reserved_of(table) - beyond(table);
    for (uint32_t i = 0; i < USERS; i++) {
      struct vg_attach_server_user user = {t, table->own_max - table->held[i], few_of(table) - table->held[i]};
      users[t * USERS + i] = user;
      entries[i].draws[t].user = t * USERS + i;
      entries[i].draws[t].cost = t ? 3 : 1;
      entries[i].draw_count = TABLES;
    }
  }
  static const struct vg_attach_server_slice slice = {.reply = {.device_count = 1}};
  const struct vg_attach_server_slice *slices[] = {&slice};
  struct vg_attach_server_rules given = {TABLES, TABLES * USERS, USERS, 1, 0, tables, users, entries, slices, NULL};
  int error;
  struct vg_rules *rules = vg_rules_copy(&given, &error);
  CHECK(rules);
  uint32_t refused = 0;
  for (int i = 0; i < 100; i++) {
    int who = (int)check_below(random, USERS);
    bool admitted = core_admits(counted[0], who, 1) && core_admits(counted[1], who, 3);
    CHECK(vg_rules_have_place(rules, &rules->entries[who]) == admitted);
    refused += !admitted;
    if (!admitted) continue;
    vg_rules_take_place(rules, &rules->entries[who]);
    counted[0].held[who] += 1;
    counted[1].held[who] += 3;
  }
  vg_rules_free(rules);
  return refused;
}

static void places_are_counted_as_the_core_counts_them(void) {
  struct check_random random = {11};
  uint32_t refused = 0;
  for (int round = 0; round < 500; round++) refused += count_refusals(&random);
  CHECK(refused > 5000 && refused < 45000); /* of 50,000 */
}

int main(void) {
  RUN(cgroups_are_found_in_the_order_of_trust);
  RUN(any_text_of_cgroups_is_read_within_its_bounds);
  RUN(a_container_is_the_innermost_that_has_the_cgroup);
  RUN(rules_with_wrong_indices_are_refused);
  RUN(places_are_counted_as_the_core_counts_them);
  RUN(a_plain_attach_is_answered);
  RUN(without_a_rule_or_a_place_it_is_handed_over);
  RUN(places_that_are_not_taken_yet_count_in_new_rules);
  RUN(a_second_connection_of_a_process_is_handed_over);
  RUN(nothing_is_admitted_under_the_lock);
  RUN(other_messages_are_handed_over_unread);
  RUN(a_silent_peer_delays_no_other);
  RUN(what_python_does_not_take_waits_in_the_thread);
  RUN(a_flooded_listener_keeps_no_other_waiting);
  RUN(a_peer_that_hangs_up_leaves_nothing);
  RUN(a_peer_that_cannot_be_answered_is_dropped);
  RUN(untaken_news_are_closed_with_the_thread);
  RUN(rules_change_while_peers_come);
  RUN(python_hears_of_an_attachment_though_the_thread_is_never_idle);
  return 0;
}
