/* What the compiled loops need at run time, and how Python's arguments become theirs; `glue` writes what follows. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Memory of the arrays that loops make. Compiled code counts references in `count`, and knows the place of `data`. */
typedef struct Memory {
    size_t count;
    void (*destructor)(void *, size_t, void *);
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
} Memory;

__attribute__((visibility("hidden"))) Memory *NRT_MemInfo_alloc_aligned(size_t size, unsigned align)
{
    Memory *m = malloc(sizeof(Memory) + size + align);
    if (m == NULL)
        return NULL;
    uintptr_t data = (uintptr_t)(m + 1);
    if (align > 1)
        data = (data + align - 1) / align * align;
    m->count = 1;
    m->destructor = NULL;
    m->destructor_info = NULL;
    m->data = (void *)data;
    m->size = size;
    m->allocator = NULL;
    return m;
}

__attribute__((visibility("hidden"))) Memory *NRT_MemInfo_alloc_safe_aligned(size_t size, unsigned align)
{
    return NRT_MemInfo_alloc_aligned(size, align);
}

__attribute__((visibility("hidden"))) Memory *NRT_MemInfo_alloc(size_t size)
{
    return NRT_MemInfo_alloc_aligned(size, 1);
}

__attribute__((visibility("hidden"))) void *NRT_Allocate(size_t size)
{
    return malloc(size);
}

__attribute__((visibility("hidden"))) void NRT_Free(void *data)
{
    free(data);
}

/* Memory of lists, which may move: `data` is a block of its own. */
static void free_list(void *data, size_t size, void *destructor)
{
    if (destructor != NULL)
        ((void (*)(void *))destructor)(data);
    free(data);
}

__attribute__((visibility("hidden"))) Memory *NRT_MemInfo_new_varsize_dtor(size_t size, void *destructor)
{
    Memory *m = NRT_MemInfo_alloc_aligned(0, 1);
    if (m == NULL)
        return NULL;
    m->data = malloc(size);
    if (m->data == NULL) {
        free(m);
        return NULL;
    }
    m->size = size;
    m->destructor = free_list;
    m->destructor_info = destructor;
    return m;
}

__attribute__((visibility("hidden"))) void *NRT_MemInfo_varsize_realloc(Memory *m, size_t size)
{
    void *data = realloc(m->data, size);
    if (data != NULL) {
        m->data = data;
        m->size = size;
    }
    return data;
}

__attribute__((visibility("hidden"))) void NRT_MemInfo_call_dtor(Memory *m)
{
    if (m->destructor != NULL)
        m->destructor(m->data, m->size, m->destructor_info);
    free(m);
}

__attribute__((visibility("hidden"))) double numba_frexp(double x, int *exponent)
{
    if (x == 0.0 || !isfinite(x)) {
        *exponent = 0;
        return x;
    }
    return frexp(x, exponent);
}

__attribute__((visibility("hidden"))) double numba_ldexp(double x, int exponent)
{
    return x == 0.0 || exponent == 0 || !isfinite(x) ? x : ldexp(x, exponent);
}

/* New strides for a view of an array in C order with another shape; 0 if there are none. Only contiguous arrays have
   views here. */
__attribute__((visibility("hidden"))) int numba_attempt_nocopy_reshape(
    intptr_t axes, const intptr_t *shape, const intptr_t *strides, intptr_t new_axes, const intptr_t *new_shape,
    intptr_t *new_strides, intptr_t item, int by_columns)
{
    intptr_t step = item;
    for (intptr_t i = axes - 1; i >= 0; i--) {
        if (shape[i] != 1 && strides[i] != step)
            return 0;
        step *= shape[i];
    }
    if (by_columns && new_axes > 1)
        return 0;
    step = item;
    for (intptr_t i = new_axes - 1; i >= 0; i--) {
        new_strides[i] = step;
        step *= new_shape[i];
    }
    return 1;
}

/* An array as compiled code takes it; N axes. */
typedef struct Head {
    Memory *memory;
    void *parent;
    int64_t items, item;
    void *data;
} Head;
#define ARRAY(N)                         \
    typedef struct Array##N {            \
        Head head;                       \
        int64_t shape[N], strides[N];    \
    } Array##N;
ARRAY(1)
ARRAY(2)
ARRAY(3)

static PyObject *fallback; /* called with the name and the arguments of a call that no signature fits */

/* Reads an array; 0 if it has another type, layout or number of axes. */
static int get_array(PyObject *o, char kind, int item, int axes, int constant, Head *to, int64_t *shape, int64_t *strides)
{
    if (!PyArray_Check(o))
        return 0;
    PyArrayObject *a = (PyArrayObject *)o;
    PyArray_Descr *d = PyArray_DESCR(a);
    if (d->kind != kind || PyArray_ITEMSIZE(a) != item || PyArray_NDIM(a) != axes)
        return 0;
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (constant ? 0 : NPY_ARRAY_WRITEABLE);
    if (!PyArray_CHKFLAGS(a, wanted) || !PyArray_ISNOTSWAPPED(a))
        return 0;
    to->memory = NULL; /* the caller holds it */
    to->parent = NULL;
    to->items = PyArray_SIZE(a);
    to->item = item;
    to->data = PyArray_DATA(a);
    for (int i = 0; i < axes; i++) {
        shape[i] = PyArray_DIM(a, i);
        strides[i] = PyArray_STRIDE(a, i);
    }
    return 1;
}

