"""Which text a record may carry."""

from __future__ import annotations

from typing import Final

MAX_TEXT_CHARACTERS: Final = 4096


def storable(text: str) -> str:
    r"""The text as records and reports carry it: valid UTF-8 and of bounded length.

    Names in a target need not be UTF-8: Python keeps the bytes of a file name that is not as
    lone surrogates, which neither msgpack nor JSON can carry. They come out as `\udcff`.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[: MAX_TEXT_CHARACTERS - 3] + "..."
    if text.isascii():
        return text
    return without_surrogates(text)


def without_surrogates(text: str) -> str:
    r"""The text with its lone surrogates as Python escapes them: `\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
