import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.reports.build import build_report
from collector.reports.document import to_json
from collector.reports.text import render_text
from greenscope.cli import main as module
from greenscope.cli.main import main
from greenscope.cli.report import report
from greenscope.errors import GreenscopeError, PermissionMissing
from greenscope.ship.recording import RecordingSink
from tests.harness.records import SESSION, sample_records


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "a.gscope"
    sink = RecordingSink(path, SESSION)
    sink.write(sample_records())
    sink.close()
    return path


def end_of_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["greenscope", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_report_prints_what_is_in_the_recording(recording: Path) -> None:
    result = CliRunner(env={"COLUMNS": "100"}).invoke(report, [str(recording)])
    assert result.exit_code == 0
    assert result.stdout == render_text(build_report(SESSION, sample_records()), 100)


def test_report_as_json_is_one_document(recording: Path) -> None:
    result = CliRunner().invoke(report, [str(recording), "--json"])
    assert json.loads(result.stdout) == to_json(build_report(SESSION, sample_records()))


def test_report_of_a_cut_recording_says_so_and_succeeds(recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-1])
    result = CliRunner().invoke(report, [str(recording), "--json"])
    assert result.exit_code == 0
    assert "the end is missing" in result.stderr
    (lost,) = json.loads(result.stdout)["lost"]
    assert lost["what"] == "bytes at the end of the recording"


def test_file_that_is_no_recording_is_one_message_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of_main(monkeypatch, "report", __file__) == 9
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"greenscope: {__file__} is no recording of greenscope"
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PermissionMissing("no", "Do that."), 7),
        (GreenscopeError("no"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_errors_end_with_their_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(module, "cli", fail)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert end_of_main(monkeypatch) == code


def test_unknown_command_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of_main(monkeypatch, "atach") == 2
    assert "No such command" in capsys.readouterr().err


def test_report_needs_neither_the_collectors_packages_nor_bcc(recording: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['gevent', 'greenlet', 'chdb', 'bcc']))\n"
        f"sys.argv = ['greenscope', 'report', {str(recording)!r}]\n"
        "from greenscope.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "charge_card" in done.stdout
