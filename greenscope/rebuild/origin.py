"""Whose code a file is: the application's, a library's, the interpreter's own."""

from __future__ import annotations

import re

from greenscope.model import CodeOrigin

_LIBRARY = re.compile(r"/(?:site|dist)-packages/")
# lib/python3.11/json/decoder.py, /usr/lib64/python3.9/..., python311.zip
_STDLIB = re.compile(r"/lib(?:64)?/python\d\.\d+/|/python\d{2,3}\.zip/")
# importlib's bootstrap and other frozen modules have no file.
_FROZEN = re.compile(r"<frozen [^>]+>")


def code_origin(file: str) -> CodeOrigin:
    """The origin of a code object by its co_filename.

    Code without a file that the program made itself ("<string>", "<stdin>") is its own.
    """
    if _LIBRARY.search(file):
        return CodeOrigin.LIBRARY
    if _STDLIB.search(file) or _FROZEN.match(file):
        return CodeOrigin.STDLIB
    return CodeOrigin.APPLICATION
