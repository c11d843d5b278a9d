/* rules.c - see rules.h. The counting is that of vgpud/core/slices/bounds.py: which(). */
#include "attach_server/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *copy(const void *from, size_t count, size_t bytes, bool *ret_good) {
  void *made = malloc(count * bytes + 1);
  if (!made)
    *ret_good = false;
  else if (count)
    memcpy(made, from, count * bytes);
  return made;
}

static bool has_valid_indices(const struct vg_attach_server_rules *given) {
  for (uint32_t i = 0; i < given->user_count; i++)
    if (given->users[i].table >= given->table_count) return false;
  for (uint32_t i = 0; i < given->slice_count; i++)
    if (given->slices[i]->reply.device_count > VG_DEVICES_MAX || !given->slices[i]->reply.device_count) return false;
  for (uint32_t i = 0; i < given->entry_count; i++) {
    const struct vg_attach_server_entry *entry = &given->entries[i];
    if (entry->slice >= given->slice_count || entry->draw_count > VG_ATTACH_SERVER_DRAWS_MAX) return false;
    for (uint32_t j = 0; j < entry->draw_count; j++)
      if (entry->draws[j].user >= given->user_count) return false;
  }
  return true;
}

static bool copy_slices(struct vg_rules *made, const struct vg_attach_server_rules *given) {
  made->slices = malloc(given->slice_count * sizeof *made->slices + 1);
  if (!made->slices) return false;
  for (uint32_t i = 0; i < given->slice_count; i++) made->slices[i] = *given->slices[i];
  made->slice_count = given->slice_count;
  return true;
}

static bool copy_containers(struct vg_rules *made, const struct vg_attach_server_rules *given) {
  made->containers = calloc(given->container_count + 1, sizeof *made->containers);
  if (!made->containers) return false;
  for (uint32_t i = 0; i < given->container_count; i++) {
    made->containers[i] = given->containers[i];
    made->containers[i].cgroup = strdup(given->containers[i].cgroup);
    made->container_count = i + 1;
    if (!made->containers[i].cgroup) return false;
  }
  return true;
}

struct vg_rules *vg_rules_copy(const struct vg_attach_server_rules *given, int *ret_error) {
  *ret_error = -EINVAL;
  if (!has_valid_indices(given)) return NULL;
  *ret_error = -ENOMEM;
  struct vg_rules *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  bool good = true;
  made->table_count = given->table_count;
  made->user_count = given->user_count;
  made->entry_count = given->entry_count;
  made->tables = copy(given->tables, given->table_count, sizeof *made->tables, &good);
  made->users = copy(given->users, given->user_count, sizeof *made->users, &good);
  made->entries = copy(given->entries, given->entry_count, sizeof *made->entries, &good);
  if (good && copy_slices(made, given) && copy_containers(made, given)) return made;
  vg_rules_free(made);
  return NULL;
}

void vg_rules_free(struct vg_rules *rules) {
  if (!rules) return;
  for (uint32_t i = 0; i < rules->container_count; i++) free((char *)rules->containers[i].cgroup);
  free(rules->containers);
  free(rules->tables);
  free(rules->users);
  free(rules->entries);
  free(rules->slices);
  free(rules);
}

/* ---- the account of a process ---- */

static bool is_below(const char *path, int length, const char *cgroup) {
  size_t above = strlen(cgroup);
  return (size_t)length >= above && !memcmp(path, cgroup, above) && ((size_t)length == above || path[above] == '/');
}

/* As vgpud/core/slices/containers.py: container_of(). */
static const struct vg_attach_server_container *container_of(const struct vg_rules *rules, const char *cgroups) {
  const char *path;
  int length;
  for (int n = 0; vg_peer_cgroup(cgroups, n, &path, &length); n++) {
    const struct vg_attach_server_container *innermost = NULL;
    for (uint32_t i = 0; i < rules->container_count; i++) {
      const struct vg_attach_server_container *known = &rules->containers[i];
      if (!is_below(path, length, known->cgroup)) continue;
      if (!innermost || strlen(known->cgroup) > strlen(innermost->cgroup)) innermost = known;
    }
    if (innermost) return innermost;
  }
  return NULL;
}

bool vg_rules_account(const struct vg_rules *rules, const struct vg_peer *peer, uint64_t *ret_account) {
  if (rules->container_count && !peer->cgroups[0]) return false;
  const struct vg_attach_server_container *container = container_of(rules, peer->cgroups);
  *ret_account = container ? container->account : peer->uid;
  return container || peer->own_users;
}

/* ---- places ---- */

const struct vg_attach_server_entry *vg_rules_find(const struct vg_rules *rules, uint32_t listener, uint64_t account) {
  for (uint32_t i = 0; i < rules->entry_count; i++)
    if (rules->entries[i].account == account && rules->entries[i].listener == listener) return &rules->entries[i];
  return NULL;
}

const struct vg_attach_server_entry *vg_rules_find_slice(const struct vg_rules *rules, uint64_t slice_id,
                                                         uint64_t account) {
  for (uint32_t i = 0; i < rules->entry_count; i++) {
    const struct vg_attach_server_entry *entry = &rules->entries[i];
    if (entry->account == account && rules->slices[entry->slice].slice_id == slice_id) return entry;
  }
  return NULL;
}

/* How much of a further `cost` places lies beyond a user's small part. */
static int64_t large_part(const struct vg_attach_server_user *user, int64_t cost) {
  int64_t small = user->small > 0 ? user->small : 0;
  return cost > small ? cost - small : 0;
}

bool vg_rules_have_place(const struct vg_rules *rules, const struct vg_attach_server_entry *entry) {
  for (uint32_t i = 0; i < entry->draw_count; i++) {
    const struct vg_attach_server_user *user = &rules->users[entry->draws[i].user];
    const struct vg_attach_server_table *table = &rules->tables[user->table];
    int64_t cost = entry->draws[i].cost, large = large_part(user, cost);
    if (table->free < cost || user->free < cost || (large && table->free_for_large < large)) return false;
  }
  return true;
}

void vg_rules_take_place(struct vg_rules *rules, const struct vg_attach_server_entry *entry) {
  for (uint32_t i = 0; i < entry->draw_count; i++) {
    struct vg_attach_server_user *user = &rules->users[entry->draws[i].user];
    struct vg_attach_server_table *table = &rules->tables[user->table];
    int64_t cost = entry->draws[i].cost;
    table->free_for_large -= large_part(user, cost);
    table->free -= cost;
    user->free -= cost;
    user->small -= cost;
  }
}
