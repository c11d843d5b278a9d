/*
 * backing.h - host memory behind simulated device memory. Device memory is backed by the host page by page, as it is
 * touched. Code that is about to touch a range of it says so first, so that a program that fills more than the host has
 * gets an error in place of the kernel's out-of-memory killer.
 */
#ifndef VG_SIM_BACKING_H
#define VG_SIM_BACKING_H
#include "simgpu/process/process.h"

/*
 * [address, address + bytes) of device memory is about to be read or written by the host. CUDA_ERROR_OUT_OF_MEMORY: the
 * server has no host memory left for the pages of it that are not there yet; nothing is to be touched then.
 * *ret_claimed goes to sim_backing_end() once the range has been touched; it is 0 after an error. Any thread.
 */
CUresult sim_backing_begin(CUdeviceptr address, uint64_t bytes, uint64_t *ret_claimed);
/* The same where only row_bytes of each of the rows are touched, and what lies between them is not. */
CUresult sim_backing_begin_rows(CUdeviceptr address, uint64_t bytes, uint64_t rows, uint64_t row_bytes,
                                uint64_t *ret_claimed);
void sim_backing_end(uint64_t claimed);
/* Contents and host memory of a part of an arena go back to the host. */
void sim_backing_drop(int arena_fd, uint64_t offset, uint64_t bytes);

#endif
