/*
 * Python.h - the part of Python's stable ABI that cffi's generated module (vgpud._shim) uses, for machines that have
 * an interpreter but not its headers (python3-dev): so that building needs a C compiler and nothing else.
 * Used by build_shim.py only where the interpreter's own header is missing. Everything here is in the stable ABI since
 * Python 3.2, so the declarations hold for every version; tests/test_package.py builds and loads the module with it.
 */
#ifndef VG_PYABI_H
#define VG_PYABI_H
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#ifndef Py_LIMITED_API
#error "this header declares the stable ABI only"
#endif

typedef struct _object PyObject;
typedef struct _ts PyThreadState;
typedef ssize_t Py_ssize_t;

#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define PyAPI __attribute__((visibility("default"))) extern

PyAPI PyObject _Py_NoneStruct;
#define Py_None (&_Py_NoneStruct)

PyAPI void Py_IncRef(PyObject *object);
PyAPI void Py_DecRef(PyObject *object);
#define Py_INCREF(object) Py_IncRef((PyObject *)(object))
#define Py_DECREF(object) Py_DecRef((PyObject *)(object))
#define Py_XDECREF(object) Py_DecRef((PyObject *)(object))

PyAPI PyThreadState *PyEval_SaveThread(void);
PyAPI void PyEval_RestoreThread(PyThreadState *state);
#define Py_BEGIN_ALLOW_THREADS                                                                                         \
  {                                                                                                                    \
    PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS                                                                                           \
  PyEval_RestoreThread(_save);                                                                                         \
  }

PyAPI PyObject *PyErr_Occurred(void);
PyAPI void Py_FatalError(const char *message) __attribute__((noreturn));
PyAPI int PyArg_UnpackTuple(PyObject *args, const char *name, Py_ssize_t min, Py_ssize_t max, ...);
PyAPI PyObject *PyImport_ImportModule(const char *name);
PyAPI PyObject *PyObject_CallMethod(PyObject *object, const char *name, const char *format, ...);
PyAPI void *PyObject_Malloc(size_t bytes);
PyAPI void PyObject_Free(void *memory);
PyAPI PyObject *PyBool_FromLong(long value);
PyAPI PyObject *PyFloat_FromDouble(double value);
PyAPI double PyFloat_AsDouble(PyObject *object);
PyAPI PyObject *PyLong_FromLong(long value);
PyAPI PyObject *PyLong_FromLongLong(long long value);
PyAPI PyObject *PyLong_FromUnsignedLong(unsigned long value);
PyAPI PyObject *PyLong_FromUnsignedLongLong(unsigned long long value);
PyAPI PyObject *PyLong_FromVoidPtr(void *pointer);

#endif
