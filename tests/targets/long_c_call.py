"""Two greenlets make one long C call at a time: zlib.compress and json.dumps."""

from __future__ import annotations

import json
import random
import zlib
from typing import Dict, List

import gevent
from gevent.os import nb_read

from calibration import sized_for
from truth import Truth, option, scripted

Rows = List[Dict[str, int]]


def compress_archive(truth: Truth, data: bytes) -> None:
    with truth.act("cpu", "archiver"):
        zlib.compress(data, 9)  # GUILTY


def export_rows(truth: Truth, rows: Rows) -> None:
    with truth.act("cpu", "exporter"):
        json.dumps(rows)  # GUILTY


def random_bytes(size: int) -> bytes:
    return bytes(random.Random(1).choices(b"abcdefgh", k=size))


def rows_of(size: int) -> Rows:
    return [{"id": number, "price": number * 7, "stock": number % 9} for number in range(size)]


def main() -> None:
    duration_ns = int(option("ms", 60.0) * 1e6)
    data = sized_for(duration_ns, random_bytes, lambda made: zlib.compress(made, 9))
    rows = sized_for(duration_ns, rows_of, json.dumps)
    with scripted(nb_read) as truth:
        for _ in range(option("times", 6)):
            gevent.spawn(compress_archive, truth, data).get()
            gevent.sleep(0.01)
            gevent.spawn(export_rows, truth, rows).get()
            gevent.sleep(0.01)


if __name__ == "__main__":
    main()
