/*
 * report.c - what vgpu-simd reports to the outside: logs of each device and the state page (read by the client library
 * and NVML). Called by engine.c for every portion of SM time and by main.c after every round.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(SIM_COPY_ENGINES == SIM_COPY_DIRECTIONS, "an engine for each direction");

static int page_open(int directory) {
  unlinkat(directory, SIM_PAGE_NAME, 0); /* an old one may still be mapped somewhere */
  int fd = openat(directory, SIM_PAGE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return -errno;
  if (ftruncate(fd, sizeof(struct sim_page)) < 0) return -errno;
  server.page = mmap(NULL, sizeof(struct sim_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  server.page_fd_readonly = openat(directory, SIM_PAGE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  return server.page == MAP_FAILED || server.page_fd_readonly < 0 ? -errno : 0;
}

static int logs_open(int directory) {
  int rc = 0;
  for (uint32_t i = 0; rc == 0 && i < server.config.device_count; i++) {
    rc = log_open(directory, "busy", i, &server.devices[i].log);
    if (rc == 0) rc = log_open(directory, "links", i, &server.devices[i].link_log);
  }
  return rc;
}

static void page_fill(void) {
  struct sim_page *page = server.page;
  page->server_pid = getpid();
  page->device_count = server.config.device_count;
  page->started_ns = vg_prim_now_ns();
  page->launch_cost_ns = server.config.launch_cost_ns;
  page->slice_ns = server.config.slice_ns;
  page->switch_ns = server.config.switch_ns;
  page->link_bytes_per_us = server.config.link_bytes_per_us;
  memcpy(page->model, server.config.model, sizeof page->model);
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    struct sim_page_device *shown = &page->devices[i];
    const struct config_device *device = &server.config.devices[i];
    memcpy(shown->name, device->name, sizeof shown->name);
    memcpy(shown->uuid, device->uuid, sizeof shown->uuid);
    shown->sm_count = device->sm_count;
    shown->pci_bus = SIM_PCI_BUS_FIRST + (device->parent ? device->parent - 1 : i);
    shown->parent = device->parent;
    shown->number = device->number;
    shown->slices = device->slices;
    shown->nvlink_group = device->nvlink_group;
    shown->compute_major = device->compute_major;
    shown->compute_minor = device->compute_minor;
    if (device->instances[0]) page->modes |= SIM_MODE_MIG << 2 * i;
    shown->memory_bytes = device->memory_bytes;
    shown->context_bytes = server.config.context_bytes;
    server.devices[i].changed = true;
  }
  page->version = SIM_WIRE_VERSION;
  VG_STORE(&page->magic, SIM_WIRE_MAGIC);
}

int report_open(int directory) {
  int rc = page_open(directory);
  if (rc == 0) rc = logs_open(directory);
  if (rc == 0) {
    page_fill();
    report_page();
  }
  return rc;
}

static void open_close(struct device *device) {
  if (device->open.pid && device->open.end_ns > device->open.begin_ns)
    log_add(&device->log, &device->open, sizeof device->open);
  device->open.pid = 0;
}

void report_busy(struct device *device, const struct context *context, uint64_t begin_ns, uint64_t end_ns) {
  struct sim_busy *open = &device->open;
  bool joins = open->pid == context->process->pid && open->context == context->id &&
               begin_ns - device->open_end_ns <= BUSY_GAP_NS && end_ns - open->begin_ns <= BUSY_JOIN_NS;
  if (!joins) {
    open_close(device);
    *open = (struct sim_busy){begin_ns, begin_ns, context->process->pid, context->id};
  }
  open->end_ns += end_ns - begin_ns;
  device->open_end_ns = end_ns;
  device->busy_ns += end_ns - begin_ns;
  context->process->busy_ns[device->index] += end_ns - begin_ns;
  device->changed = true;
}

void report_work(struct device *device, const struct sim_command *command) {
  if (command->op == SIM_OP_KERNEL) {
    device->launches++;
    device->launch_ns += command->cost_ns;
    device->flops += (double)command->amount;
  } else {
    device->copy_ns += command->cost_ns;
    device->copy_bytes[command->engine] += command->amount;
  }
  device->changed = true;
}

void report_round(uint64_t now_ns, bool everything) {
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    struct device *device = &server.devices[i];
    if (everything || now_ns > device->open_end_ns + BUSY_JOIN_NS) open_close(device);
    for (uint32_t j = 0; j < SIM_LINKS; j++) link_log_round(&device->own_links[j], now_ns, everything);
    log_write_due(&device->log, now_ns, everything);
    log_write_due(&device->link_log, now_ns, everything);
  }
  report_page();
}

static void page_processes(struct sim_page_device *shown, const struct device *device) {
  uint32_t count = 0;
  for (struct process *process = server.processes; process; process = process->next) {
    uint32_t contexts =
        process->dead || process->checkpoint == CHECKPOINT_SAVED ? 0 : process->context_count[device->index];
    process->shown[device->index] = NULL;
    if (contexts == 0 || count == SIM_PROCESSES_MAX) continue;
    struct sim_page_process *entry = &shown->processes[count++];
    process->shown[device->index] = entry;
    entry->pid = process->pid;
    entry->contexts = contexts;
    entry->used_bytes = process->used_bytes[device->index];
    entry->busy_ns = process->busy_ns[device->index];
    memcpy(entry->program, process->program, sizeof entry->program);
  }
  for (uint32_t i = count; i < shown->process_count; i++) shown->processes[i].pid = 0;
  shown->process_count = count;
}

/* A process that has run since is awake. */
static void page_busy(const struct device *device) {
  for (struct process *process = server.awake; process; process = process->next_awake) {
    struct sim_page_process *entry = process->shown[device->index];
    if (entry) entry->busy_ns = process->busy_ns[device->index];
  }
}

void report_page(void) {
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    struct device *device = &server.devices[i];
    struct sim_page_device *shown = &server.page->devices[i];
    if (!device->changed) continue;
    device->changed = false;
    VG_STORE_RELAXED(&shown->sequence, shown->sequence + 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    VG_STORE_RELAXED(&shown->used_bytes, device->used_bytes);
    shown->time_slice = device->time_slice;
    shown->busy_ns = device->busy_ns;
    shown->copy_busy_ns = device->copy_busy_ns +
                          (uint64_t)(device->link_ns[SIM_ENGINE_TO_DEVICE] + device->link_ns[SIM_ENGINE_FROM_DEVICE]);
    shown->most_bytes = device->most_bytes;
    shown->most_launches = device->most_launches;
    shown->launches = device->launches;
    shown->launch_ns = device->launch_ns;
    shown->copy_ns = device->copy_ns;
    shown->flops = device->flops;
    memcpy(shown->copy_bytes, device->copy_bytes, sizeof shown->copy_bytes);
    shown->decided_ns = device->sm_ns;
    if (device->crowd_changed)
      page_processes(shown, device);
    else
      page_busy(device);
    device->crowd_changed = false;
    VG_STORE(&shown->sequence, shown->sequence + 1);
  }
}
