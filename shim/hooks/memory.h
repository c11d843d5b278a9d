/*
 * memory.h - how an allocation goes through the ledger; shared by the files of this folder.
 *
 *   struct vg_charge charge;
 *   if (!vg_charge_begin(&charge, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   if (!charge.device) return REAL(...)(out, ...);              // nothing is accounted here
 *   result = REAL(...)(&local, ...);
 *   if (result) vg_charge_cancel(&charge);
 *   else if (!vg_charge_commit(&charge, local, bytes)) { REAL(free)(local); result = CUDA_ERROR_OUT_OF_MEMORY; }
 *   else *out = local;                                            // untouched in all other cases
 */
#ifndef VG_HOOK_MEMORY_H
#define VG_HOOK_MEMORY_H
#include "context/context.h"
#include "ledger/records.h"

struct vg_charge {
  struct vg_device *device; /* NULL: pass on */
  struct vg_record *record;
  struct vg_record *chunk; /* prepared for a small allocation that may open a chunk */
  uint64_t reserved_bytes;
  bool blind; /* a small one without credit for a chunk: it must fit into a chunk that is open; one at a time */
};

bool vg_charge_begin(struct vg_charge *charge, uint64_t bytes);
bool vg_charge_commit(struct vg_charge *charge, CUdeviceptr address, uint64_t bytes);
void vg_charge_cancel(struct vg_charge *charge);
uint64_t vg_charge_granule(const struct vg_device *device);
uint64_t vg_charge_round(uint64_t bytes, uint64_t granule); /* up; saturates */
/* Returns what a record holds to the ledger and frees it. */
void vg_charge_return(struct vg_record *record);
/* Everything that a context held is gone (context.c, after the driver destroyed it). */
void vg_charge_context_gone(struct vg_device *device, CUcontext context);
/* What the driver holds in pools of a device may have changed: looks and follows (vg_memory_refresh). */
void vg_charge_refresh(struct vg_device *device);
void vg_charge_forked_child(void);

/* A launch or an upload of a graph, by the driver's function; the graph's memory is paid for first. OUT_OF_MEMORY where
 * there is no room for it. Where vg_graphs_with_memory is 0 it does no more than that call. */
typedef CUresult vg_graph_call(CUgraphExec exec, CUstream stream);
extern uint32_t vg_graphs_with_memory;
CUresult vg_graph_paid_call(CUgraphExec exec, CUstream stream, vg_graph_call *call);

/* A graph has been launched: a gang's devices count the collectives in it. */
void vg_graph_launched(const struct vg_device *device, CUgraphExec exec);

/* ---- among the files of this folder ---- */
/* The calling thread's capture mode: our own calls spoil no capture in mode RELAXED. False: it is as it was. */
bool vg_exchange_mode(CUstreamCaptureMode *mode);
/* Whether so much fits into what a context or a pool has taken of the device, as far as can be known. */
bool vg_room_by_address(const struct vg_device *device, CUcontext context, uint64_t bytes);
bool vg_room_in_pool(const struct vg_device *device, CUmemoryPool pool, uint64_t held_bytes, uint64_t bytes);
extern uint32_t vg_pool_frees_begun, vg_pool_frees_done; /* of memory of pools */
void vg_pool_refresh(struct vg_device *device);
void vg_graph_refresh(struct vg_device *device);
void vg_array_gone(const struct vg_record *record); /* what is not charged as such */
void vg_sparse_gone(uint64_t array);                /* nothing is mapped into it any more */
void vg_sparse_forked_child(void);
#define VG_ARRAY_DEFERRED UINT32_MAX /* count of an array's record: memory is mapped into all of it at once */
void vg_graph_record_gone(const struct vg_record *record);
/* References to physical memory. False: it is not known here. */
bool vg_handle_enter(CUmemGenericAllocationHandle handle);
void vg_handle_leave(CUmemGenericAllocationHandle handle);
CUresult vg_handle_retain(CUmemGenericAllocationHandle *handle, void *addr); /* as the program's own calls */
CUresult vg_handle_release(CUmemGenericAllocationHandle handle);
/* Around the driver's call and its account: of what ends memory without its handle, of what makes handles, and of what
 * uses one that may be made or let go at this moment. What they return is for vg_handles_done(). */
unsigned vg_handles_begin_end(void);
unsigned vg_handles_begin_make(void);
unsigned vg_handles_begin_alone(void);
void vg_handles_done(unsigned entered);
void vg_handle_forked_child(void);
void vg_multicast_gone(uint64_t object); /* lets go what is bound, if it is such an object */
void vg_multicast_forked_child(void);
/* What several handles stand for. bytes of device are charged to it when it is made; released with its last one. */
struct vg_physical *vg_physical_new(struct vg_device *device, uint64_t bytes); /* with one reference, or NULL */
void vg_physical_leave(struct vg_physical *physical);
void vg_physical_exported(struct vg_physical *physical, int fd);
/* A reference more to what this process has exported, or NULL for what others have. False: there is no room for it. */
bool vg_physical_imported(int fd, struct vg_physical **ret_physical);
struct vg_device *vg_physical_device(const struct vg_physical *physical);
void vg_physical_forked_child(void);
void vg_pool_forked_child(void);
void vg_limit_forked_child(void);
void vg_graph_forked_child(void);
void vg_array_forked_child(void);

#endif
