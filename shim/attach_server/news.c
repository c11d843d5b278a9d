/* news.c - the news for Python: puts them into its queue and wakes it. Locked: all under attach_server.c's mutex. */
#include "attach_server/state.h"

void vg_news_wake_python(struct vg_attach_server *server) {
  server->untold = 0;
  vg_prim_eventfd_ring(server->news_fd);
}

void vg_news_tell(struct vg_attach_server *server, const struct vg_attach_server_news *news) {
  vg_queue_put(&server->queue, news);
  /* Python's turn is when no program has attached for a moment, or many have their answers. */
  if (news->kind == VG_ATTACH_SERVER_ATTACHED) {
    server->attached_ns = vg_prim_now_ns();
    if (!server->untold) server->untold_since_ns = server->attached_ns;
    if (++server->untold < VG_UNTOLD_MAX) return;
  }
  vg_news_wake_python(server);
}

void vg_news_hand_over(struct vg_attach_server *server, uint32_t listener, int socket_fd, uint64_t account) {
  struct vg_attach_server_news news = {
      .kind = VG_ATTACH_SERVER_HANDED, .listener = listener, .socket_fd = socket_fd, .account = account};
  vg_news_tell(server, &news);
}
