/*
 * cusolver.h - what the files of the simulated cuSOLVER share: its handle, what factorizations cost, and the workspaces
 * that they ask for. Nothing is computed: info says 0, so that programs go on, and results keep what their memory held.
 */
#ifndef SC_CUSOLVER_H
#define SC_CUSOLVER_H
#include "simcuda/common/driver.h"
#include "simcuda/common/numbers.h"
#include "simcuda/common/public.h"
#include <stddef.h>
#include <stdint.h>

/* cusolverStatus_t of the public header. */
enum sc_solver_status {
  SC_SOLVER_SUCCESS = 0,
  SC_SOLVER_NOT_INITIALIZED = 1,
  SC_SOLVER_ALLOC_FAILED = 2,
  SC_SOLVER_INVALID_VALUE = 3,
  SC_SOLVER_EXECUTION_FAILED = 6,
  SC_SOLVER_NOT_SUPPORTED = 9
};

struct sc_solver {
  uint32_t mark; /* tells a handle from another pointer */
  CUstream stream;
};

/* The work on one matrix, in a real number's operations. */
struct sc_solver_work {
  double flops;
  double elements; /* read and written */
  double wait_ns;  /* of columns for the ones before them, whatever the device */
};

/* m x n matrices; n x n, where only n is given. */
struct sc_solver_work sc_solver_lu(int64_t m, int64_t n);
struct sc_solver_work sc_solver_cholesky(int64_t n);
struct sc_solver_work sc_solver_qr(int64_t m, int64_t n);
/* k reflections made a matrix, or applied to one of m x n. */
struct sc_solver_work sc_solver_reflect(int64_t m, int64_t n, int64_t k);
/* A factored system with nrhs right-hand sides. */
struct sc_solver_work sc_solver_solve(int64_t n, int64_t nrhs);
/* Eigenvalues of a symmetric matrix, singular values, eigenvalues of any matrix; has_vectors: and their vectors. */
struct sc_solver_work sc_solver_eigen(int64_t n, bool has_vectors);
struct sc_solver_work sc_solver_svd(int64_t m, int64_t n, bool has_vectors);
struct sc_solver_work sc_solver_general_eigen(int64_t n, bool has_vectors);

/* Starts work on a batch of matrices, and fills info, an integer a matrix on the device, with zeros. Sizes that are
 * checked here: m, n and batch are not negative. */
enum sc_solver_status sc_solver_run(struct sc_solver *handle, int type, struct sc_solver_work work, void *info,
                                    int64_t batch);
/* Answers how many elements a workspace has. */
enum sc_solver_status sc_solver_answer(const struct sc_solver *handle, double elements, int *ret_elements);
/* The same in bytes, for a type of data; on the host none is needed. */
enum sc_solver_status sc_solver_answer_bytes(const struct sc_solver *handle, int type, double elements,
                                             size_t *ret_device_bytes, size_t *ret_host_bytes);

/* Columns that are factored at a time: LAPACK's workspaces are so many times a side of the matrix. */
#define SC_SOLVER_BLOCK 32

/* The prototypes are CUDA's, but kernels compute nothing here: most parameters are only there. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
