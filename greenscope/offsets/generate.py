"""Makes `rows.py` from CPython's own headers: `python -m greenscope.offsets.generate`.

Each argument is an include directory that holds Python.h (`/usr/include/python3.11`); the
compiler, not we, says where a field lies. The version comes from patchlevel.h there. With
--check nothing is written and a row that differs is an error.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

ROWS = pathlib.Path(__file__).with_name("rows.py")

# field of InterpreterOffsets: C expression. Sources: Include/internal/pycore_runtime.h,
# pycore_interp.h, pycore_frame.h, pycore_dict.h, pycore_moduleobject.h, Include/cpython/{pystate,
# code,unicodeobject,bytesobject,dictobject,tupleobject,funcobject,object}.h.
COMMON = {
    "runtime_interpreters_head": "offsetof(_PyRuntimeState, interpreters.head)",
    "tstate_next": "offsetof(PyThreadState, next)",
    "code_filename": "offsetof(PyCodeObject, co_filename)",
    "code_name": "offsetof(PyCodeObject, co_name)",
    "code_first_line": "offsetof(PyCodeObject, co_firstlineno)",
    "unicode_length": "offsetof(PyASCIIObject, length)",
    "unicode_state": "offsetof(PyASCIIObject, state)",
    "unicode_ascii_size": "sizeof(PyASCIIObject)",
    "unicode_compact_size": "sizeof(PyCompactUnicodeObject)",
    "object_size": "sizeof(PyObject)",
    "object_type": "offsetof(PyObject, ob_type)",
    "type_dict": "offsetof(PyTypeObject, tp_dict)",
    "type_mro": "offsetof(PyTypeObject, tp_mro)",
    "tuple_size": "offsetof(PyTupleObject, ob_base.ob_size)",
    "tuple_items": "offsetof(PyTupleObject, ob_item)",
    "function_code": "offsetof(PyFunctionObject, func_code)",
    "module_dict": "offsetof(PyModuleObject, md_dict)",
    "bytes_size": "offsetof(PyBytesObject, ob_base.ob_size)",
    "bytes_data": "offsetof(PyBytesObject, ob_sval)",
}
BY_VERSION = {
    (3, 11): {
        "runtime_tstate_current": "offsetof(_PyRuntimeState, gilstate.tstate_current)",
        "interp_modules": "offsetof(PyInterpreterState, modules)",
        "tstate_dict": "offsetof(PyThreadState, dict)",
        "dict_keys": "offsetof(PyDictObject, ma_keys)",
        "dict_values": "offsetof(PyDictObject, ma_values)",
        "values_items": "offsetof(PyDictValues, values)",
        "keys_log2_index_bytes": "offsetof(PyDictKeysObject, dk_log2_index_bytes)",
        "keys_kind": "offsetof(PyDictKeysObject, dk_kind)",
        "keys_nentries": "offsetof(PyDictKeysObject, dk_nentries)",
        "keys_indices": "offsetof(PyDictKeysObject, dk_indices)",
        "interp_next": "offsetof(PyInterpreterState, next)",
        "interp_threads_head": "offsetof(PyInterpreterState, threads.head)",
        "tstate_native_thread_id": "offsetof(PyThreadState, native_thread_id)",
        # A thread state points to a _PyCFrame on the C stack, that one to the frame.
        "tstate_version": "offsetof(PyThreadState, context_ver)",
        "tstate_frame": "offsetof(PyThreadState, cframe)",
        "cframe_frame": "offsetof(_PyCFrame, current_frame)",
        "frame_code": "offsetof(_PyInterpreterFrame, f_code)",
        "frame_previous": "offsetof(_PyInterpreterFrame, previous)",
        "frame_instr": "offsetof(_PyInterpreterFrame, prev_instr)",
        "frame_owner": "offsetof(_PyInterpreterFrame, owner)",
        "code_qualname": "offsetof(PyCodeObject, co_qualname)",
        "code_line_table": "offsetof(PyCodeObject, co_linetable)",
        "code_instructions": "offsetof(PyCodeObject, co_code_adaptive)",
    },
}
# Fields that are not an offset, or absent: written into the row as they are.
LITERALS = {
    # 3.11 has no frame of the C stack shim (FRAME_OWNED_BY_CSTACK came with 3.12).
    (3, 11): {"shim_owner": "None", "instr_kind": "InstrKind.POINTER"},
}
PROGRAM = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_dict.h>
#include <internal/pycore_moduleobject.h>
#include <stddef.h>
#include <stdio.h>
int main(void)
{
    printf("version %d.%d\\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
LINES
    return 0;
}
"""


def compile_and_run(include: pathlib.Path, expressions: dict[str, str]) -> dict[str, str]:
    """Prints each expression with the headers in `include`; raises CalledProcessError."""
    lines = "\n".join(
        f'    printf("{name} %zu\\n", (size_t)({code}));' for name, code in expressions.items()
    )
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "offsets.c")
        binary = pathlib.Path(directory, "offsets")
        source.write_text(PROGRAM.replace("LINES", lines))
        subprocess.run(["cc", f"-I{include}", str(source), "-o", str(binary)], check=True)
        output = subprocess.run([str(binary)], check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in output.stdout.splitlines())


def read_row(include: pathlib.Path) -> tuple[tuple[int, int], dict[str, str]]:
    """Version and row (field: Python literal) of one include directory."""
    version_text = compile_and_run(include, {})["version"]
    major, minor = (int(part) for part in version_text.split("."))
    version = (major, minor)
    if version not in BY_VERSION:
        raise SystemExit(f"{include}: no field list for CPython {version_text} in generate.py")
    row = compile_and_run(include, COMMON | BY_VERSION[version])
    del row["version"]
    return version, row | LITERALS[version]


def render(rows: dict[tuple[int, int], dict[str, str]]) -> str:
    """The text of rows.py."""
    parts = [
        '"""Generated by greenscope.offsets.generate from CPython\'s headers. Do not edit."""\n',
        "from greenscope.offsets.table import InstrKind, InterpreterOffsets\n",
        "ROWS: dict[tuple[int, int], InterpreterOffsets] = {",
    ]
    for version, row in sorted(rows.items()):
        body = "".join(f"        {name}={value},\n" for name, value in sorted(row.items()))
        parts.append(f"    {version}: InterpreterOffsets(\n{body}    ),")
    return "\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks rows.py; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("include", nargs="+", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    text = render(dict(read_row(include) for include in options.include))
    if options.check:
        return 0 if ROWS.read_text() == text else 1
    ROWS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
