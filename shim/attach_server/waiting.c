/* waiting.c - see waiting.h. */
#define _GNU_SOURCE
#include "attach_server/waiting.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include "attach_server/state.h"

#define DESCRIPTORS_PART 16    /* of the daemon's descriptors that they may take */
#define SHARE_PART 4           /* of the places, for one account */
#define STRANGERS_LEAVE_PART 4 /* of the places, to accounts that may attach where they wait */
#define PLACES_LEAST 16
#define NEWS_EVERY_NS VG_NS_PER_S
#define NO_ACCOUNT UINT64_MAX /* of all whose account is not known */

void vg_waiting_init(struct vg_waiting *waiting) {
  struct rlimit limit;
  waiting->max = VG_WAITING_MAX;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / DESCRIPTORS_PART < VG_WAITING_MAX)
    waiting->max = (uint32_t)(limit.rlim_cur / DESCRIPTORS_PART);
  if (waiting->max < PLACES_LEAST) waiting->max = PLACES_LEAST;
  waiting->share = waiting->silent_share = waiting->max / SHARE_PART;
  if (waiting->silent_share > VG_WAITING_SILENT_SHARE_MAX) waiting->silent_share = VG_WAITING_SILENT_SHARE_MAX;
  for (int i = 0; i < VG_WAITING_MAX; i++) waiting->connections[i].fd = -1;
}

void vg_waiting_free(struct vg_waiting *waiting) {
  for (uint32_t i = 0; i < waiting->end; i++) vg_prim_close(waiting->connections[i].fd);
}

/* Of a process that has been looked at. Locked. */
static uint64_t find_account(const struct vg_attach_server *server, const struct vg_peer *peer) {
  uint64_t account;
  if (server->known_rules && vg_rules_account(server->known_rules, peer, &account)) return account;
  return vg_peer_responsible_uid(peer);
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

/* Returns its index. There is a place. */
static uint32_t put(struct vg_waiting *waiting, struct vg_waiting_connection connection) {
  uint32_t index = 0;
  while (index < waiting->end && waiting->connections[index].fd >= 0) index++;
  connection.since_ns = vg_prim_now_ns();
  waiting->connections[index] = connection;
  if (index == waiting->end) waiting->end++;
  waiting->count++;
  waiting->count_with_message += connection.has_message;
  return index;
}

static uint32_t count_of(const struct vg_waiting *waiting, uint64_t account, bool has_message) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < waiting->end; i++) {
    const struct vg_waiting_connection *each = &waiting->connections[i];
    count += each->fd >= 0 && each->account == account && each->has_message == has_message;
  }
  return count;
}

/* ---- places ---- */

/* The oldest silent one of an account; of any if it has none. NULL: there is none. */
static struct vg_waiting_connection *find_oldest_silent(struct vg_waiting *waiting, uint64_t account) {
  struct vg_waiting_connection *oldest = NULL;
  for (uint32_t i = 0; i < waiting->end; i++) {
    struct vg_waiting_connection *each = &waiting->connections[i];
    if (each->fd < 0 || each->has_message) continue;
    bool own = each->account == account, oldest_own = oldest && oldest->account == account;
    if (!oldest || own > oldest_own || (own == oldest_own && each->since_ns < oldest->since_ns)) oldest = each;
  }
  return oldest;
}

static void close_silent(struct vg_attach_server *server, struct vg_waiting_connection *silent) {
  uint64_t now_ns = vg_prim_now_ns();
  struct vg_attach_server_news news = {.kind = VG_ATTACH_SERVER_CLOSED,
                                       .listener = silent->listener,
                                       .socket_fd = -1,
                                       .account = silent->account,
                                       .count = count_of(&server->waiting, silent->account, false)};
  vg_prim_close(take(server, silent));
  if (now_ns < server->waiting.news_ns + NEWS_EVERY_NS) return;
  server->waiting.news_ns = now_ns;
  vg_news_tell(server, &news);
}

/* A silent one makes way where all places are taken. False: there is none. */
static bool make_place(struct vg_attach_server *server, uint64_t account) {
  if (server->waiting.count < server->waiting.max) return true;
  struct vg_waiting_connection *oldest = find_oldest_silent(&server->waiting, account);
  if (oldest) close_silent(server, oldest);
  return oldest != NULL;
}

static bool is_entitled(const struct vg_attach_server *server, uint32_t listener, uint64_t account) {
  return server->known_rules && vg_rules_find(server->known_rules, listener, account);
}

/* Beyond its share: a user's own listener can be paused, the one that containers share cannot. */
static bool may_pause(const struct vg_attach_server *server, uint32_t listener, uint64_t account) {
  return account <= UINT32_MAX && is_entitled(server, listener, account);
}

/* Of many programs that start at once on a busy host some have connected and wait for a processor: those of who may
 * attach there are not closed before their time, and no more are accepted meanwhile. */
