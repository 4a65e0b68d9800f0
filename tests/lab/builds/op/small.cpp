// The host half of the smallest extension that torch's build helper can make: no header of torch, so it compiles in a second.
#include <Python.h>
#ifdef WITH_TORCH_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#endif

const char* words();

static PyObject* answer(PyObject*, PyObject*) { return PyUnicode_FromString(words()); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};

#define NAME_(x) #x
#define NAME(x) NAME_(x)
#define INIT_(x) PyInit_##x
#define INIT(x) INIT_(x)
static PyModuleDef module = {PyModuleDef_HEAD_INIT, NAME(TORCH_EXTENSION_NAME), nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
