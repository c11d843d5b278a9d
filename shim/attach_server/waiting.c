/* waiting.c - see waiting.h. */
#define _GNU_SOURCE
#include "attach_server/waiting.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "attach_server/state.h"

#define DESCRIPTORS_PART 16 /* of the daemon's descriptors that they may take */
#define SHARE_PART 2        /* of the places, for one user */
#define RESERVE_PART 8      /* of the places, for others than a user who may attach there: crowds of programs wait */
#define NEWS_EVERY_NS VG_NS_PER_S

void vg_waiting_init(struct vg_waiting *waiting) {
  struct rlimit limit;
  waiting->max = VG_WAITING_MAX;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / DESCRIPTORS_PART < VG_WAITING_MAX)
    waiting->max = (uint32_t)(limit.rlim_cur / DESCRIPTORS_PART);
  if (waiting->max < RESERVE_PART) waiting->max = RESERVE_PART;
  for (int i = 0; i < VG_WAITING_MAX; i++) waiting->connections[i].fd = -1;
}

void vg_waiting_free(struct vg_waiting *waiting) {
  for (uint32_t i = 0; i < waiting->end; i++) vg_prim_close(waiting->connections[i].fd);
}

bool vg_waiting_is_full(const struct vg_waiting *waiting) {
  return waiting->count >= waiting->max;
}

static uint32_t uid_of(int fd) {
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) ? UINT32_MAX : credentials.uid;
}

/* Takes the connection out of the table. Returns its descriptor. */
static int take(struct vg_attach_server *server, struct vg_waiting_connection *connection) {
  struct vg_waiting *waiting = &server->waiting;
  int fd = connection->fd;
  if (!connection->has_message) epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
  connection->fd = -1;
  waiting->count--;
  waiting->count_with_message -= connection->has_message;
  while (waiting->end && waiting->connections[waiting->end - 1].fd < 0) waiting->end--;
  return fd;
}

/* The oldest silent one of a user; of any user if it has none. NULL: there is none. */
static struct vg_waiting_connection *find_oldest_silent(struct vg_waiting *waiting, uint32_t uid) {
  struct vg_waiting_connection *oldest = NULL;
  for (uint32_t i = 0; i < waiting->end; i++) {
    struct vg_waiting_connection *each = &waiting->connections[i];
    if (each->fd < 0 || each->has_message) continue;
    bool own = each->uid == uid, oldest_own = oldest && oldest->uid == uid;
    if (!oldest || own > oldest_own || (own == oldest_own && each->since_ns < oldest->since_ns)) oldest = each;
  }
  return oldest;
}

static uint32_t count_of(const struct vg_waiting *waiting, uint32_t uid, bool has_message) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < waiting->end; i++) {
    const struct vg_waiting_connection *each = &waiting->connections[i];
    count += each->fd >= 0 && each->uid == uid && each->has_message == has_message;
  }
  return count;
}

/* A user has more silent ones than it may: one was closed. */
static void tell_closed(struct vg_attach_server *server, const struct vg_waiting_connection *closed, uint32_t count) {
  uint64_t now_ns = vg_prim_now_ns();
  if (now_ns < server->waiting.news_ns + NEWS_EVERY_NS) return;
  server->waiting.news_ns = now_ns;
  struct vg_attach_server_news news = {.kind = VG_ATTACH_SERVER_CLOSED,
                                       .listener = closed->listener,
                                       .socket_fd = -1,
                                       .uid = closed->uid,
                                       .count = count};
  vg_news_tell(server, &news);
}

/* Makes a place where a user has `count` of a share; false: it may have no more. Silent ones make way, its own first.
 */
static bool make_place(struct vg_attach_server *server, uint32_t uid, uint32_t count, uint32_t share) {
  struct vg_waiting *waiting = &server->waiting;
  if (count < share && !vg_waiting_is_full(waiting)) return true;
  struct vg_waiting_connection *oldest = find_oldest_silent(waiting, uid);
  if (!oldest || (count >= share && oldest->uid != uid)) return false;
  tell_closed(server, oldest, count_of(waiting, oldest->uid, false));
  vg_prim_close(take(server, oldest));
  return true;
}

