/*
 * factors.c - factorizations of dense matrices (LU, Cholesky, LDL, QR) and the solution of systems with them. Sizes of
 * workspaces follow LAPACK's: a block of columns times a side.
 */
#include "simcuda/cusolver/cusolver.h"

#define HEAD struct sc_solver *handle
#define BLOCKS(size) ((double)(size) * SC_SOLVER_BLOCK)

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* LU */
#define SC_DEFINE_GETRF_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, void *a, int lda, int *ret_elements) {                      \
    return sc_solver_answer(handle, BLOCKS(larger(m, n)), ret_elements);                                               \
  }
SC_DEFINE_GETRF_SIZE(cusolverDnSgetrf_bufferSize)
SC_DEFINE_GETRF_SIZE(cusolverDnDgetrf_bufferSize)
SC_DEFINE_GETRF_SIZE(cusolverDnCgetrf_bufferSize)
SC_DEFINE_GETRF_SIZE(cusolverDnZgetrf_bufferSize)

#define SC_DEFINE_GETRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, void *a, int lda, void *workspace, int *pivots,             \
                                       int *info) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_lu(m, n), info, 1);                                                   \
  }
SC_DEFINE_GETRF(cusolverDnSgetrf, SC_R_32F)
SC_DEFINE_GETRF(cusolverDnDgetrf, SC_R_64F)
SC_DEFINE_GETRF(cusolverDnCgetrf, SC_C_32F)
SC_DEFINE_GETRF(cusolverDnZgetrf, SC_C_64F)

#define SC_DEFINE_GETRS(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int trans, int n, int nrhs, const void *a, int lda, const int *pivots,    \
                                       void *b, int ldb, int *info) {                                                  \
    return sc_solver_run(handle, type, sc_solver_solve(n, nrhs), info, 1);                                             \
  }
SC_DEFINE_GETRS(cusolverDnSgetrs, SC_R_32F)
SC_DEFINE_GETRS(cusolverDnDgetrs, SC_R_64F)
SC_DEFINE_GETRS(cusolverDnCgetrs, SC_C_32F)
SC_DEFINE_GETRS(cusolverDnZgetrs, SC_C_64F)

/* Cholesky */
#define SC_DEFINE_POTRF_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, void *a, int lda, int *ret_elements) {                   \
    return sc_solver_answer(handle, BLOCKS(n), ret_elements);                                                          \
  }
SC_DEFINE_POTRF_SIZE(cusolverDnSpotrf_bufferSize)
SC_DEFINE_POTRF_SIZE(cusolverDnDpotrf_bufferSize)
SC_DEFINE_POTRF_SIZE(cusolverDnCpotrf_bufferSize)
SC_DEFINE_POTRF_SIZE(cusolverDnZpotrf_bufferSize)

#define SC_DEFINE_POTRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, void *a, int lda, void *workspace, int elements,         \
                                       int *info) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_cholesky(n), info, 1);                                                \
  }
SC_DEFINE_POTRF(cusolverDnSpotrf, SC_R_32F)
SC_DEFINE_POTRF(cusolverDnDpotrf, SC_R_64F)
SC_DEFINE_POTRF(cusolverDnCpotrf, SC_C_32F)
SC_DEFINE_POTRF(cusolverDnZpotrf, SC_C_64F)

#define SC_DEFINE_POTRF_BATCHED(name, type)                                                                            \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, void *const *a, int lda, int *info, int batch) {         \
    return sc_solver_run(handle, type, sc_solver_cholesky(n), info, batch);                                            \
  }
SC_DEFINE_POTRF_BATCHED(cusolverDnSpotrfBatched, SC_R_32F)
SC_DEFINE_POTRF_BATCHED(cusolverDnDpotrfBatched, SC_R_64F)
SC_DEFINE_POTRF_BATCHED(cusolverDnCpotrfBatched, SC_C_32F)
SC_DEFINE_POTRF_BATCHED(cusolverDnZpotrfBatched, SC_C_64F)

#define SC_DEFINE_POTRS(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, int nrhs, const void *a, int lda, void *b, int ldb,      \
                                       int *info) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_solve(n, nrhs), info, 1);                                             \
  }
SC_DEFINE_POTRS(cusolverDnSpotrs, SC_R_32F)
SC_DEFINE_POTRS(cusolverDnDpotrs, SC_R_64F)
SC_DEFINE_POTRS(cusolverDnCpotrs, SC_C_32F)
SC_DEFINE_POTRS(cusolverDnZpotrs, SC_C_64F)

/* Its info is one number for the whole batch. */
#define SC_DEFINE_POTRS_BATCHED(name, type)                                                                            \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, int nrhs, void *const *a, int lda, void *const *b,       \
                                       int ldb, int *info, int batch) {                                                \
    enum sc_solver_status status = sc_solver_run(handle, type, sc_solver_solve(n, nrhs), NULL, batch);                 \
    return status == SC_SOLVER_SUCCESS ? sc_solver_run(handle, type, sc_solver_solve(0, 0), info, 1) : status;         \
  }
