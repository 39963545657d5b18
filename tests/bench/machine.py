"""What must be known of the machine to read a figure; nothing that names it."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from tests.harness import default_python

_VERSIONS = (
    "import json, platform; from importlib.metadata import version;"
    "print(json.dumps([platform.python_version(), version('gevent'), version('greenlet')]))"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """CPUs, kernel and versions, and what else ran (load average) when the bench began."""

    date: str
    cpus: int
    cpu_model: str
    virtual: bool
    kernel: str
    load: float
    agent_python: str
    bcc: str
    target_python: str
    gevent: str
    greenlet: str

    def document(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def text(self) -> str:
        """One sentence for docs/."""
        kind = "virtual CPUs" if self.virtual else "CPUs"
        return (
            f"{self.date}: {self.cpus} {kind} ({self.cpu_model}), Linux {self.kernel}, load "
            f"{self.load:.1f} at the start; target CPython {self.target_python}, gevent "
            f"{self.gevent}, greenlet {self.greenlet}; agent CPython {self.agent_python}, bcc "
            f"{self.bcc}."
        )


def this_machine() -> Machine:
    """Asks /proc, this interpreter and the targets'."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line for line in info.splitlines() if line.startswith("model name")), ": ?")
    asked = subprocess.run(
        [default_python(), "-c", _VERSIONS], stdout=subprocess.PIPE, check=True, timeout=60
    )
    target_python, gevent, greenlet = json.loads(asked.stdout)
    return Machine(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        cpus=os.cpu_count() or 0,
        cpu_model=model.partition(":")[2].strip(),
        virtual=" hypervisor" in info,
        kernel=platform.release().partition("-")[0],
        load=os.getloadavg()[0],
        agent_python=platform.python_version(),
        bcc=_version("bcc"),
        target_python=target_python,
        gevent=gevent,
        greenlet=greenlet,
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"