static void add_silent(struct vg_attach_server *server, struct vg_waiting_connection connection) {
  struct vg_waiting *waiting = &server->waiting;
  bool over_share = count_of(waiting, connection.account, false) >= waiting->silent_share;
  bool pauses = over_share && may_pause(server, connection.listener, connection.account);
  if (over_share && !pauses) close_silent(server, find_oldest_silent(waiting, connection.account));
  if (!make_place(server, connection.account)) {
    vg_prim_close(connection.fd);
    return;
  }
  uint32_t index = put(waiting, connection);
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
  if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, connection.fd, &event))
    vg_prim_close(take(server, &waiting->connections[index]));
  else if (pauses)
    vg_listeners_pause(server, connection.listener);
}

void vg_waiting_add_silent(struct vg_attach_server *server, uint32_t listener, int fd, const struct vg_peer *peer) {
  pthread_mutex_lock(&server->mutex);
  uint64_t account = peer ? find_account(server, peer) : NO_ACCOUNT;
  add_silent(server, (struct vg_waiting_connection){.fd = fd, .listener = listener, .account = account});
  pthread_mutex_unlock(&server->mutex);
}

static bool has_share(const struct vg_attach_server *server, uint32_t listener, uint64_t account) {
  const struct vg_waiting *waiting = &server->waiting;
  bool is_stranger = !is_entitled(server, listener, account);
  if (is_stranger && waiting->count_with_message >= waiting->max - waiting->max / STRANGERS_LEAVE_PART) return false;
  return count_of(waiting, account, true) < waiting->share;
}

static void add_for_python(struct vg_attach_server *server, struct vg_waiting_connection connection) {
  uint32_t listener = connection.listener;
  uint64_t account = connection.account;
  if (!server->waiting.count_with_message && vg_queue_has_share(&server->queue, account)) {
    vg_news_hand_over(server, listener, connection.fd, account);
    return;
  }
  bool pauses = !has_share(server, listener, account);
  if ((pauses && !may_pause(server, listener, account)) || !make_place(server, account)) {
    vg_prim_close(connection.fd);
    return;
  }
  connection.has_message = true;
  put(&server->waiting, connection);
  if (pauses) vg_listeners_pause(server, listener);
}

void vg_waiting_add_for_python(struct vg_attach_server *server, uint32_t listener, int fd, const struct vg_peer *peer) {
  pthread_mutex_lock(&server->mutex);
  uint64_t account = peer ? find_account(server, peer) : NO_ACCOUNT;
  add_for_python(server, (struct vg_waiting_connection){.fd = fd, .listener = listener, .account = account});
  pthread_mutex_unlock(&server->mutex);
}

int vg_waiting_take_silent(struct vg_attach_server *server, uint32_t index, uint32_t *ret_listener) {
  struct vg_waiting_connection *connection = &server->waiting.connections[index];
  if (connection->fd < 0 || connection->has_message) return -1;
  *ret_listener = connection->listener;
  vg_listeners_resume(server);
  return take(server, connection);
}

/* ---- their turn ---- */

/* Of those whose accounts have a share of Python's queue left the oldest of the listener whose turn it is: one slice's
 * connections keep no other slice's waiting. NULL: none may be handed over now. */
static struct vg_waiting_connection *find_next_for_python(struct vg_attach_server *server) {
  struct vg_waiting_connection *next = NULL;
  uint32_t next_turn = 0;
  for (uint32_t i = 0; i < server->waiting.end; i++) {
    struct vg_waiting_connection *each = &server->waiting.connections[i];
    if (each->fd < 0 || !each->has_message || !vg_queue_has_share(&server->queue, each->account)) continue;
    uint32_t turn = each->listener - server->waiting.last_listener - 1; /* they go round */
    if (next && (turn > next_turn || (turn == next_turn && each->since_ns >= next->since_ns))) continue;
    next = each;
    next_turn = turn;
  }
  if (next) server->waiting.last_listener = next->listener;
  return next;
}

static void hand_over_some(struct vg_attach_server *server) {
  struct vg_waiting_connection *next;
  while (server->waiting.count_with_message && (next = find_next_for_python(server))) {
    uint32_t listener = next->listener;
    uint64_t account = next->account;
    vg_news_hand_over(server, listener, take(server, next), account);
    vg_listeners_resume(server);
  }
}

/* Returns when the next one's time is over. */
static uint64_t end_silences(struct vg_attach_server *server, uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (uint32_t i = 0; i < server->waiting.end; i++) {
    struct vg_waiting_connection *each = &server->waiting.connections[i];
    if (each->fd < 0 || each->has_message) continue;
    uint64_t deadline_ns = each->since_ns + VG_WAITING_SILENT_NS;
    if (deadline_ns <= now_ns) {
      vg_prim_close(take(server, each));
      vg_listeners_resume(server);
    } else if (deadline_ns < next_ns) {
      next_ns = deadline_ns;
    }
  }
  return next_ns;
}

uint64_t vg_waiting_advance(struct vg_attach_server *server, uint64_t now_ns) {
  hand_over_some(server);
  return end_silences(server, now_ns);
}
