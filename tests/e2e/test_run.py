"""`greenscope run -- COMMAND`: from the first switch on, with the command's own exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import default_python
from tests.harness.agent import run_cli

pytestmark = pytest.mark.bpf

# Counts its own switches from the moment at which greenlet is imported.
PROGRAM = """
import json, sys
import greenlet
count = [0]
def on_switch(event, switch):
    count[0] += switch[0] is not switch[1]
greenlet.settrace(on_switch)
import gevent
def worker():
    for _ in range(1000):
        gevent.sleep(0.001)
gevent.joinall([gevent.spawn(worker) for _ in range(10)])
with open(sys.argv[1], "w") as out:
    json.dump(count[0], out)
sys.exit(7)
"""


def test_every_switch_since_the_import_is_counted(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    result = run_cli("run", "--json", "--", default_python(), "-c", PROGRAM, str(counted))
    assert result.returncode == 7, result.stderr
    document = json.loads(result.stdout)
    switches = sum(thread["switches"] for thread in document["threads"])
    assert switches == json.loads(counted.read_text())
    assert sum(row["ended"] for row in document["greenlets"]) == 10


def test_the_greenlet_of_a_child_is_found(tmp_path: Path) -> None:
    """Its first switches may be missed: only the command's own process is probed in advance."""
    counted = tmp_path / "count"
    script = f'{default_python()} -c "$0" {counted}; exit 5'
    result = run_cli("run", "--json", "--", "sh", "-c", script, PROGRAM)
    assert result.returncode == 5, result.stderr
    document = json.loads(result.stdout)
    switches = sum(thread["switches"] for thread in document["threads"])
    assert 0 < switches <= json.loads(counted.read_text())
