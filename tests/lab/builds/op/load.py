"""load.py FILE: loads a built extension as Python would."""

import importlib.util
import pathlib
import sys

import torch  # noqa: F401  its libraries come first, as in use

path = pathlib.Path(sys.argv[1]).resolve()
spec = importlib.util.spec_from_file_location(path.name.split(".")[0], path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print("loaded", path, "says", module.answer() if hasattr(module, "answer") else [name for name in dir(module) if not name.startswith("__")])
