"""Twenty greenlets, each five calls deep in functions of its own, block at the bottom.

Each writes `traceback.extract_stack()` of that very line as the truth. The functions are
generated into a real file, so that names and lines differ from greenlet to greenlet.
"""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from typing import Any, Callable, List

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason

GREENLETS = 20
DEPTH = 5

CALLER = """
def g{number:02d}_level{level}(truth, seconds):
    seconds = seconds + 0.0
    g{number:02d}_level{below}(truth, seconds)
"""
BOTTOM = """
def g{number:02d}_level{level}(truth, seconds):
    with truth.act(reason, "g{number:02d}"):
        sleep(truth.stack("g{number:02d}", extract_stack()) or seconds)  # GUILTY
"""


def generated_functions(path: str) -> List[Callable[[Truth, float], None]]:
    """The outermost function of each greenlet, from a module written to `path`."""
    source = "from time import sleep\nfrom traceback import extract_stack\n"
    for number in range(GREENLETS):
        for level in range(DEPTH - 1):
            source += CALLER.format(number=number, level=level, below=level + 1)
        source += BOTTOM.format(number=number, level=DEPTH - 1)
    with open(path, "w") as out:
        out.write(source)
    module: dict[str, Any] = {"reason": sleep_reason()}
    exec(compile(source, path, "exec"), module)
    return [module["g%02d_level0" % number] for number in range(GREENLETS)]


def warm_line_cache(path: str) -> None:
    """Let traceback read the files now: the script must not wait for a disk."""
    linecache.getlines(path)
    traceback.extract_stack()


def main() -> None:
    path = os.path.join(sys.argv[1], "generated_stacks.py")
    functions = generated_functions(path)
    warm_line_cache(path)
    with scripted(nb_read) as truth:
        seconds = option("ms", 15.0) / 1000
        for _ in range(option("times", 2)):
            gevent.joinall([gevent.spawn(function, truth, seconds) for function in functions])
            gevent.sleep(0.01)


if __name__ == "__main__":
    main()