SC_DEFINE_POTRS_BATCHED(cusolverDnSpotrsBatched, SC_R_32F)
SC_DEFINE_POTRS_BATCHED(cusolverDnDpotrsBatched, SC_R_64F)
SC_DEFINE_POTRS_BATCHED(cusolverDnCpotrsBatched, SC_C_32F)
SC_DEFINE_POTRS_BATCHED(cusolverDnZpotrsBatched, SC_C_64F)

/* LDL of symmetric matrices: as many operations as Cholesky's. */
#define SC_DEFINE_SYTRF_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int n, void *a, int lda, int *ret_elements) {                             \
    return sc_solver_answer(handle, BLOCKS(n), ret_elements);                                                          \
  }
SC_DEFINE_SYTRF_SIZE(cusolverDnSsytrf_bufferSize)
SC_DEFINE_SYTRF_SIZE(cusolverDnDsytrf_bufferSize)
SC_DEFINE_SYTRF_SIZE(cusolverDnCsytrf_bufferSize)
SC_DEFINE_SYTRF_SIZE(cusolverDnZsytrf_bufferSize)

#define SC_DEFINE_SYTRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int uplo, int n, void *a, int lda, int *pivots, void *work, int elements, \
                                       int *info) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_cholesky(n), info, 1);                                                \
  }
SC_DEFINE_SYTRF(cusolverDnSsytrf, SC_R_32F)
SC_DEFINE_SYTRF(cusolverDnDsytrf, SC_R_64F)
SC_DEFINE_SYTRF(cusolverDnCsytrf, SC_C_32F)
SC_DEFINE_SYTRF(cusolverDnZsytrf, SC_C_64F)

/* QR, and what is made of its reflections */
#define SC_DEFINE_GEQRF_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, void *a, int lda, int *ret_elements) {                      \
    return sc_solver_answer(handle, BLOCKS(n), ret_elements);                                                          \
  }
SC_DEFINE_GEQRF_SIZE(cusolverDnSgeqrf_bufferSize)
SC_DEFINE_GEQRF_SIZE(cusolverDnDgeqrf_bufferSize)
SC_DEFINE_GEQRF_SIZE(cusolverDnCgeqrf_bufferSize)
SC_DEFINE_GEQRF_SIZE(cusolverDnZgeqrf_bufferSize)

#define SC_DEFINE_GEQRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, void *a, int lda, void *tau, void *workspace, int elements, \
                                       int *info) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_qr(m, n), info, 1);                                                   \
  }
SC_DEFINE_GEQRF(cusolverDnSgeqrf, SC_R_32F)
SC_DEFINE_GEQRF(cusolverDnDgeqrf, SC_R_64F)
SC_DEFINE_GEQRF(cusolverDnCgeqrf, SC_C_32F)
SC_DEFINE_GEQRF(cusolverDnZgeqrf, SC_C_64F)

#define SC_DEFINE_ORGQR_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, int k, const void *a, int lda, const void *tau,             \
                                       int *ret_elements) {                                                            \
    return sc_solver_answer(handle, BLOCKS(n), ret_elements);                                                          \
  }
SC_DEFINE_ORGQR_SIZE(cusolverDnSorgqr_bufferSize)
SC_DEFINE_ORGQR_SIZE(cusolverDnDorgqr_bufferSize)
SC_DEFINE_ORGQR_SIZE(cusolverDnCungqr_bufferSize)
SC_DEFINE_ORGQR_SIZE(cusolverDnZungqr_bufferSize)

#define SC_DEFINE_ORGQR(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, int k, void *a, int lda, const void *tau, void *work,       \
                                       int elements, int *info) {                                                      \
    return sc_solver_run(handle, type, sc_solver_reflect(m, n, k), info, 1);                                           \
  }
SC_DEFINE_ORGQR(cusolverDnSorgqr, SC_R_32F)
SC_DEFINE_ORGQR(cusolverDnDorgqr, SC_R_64F)
SC_DEFINE_ORGQR(cusolverDnCungqr, SC_C_32F)
SC_DEFINE_ORGQR(cusolverDnZungqr, SC_C_64F)

#define SC_DEFINE_ORMQR_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int side, int trans, int m, int n, int k, const void *a, int lda,         \
                                       const void *tau, const void *c, int ldc, int *ret_elements) {                   \
    return sc_solver_answer(handle, BLOCKS(side == 0 ? n : m), ret_elements);                                          \
  }
SC_DEFINE_ORMQR_SIZE(cusolverDnSormqr_bufferSize)
SC_DEFINE_ORMQR_SIZE(cusolverDnDormqr_bufferSize)
SC_DEFINE_ORMQR_SIZE(cusolverDnCunmqr_bufferSize)
SC_DEFINE_ORMQR_SIZE(cusolverDnZunmqr_bufferSize)

#define SC_DEFINE_ORMQR(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int side, int trans, int m, int n, int k, const void *a, int lda,         \
                                       const void *tau, void *c, int ldc, void *work, int elements, int *info) {       \
    return sc_solver_run(handle, type, sc_solver_reflect(m, n, k), info, 1);                                           \
  }
SC_DEFINE_ORMQR(cusolverDnSormqr, SC_R_32F)
SC_DEFINE_ORMQR(cusolverDnDormqr, SC_R_64F)
SC_DEFINE_ORMQR(cusolverDnCunmqr, SC_C_32F)
SC_DEFINE_ORMQR(cusolverDnZunmqr, SC_C_64F)
