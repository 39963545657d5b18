"""Runs the programs of tests/targets and reads what they say of themselves."""

from tests.harness.runner import (
    ExitReport,
    RunningTarget,
    TargetError,
    TargetUnavailable,
    default_python,
    run_target,
)
from tests.harness.truth import Act, StackTruth, TruthFile
from tests.harness.watch import StateWatch, pending_signals, state_watch

__all__ = [
    "Act",
    "ExitReport",
    "RunningTarget",
    "StackTruth",
    "StateWatch",
    "TargetError",
    "TargetUnavailable",
    "TruthFile",
    "default_python",
    "pending_signals",
    "run_target",
    "state_watch",
]
