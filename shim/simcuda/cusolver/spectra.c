/*
 * spectra.c - eigenvalues of symmetric and Hermitian matrices, and singular values, with one letter a type. Workspaces
 * are those of LAPACK's routines of the same name, those of Jacobi's method two copies of the matrices.
 */
#include "simcuda/cusolver/cusolver.h"

#define HEAD struct sc_solver *handle
#define SIDE(size) ((double)(size))

/* Divide and conquer: LAPACK's syevd. */
static double eigen_elements(double order, bool has_vectors) {
  return has_vectors ? 1 + 6 * order + 2 * order * order : 1 + 2 * order + order * SC_SOLVER_BLOCK;
}

#define SC_DEFINE_SYEVD_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int uplo, int n, const void *a, int lda, const void *w,         \
                                       int *ret_elements) {                                                            \
    return sc_solver_answer(handle, n < 0 ? -1 : eigen_elements(n, jobz != 0), ret_elements);                          \
  }
SC_DEFINE_SYEVD_SIZE(cusolverDnSsyevd_bufferSize)
SC_DEFINE_SYEVD_SIZE(cusolverDnDsyevd_bufferSize)
SC_DEFINE_SYEVD_SIZE(cusolverDnCheevd_bufferSize)
SC_DEFINE_SYEVD_SIZE(cusolverDnZheevd_bufferSize)

#define SC_DEFINE_SYEVD(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,         \
                                       int elements, int *info) {                                                      \
    return sc_solver_run(handle, type, sc_solver_eigen(n, jobz != 0), info, 1);                                        \
  }
SC_DEFINE_SYEVD(cusolverDnSsyevd, SC_R_32F)
SC_DEFINE_SYEVD(cusolverDnDsyevd, SC_R_64F)
SC_DEFINE_SYEVD(cusolverDnCheevd, SC_C_32F)
SC_DEFINE_SYEVD(cusolverDnZheevd, SC_C_64F)

#define SC_DEFINE_SYEVJ_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int uplo, int n, const void *a, int lda, const void *w,         \
                                       int *ret_elements, void *params, int batch) {                                   \
    return sc_solver_answer(handle, n < 0 ? -1 : 2 * SIDE(n) * n * batch, ret_elements);                               \
  }
SC_DEFINE_SYEVJ_SIZE(cusolverDnSsyevjBatched_bufferSize)
SC_DEFINE_SYEVJ_SIZE(cusolverDnDsyevjBatched_bufferSize)
SC_DEFINE_SYEVJ_SIZE(cusolverDnCheevjBatched_bufferSize)
SC_DEFINE_SYEVJ_SIZE(cusolverDnZheevjBatched_bufferSize)

#define SC_DEFINE_SYEVJ(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,         \
                                       int elements, int *info, void *params, int batch) {                             \
    return sc_solver_run(handle, type, sc_solver_eigen(n, jobz != 0), info, batch);                                    \
  }
SC_DEFINE_SYEVJ(cusolverDnSsyevjBatched, SC_R_32F)
SC_DEFINE_SYEVJ(cusolverDnDsyevjBatched, SC_R_64F)
SC_DEFINE_SYEVJ(cusolverDnCheevjBatched, SC_C_32F)
SC_DEFINE_SYEVJ(cusolverDnZheevjBatched, SC_C_64F)

/* Singular values: LAPACK's gesvd, and blocks for the reduction. */
static double svd_elements(int m, int n) {
  double least = m < n ? m : n, most = m < n ? n : m;
  return m < 0 || n < 0 ? -1 : 3 * least + most + (least + most) * SC_SOLVER_BLOCK;
}

#define SC_DEFINE_GESVD_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_solver_status name(HEAD, int m, int n, int *ret_elements) {                                        \
    return sc_solver_answer(handle, svd_elements(m, n), ret_elements);                                                 \
  }
SC_DEFINE_GESVD_SIZE(cusolverDnSgesvd_bufferSize)
SC_DEFINE_GESVD_SIZE(cusolverDnDgesvd_bufferSize)
SC_DEFINE_GESVD_SIZE(cusolverDnCgesvd_bufferSize)
SC_DEFINE_GESVD_SIZE(cusolverDnZgesvd_bufferSize)

#define SC_DEFINE_GESVD(name, type)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, signed char jobu, signed char jobvt, int m, int n, void *a, int lda,      \
                                       void *s, void *u, int ldu, void *vt, int ldvt, void *work, int elements,        \
                                       void *rwork, int *info) {                                                       \
    return sc_solver_run(handle, type, sc_solver_svd(m, n, jobu != 'N' || jobvt != 'N'), info, 1);                     \
  }
SC_DEFINE_GESVD(cusolverDnSgesvd, SC_R_32F)
SC_DEFINE_GESVD(cusolverDnDgesvd, SC_R_64F)
SC_DEFINE_GESVD(cusolverDnCgesvd, SC_C_32F)
SC_DEFINE_GESVD(cusolverDnZgesvd, SC_C_64F)

/* Jacobi's method */
static double jacobi_elements(int m, int n, int batch) {
  return m < 0 || n < 0 || batch < 0 ? -1 : 2 * SIDE(m) * n * batch;
}

