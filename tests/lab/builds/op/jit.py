"""What a user's first call of a JIT op does: torch builds and loads it. Words after the name are compiler flags."""

import os
import pathlib
import sys

from torch.utils.cpp_extension import load

here = pathlib.Path(__file__).parent
op = load("small", [str(here / "small.cpp"), str(here / "small_kernel.cu")], extra_cflags=sys.argv[1:], verbose=True)
print("loaded", os.path.realpath(op.__file__), "says", op.answer())
