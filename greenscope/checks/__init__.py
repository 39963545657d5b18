"""What greenscope needs of this machine and of a target, checked one by one.

`machine_checks()` and `target_checks(pid)` never raise for something that is missing: that is
their answer.
"""

from __future__ import annotations

from greenscope.checks.machine import machine_checks
from greenscope.checks.result import Check, Status, exit_code_of
from greenscope.checks.target import target_checks

__all__ = ["Check", "Status", "exit_code_of", "machine_checks", "target_checks"]
