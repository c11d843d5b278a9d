/*
 * strict_memory.c - the strict look at memory (base/strict.h): ranges beyond their allocation, memory that was freed.
 * Called where a program names memory: copies, memsets, launches, frees.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/base/strict.h"
#include <stdio.h>
#include <string.h>

static void tell_memory(uint64_t address, const char *wrong) {
  sim_strict_tell("device memory", (const void *)(uintptr_t)address, wrong);
}

bool sim_strict_range(uint64_t address, uint64_t bytes) {
  struct sim_allocation allocation;
  if (bytes == 0 || sim_memory_covers(address, bytes, &allocation)) return true;
  if (sim_memory_find(address, &allocation)) {
    if (allocation.kind != CU_MEMORYTYPE_DEVICE) return true;
    char wrong[128];
    snprintf(wrong, sizeof wrong, "%llu bytes from there go beyond the allocation of %llu bytes at %p",
             (unsigned long long)bytes, (unsigned long long)allocation.bytes, (void *)(uintptr_t)allocation.base);
    tell_memory(address, wrong);
    return false;
  }
  if (!sim_strict_was_freed(address)) return true;
  tell_memory(address, "used after it was freed");
  return false;
}

void sim_strict_words(const void *words, uint64_t bytes) {
  struct sim_allocation allocation;
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const char *)words + at, sizeof word);
    if (word && sim_strict_was_freed(word) && !sim_memory_find(word, &allocation))
      tell_memory(word, "an argument of a kernel, after it was freed");
  }
}

void sim_strict_free_refused(CUdeviceptr pointer) {
  struct sim_allocation allocation;
  if (sim_memory_find(pointer, &allocation))
    tell_memory(pointer, allocation.base == pointer ? "freed by a call that is not for it" : "freed from its middle");
  else
    tell_memory(pointer, sim_strict_was_freed(pointer) ? "freed twice" : "freed, and was never allocated");
}
