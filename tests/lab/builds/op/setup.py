"""The same as a setup build."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(name="small", ext_modules=[CUDAExtension("small", ["small.cpp", "small_kernel.cu"])], cmdclass={"build_ext": BuildExtension})
