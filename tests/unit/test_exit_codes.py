import re
from pathlib import Path

from greenscope import errors
from greenscope.errors import GreenscopeError

DOCUMENT = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_every_error_is_documented_with_its_own_code() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    raised = {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, GreenscopeError)
    }
    assert {name: int(code) for code, name in rows} == raised
    assert len(set(raised.values())) == len(raised)