static int get_int(PyObject *o, int64_t low, int64_t high, int64_t *to)
{
    int64_t x;
    if (PyLong_Check(o)) {
        x = PyLong_AsLongLong(o);
    } else if (PyArray_IsScalar(o, Integer)) {
        PyObject *number = PyNumber_Index(o);
        x = number == NULL ? -1 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
    } else {
        return 0;
    }
    if (x == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    *to = x;
    return low <= x && x <= high;
}

static int get_unsigned(PyObject *o, uint64_t *to)
{
    if (!PyLong_Check(o) && !PyArray_IsScalar(o, Integer))
        return 0;
    PyObject *number = PyNumber_Index(o);
    uint64_t x = number == NULL ? (uint64_t)-1 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    if (x == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    *to = x;
    return 1;
}

static int get_float(PyObject *o, double *to)
{
    if (!PyFloat_Check(o) && !PyArray_IsScalar(o, Floating))
        return 0;
    *to = PyFloat_AsDouble(o);
    return 1;
}

static int get_bool(PyObject *o, int8_t *to)
{
    if (!PyBool_Check(o) && !PyArray_IsScalar(o, Bool))
        return 0;
    *to = (int8_t)PyObject_IsTrue(o);
    return 1;
}

static void release(PyObject *capsule)
{
    Memory *m = PyCapsule_GetPointer(capsule, NULL);
    if (__atomic_sub_fetch(&m->count, 1, __ATOMIC_ACQ_REL) == 0)
        NRT_MemInfo_call_dtor(m);
}

/* An array that compiled code made, as NumPy's; takes over its reference. */
static PyObject *make_array(int type, int axes, const Head *from, int64_t *shape, int64_t *strides)
{
    PyObject *capsule = PyCapsule_New(from->memory, NULL, release);
    if (capsule == NULL)
        return NULL;
    PyObject *found = PyArray_New(
        &PyArray_Type, axes, (npy_intp *)shape, type, (npy_intp *)strides, from->data, 0, NPY_ARRAY_WRITEABLE, NULL);
    if (found == NULL) {
        Py_DECREF(capsule);
        return NULL;
    }
    PyArray_UpdateFlags((PyArrayObject *)found, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    if (PyArray_SetBaseObject((PyArrayObject *)found, capsule) < 0) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

/* The error that a loop ended with: a pickled (class, arguments, place). */
typedef struct Error {
    const char *pickled;
    int32_t size;
    const void *hash, *unwrap;
    int32_t allocated;
} Error;

static PyObject *raise_error(int status, const Error *error)
{
    if (status < 1 || error == NULL || error->allocated > 0) {
        PyErr_SetString(PyExc_SystemError, "a compiled loop failed");
        return NULL;
    }
    PyObject *pickle = PyImport_ImportModule("pickle");
    PyObject *found = pickle == NULL ? NULL : PyObject_CallMethod(pickle, "loads", "y#", error->pickled, (Py_ssize_t)error->size);
    Py_XDECREF(pickle);
    if (found == NULL)
        return NULL;
    PyObject *kind = PyTuple_Check(found) && PyTuple_GET_SIZE(found) > 1 ? PyTuple_GET_ITEM(found, 0) : NULL;
    if (kind != NULL && PyExceptionClass_Check(kind)) {
        PyObject *arguments = PyTuple_GET_ITEM(found, 1);
        PyErr_SetObject(kind, arguments == Py_None ? NULL : arguments);
    } else {
        PyErr_SetString(PyExc_SystemError, "a compiled loop failed");
    }
    Py_DECREF(found);
    return NULL;
}

static PyObject *call_fallback(const char *name, PyObject *const *args, Py_ssize_t n)
{
    if (fallback == NULL) {
        PyErr_Format(PyExc_TypeError, "%s was not built for these arguments", name);
        return NULL;
    }
    PyObject *all = PyTuple_New(n);
    if (all == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(all, i, args[i]);
    }
    PyObject *found = PyObject_CallFunction(fallback, "sO", name, all);
    Py_DECREF(all);
    return found;
}

static PyObject *set_fallback(PyObject *self, PyObject *function)
{
    Py_INCREF(function);
    Py_XSETREF(fallback, function);
    Py_RETURN_NONE;
}

/* A NamedTuple of a module from a tuple, whose reference it takes over. */
static PyObject *make_record(const char *module, const char *name, PyObject *items)
{
    if (items == NULL)
        return NULL;
    PyObject *m = PyImport_ImportModule(module), *kind = m == NULL ? NULL : PyObject_GetAttrString(m, name);
    PyObject *found = kind == NULL ? NULL : PyObject_CallObject(kind, items);
    Py_XDECREF(m);
    Py_XDECREF(kind);
    Py_DECREF(items);
    return found;
}