#define SC_DEFINE_GESVDJ_SIZE(name)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int econ, int m, int n, const void *a, int lda, const void *s,  \
                                       const void *u, int ldu, const void *v, int ldv, int *ret_elements,              \
                                       void *params) {                                                                 \
    return sc_solver_answer(handle, jacobi_elements(m, n, 1), ret_elements);                                           \
  }
SC_DEFINE_GESVDJ_SIZE(cusolverDnSgesvdj_bufferSize)
SC_DEFINE_GESVDJ_SIZE(cusolverDnDgesvdj_bufferSize)
SC_DEFINE_GESVDJ_SIZE(cusolverDnCgesvdj_bufferSize)
SC_DEFINE_GESVDJ_SIZE(cusolverDnZgesvdj_bufferSize)

#define SC_DEFINE_GESVDJ(name, type)                                                                                   \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int econ, int m, int n, void *a, int lda, void *s, void *u,     \
                                       int ldu, void *v, int ldv, void *work, int elements, int *info, void *params) { \
    return sc_solver_run(handle, type, sc_solver_svd(m, n, true), info, 1);                                            \
  }
SC_DEFINE_GESVDJ(cusolverDnSgesvdj, SC_R_32F)
SC_DEFINE_GESVDJ(cusolverDnDgesvdj, SC_R_64F)
SC_DEFINE_GESVDJ(cusolverDnCgesvdj, SC_C_32F)
SC_DEFINE_GESVDJ(cusolverDnZgesvdj, SC_C_64F)

#define SC_DEFINE_GESVDJ_BATCHED_SIZE(name)                                                                            \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int m, int n, const void *a, int lda, const void *s,            \
                                       const void *u, int ldu, const void *v, int ldv, int *ret_elements,              \
                                       void *params, int batch) {                                                      \
    return sc_solver_answer(handle, jacobi_elements(m, n, batch), ret_elements);                                       \
  }
SC_DEFINE_GESVDJ_BATCHED_SIZE(cusolverDnSgesvdjBatched_bufferSize)
SC_DEFINE_GESVDJ_BATCHED_SIZE(cusolverDnDgesvdjBatched_bufferSize)
SC_DEFINE_GESVDJ_BATCHED_SIZE(cusolverDnCgesvdjBatched_bufferSize)
SC_DEFINE_GESVDJ_BATCHED_SIZE(cusolverDnZgesvdjBatched_bufferSize)

#define SC_DEFINE_GESVDJ_BATCHED(name, type)                                                                           \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu,      \
                                       void *v, int ldv, void *work, int elements, int *info, void *params,            \
                                       int batch) {                                                                    \
    return sc_solver_run(handle, type, sc_solver_svd(m, n, true), info, batch);                                        \
  }
SC_DEFINE_GESVDJ_BATCHED(cusolverDnSgesvdjBatched, SC_R_32F)
SC_DEFINE_GESVDJ_BATCHED(cusolverDnDgesvdjBatched, SC_R_64F)
SC_DEFINE_GESVDJ_BATCHED(cusolverDnCgesvdjBatched, SC_C_32F)
SC_DEFINE_GESVDJ_BATCHED(cusolverDnZgesvdjBatched, SC_C_64F)

/* For tall matrices: by the eigenvalues of their squares. */
#define SC_DEFINE_GESVDA_SIZE(name)                                                                                    \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int rank, int m, int n, const void *a, int lda,                 \
                                       long long stride_a, const void *s, long long stride_s, const void *u, int ldu,  \
                                       long long stride_u, const void *v, int ldv, long long stride_v,                 \
                                       int *ret_elements, int batch) {                                                 \
    return sc_solver_answer(handle, jacobi_elements(m, n, batch), ret_elements);                                       \
  }
SC_DEFINE_GESVDA_SIZE(cusolverDnSgesvdaStridedBatched_bufferSize)
SC_DEFINE_GESVDA_SIZE(cusolverDnDgesvdaStridedBatched_bufferSize)
SC_DEFINE_GESVDA_SIZE(cusolverDnCgesvdaStridedBatched_bufferSize)
SC_DEFINE_GESVDA_SIZE(cusolverDnZgesvdaStridedBatched_bufferSize)

/* Residuals go to an array on the host, which may be left out. */
static enum sc_solver_status clear_residuals(enum sc_solver_status status, double *residuals, int batch) {
  for (int i = 0; status == SC_SOLVER_SUCCESS && residuals != NULL && i < batch; i++) residuals[i] = 0;
  return status;
}

#define SC_DEFINE_GESVDA(name, type)                                                                                   \
  SC_PUBLIC enum sc_solver_status name(HEAD, int jobz, int rank, int m, int n, const void *a, int lda,                 \
                                       long long stride_a, void *s, long long stride_s, void *u, int ldu,              \
                                       long long stride_u, void *v, int ldv, long long stride_v, void *work,           \
                                       int elements, int *info, double *residuals, int batch) {                        \
    return clear_residuals(sc_solver_run(handle, type, sc_solver_svd(m, n, true), info, batch), residuals, batch);     \
  }
SC_DEFINE_GESVDA(cusolverDnSgesvdaStridedBatched, SC_R_32F)
SC_DEFINE_GESVDA(cusolverDnDgesvdaStridedBatched, SC_R_64F)
SC_DEFINE_GESVDA(cusolverDnCgesvdaStridedBatched, SC_C_32F)
SC_DEFINE_GESVDA(cusolverDnZgesvdaStridedBatched, SC_C_64F)