static uint32_t lesser(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

/* Returns its index. */
static uint32_t put(struct vg_waiting *waiting, uint32_t listener, int fd, uint32_t uid, bool has_message) {
  uint32_t index = 0;
  while (index < waiting->end && waiting->connections[index].fd >= 0) index++;
  waiting->connections[index] = (struct vg_waiting_connection){
      .fd = fd, .listener = listener, .uid = uid, .has_message = has_message, .since_ns = vg_prim_now_ns()};
  if (index == waiting->end) waiting->end++;
  waiting->count++;
  waiting->count_with_message += has_message;
  return index;
}

void vg_waiting_add_silent(struct vg_attach_server *server, uint32_t listener, int fd) {
  uint32_t uid = uid_of(fd), count = count_of(&server->waiting, uid, false);
  if (!make_place(server, uid, count, lesser(server->waiting.max / SHARE_PART, VG_WAITING_SILENT_SHARE_MAX))) {
    vg_prim_close(fd);
    return;
  }
  uint32_t index = put(&server->waiting, listener, fd, uid, false);
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
  if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event))
    vg_prim_close(take(server, &server->waiting.connections[index]));
}

/* Many programs of a user who may attach there may start at once. */
static uint32_t share_for_python(const struct vg_attach_server *server, uint32_t listener, uint32_t uid) {
  bool is_entitled = server->rules && vg_rules_find(server->rules, listener, uid);
  return is_entitled ? server->waiting.max - server->waiting.max / RESERVE_PART : server->waiting.max / SHARE_PART;
}

void vg_waiting_add_for_python(struct vg_attach_server *server, uint32_t listener, int fd) {
  uint32_t uid = uid_of(fd), count = count_of(&server->waiting, uid, true);
  if (!server->waiting.count_with_message && vg_queue_has_share(&server->queue, uid))
    vg_news_hand_over(server, listener, fd, uid);
  else if (make_place(server, uid, count, share_for_python(server, listener, uid)))
    put(&server->waiting, listener, fd, uid, true);
  else
    vg_prim_close(fd);
}

int vg_waiting_take_silent(struct vg_attach_server *server, uint32_t index, uint32_t *ret_listener) {
  struct vg_waiting_connection *connection = &server->waiting.connections[index];
  if (connection->fd < 0 || connection->has_message) return -1;
  *ret_listener = connection->listener;
  return take(server, connection);
}

static void hand_over(struct vg_attach_server *server, struct vg_waiting_connection *connection) {
  uint32_t listener = connection->listener, uid = connection->uid;
  vg_news_hand_over(server, listener, take(server, connection), uid);
}

/* Of those whose users have a share of Python's queue left the oldest of the listener whose turn it is: one slice's
 * connections keep no other slice's waiting. NULL: none may be handed over now. */
static struct vg_waiting_connection *find_next_for_python(struct vg_attach_server *server) {
  struct vg_waiting_connection *next = NULL;
  uint32_t next_turn = 0;
  for (uint32_t i = 0; i < server->waiting.end; i++) {
    struct vg_waiting_connection *each = &server->waiting.connections[i];
    if (each->fd < 0 || !each->has_message || !vg_queue_has_share(&server->queue, each->uid)) continue;
    uint32_t turn = each->listener - server->waiting.last_listener - 1; /* they go round */
    if (next && (turn > next_turn || (turn == next_turn && each->since_ns >= next->since_ns))) continue;
    next = each;
    next_turn = turn;
  }
  if (next) server->waiting.last_listener = next->listener;
  return next;
}

/* Returns when the next one's time is over. */
static uint64_t end_silences(struct vg_attach_server *server, uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (uint32_t i = 0; i < server->waiting.end; i++) {
    struct vg_waiting_connection *each = &server->waiting.connections[i];
    if (each->fd < 0 || each->has_message) continue;
    uint64_t deadline_ns = each->since_ns + VG_WAITING_SILENT_NS;
    if (deadline_ns <= now_ns)
      vg_prim_close(take(server, each));
    else if (deadline_ns < next_ns)
      next_ns = deadline_ns;
  }
  return next_ns;
}

uint64_t vg_waiting_advance(struct vg_attach_server *server, uint64_t now_ns) {
  struct vg_waiting_connection *next;
  while (server->waiting.count_with_message && (next = find_next_for_python(server))) hand_over(server, next);
  return end_silences(server, now_ns);
}
