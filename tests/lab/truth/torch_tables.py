"""The tables in torch's own cpp_extension.py: torch_tables.py TORCH_SOURCES VERSION > tables.json

Read from the syntax tree, since two of them are local to a function:
{"gcc": {"12.4": ["6.0.0", "14.0"]}, "clang": {…}, "archs": ["8.0", …], "names": [["Ampere", "8.0;8.6+PTX"], …]}
"""

import ast
import json
import pathlib
import sys

SOURCES, VERSION = sys.argv[1:]


def literal(node):
    """The value of constants, of (nested) tuples, lists and dicts of them, of concatenations, and of calls that only wrap one."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return [literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {literal(key): literal(value) for key, value in zip(node.keys, node.values)}
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return literal(node.args[0])
    if isinstance(node, ast.Name):
        return named[node.id]
    raise ValueError(ast.dump(node))


named = {}
wanted = {
    "CUDA_GCC_VERSIONS": "gcc",
    "CUDA_CLANG_VERSIONS": "clang",
    "MINIMUM_GCC_VERSION": None,
    "MINIMUM_CLANG_VERSION": None,
    "supported_arches": "archs",
    "named_arches": "names",
}
tree = ast.parse(pathlib.Path(SOURCES, "torch-" + VERSION, "torch/utils/cpp_extension.py").read_text())
tables = {}
for node in ast.walk(tree):
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        continue
    if isinstance(target, ast.Name) and target.id in wanted:
        named[target.id] = literal(node.value)
        if wanted[target.id]:
            tables[wanted[target.id]] = named[target.id]


def dotted(version):
    return version if isinstance(version, str) else ".".join(str(part) for part in version)


for compiler in ("gcc", "clang"):
    tables[compiler] = {cuda: [dotted(low), dotted(high)] for cuda, (low, high) in tables[compiler].items()}
json.dump(tables, sys.stdout)
