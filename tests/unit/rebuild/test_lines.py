"""Line tables, compared with what the interpreter itself says of the same code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.rebuild.lines import line_at

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="this interpreter's table has another form"
)

# Each shape behind its name.
SOURCES = """
## loop
def f(n):
    for i in range(n):
        if i:
            continue
        print(i)
## try
def f():
    try:
        g()
    except (ValueError, KeyError) as e:
        h(e)
    else:
        k()
    finally:
        l()
## with
def f():
    with a() as x, b(
        x
    ) as y:
        return y
## multi-line call
def f():
    return g(
        1,
        h(
            2,
        ),
    )
## decorators
@a
@b(
    1
)
def f():
    @c
    def g():
        pass
    return g
## lambda
f = lambda x: (
    x +
    g(x)
)
## comprehension
def f(xs):
    return [
        g(x)
        for x in xs
        if h(x)
    ]
## generator
def f():
    x = yield 1
    yield from g(
        x
    )
## coroutine
async def f():
    async with a:
        async for x in b:
            await x
## class
class A(B):
    x: int = 1
    def m(self):
        return super().m()
## match
def f(x):
    match x:
        case [1, *_]:
            return 1
        case _:
            pass
## while else
def f():
    while g():
        break
    else:
        h()
## backwards
def f():
    x = (g
         (1,
          2)
         .h(
             3))
    return x
## empty
"""
SHAPES = {
    name: source
    for name, _, source in (part.partition("\n") for part in SOURCES.split("\n## ")[1:])
} | {
    "far apart": "def f():\n    a()\n" + "\n" * 300 + "    b()\n" + "\n" * 70000 + "    c()\n",
    "long": "def f():\n" + "".join(f"    x{i} = g(\n        {i})\n" for i in range(150)),
    "wide": "def f():\n    return " + " + ".join(f"name_{i}" for i in range(150)) + "\n",
    "later first line": "\n" * 40000 + "def f():\n    g()\n",
}


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that are nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def check_lines(code: CodeType) -> None:
    expected = [line or 0 for start, end, line in code.co_lines() for _ in range(start, end, 2)]
    offsets = range(0, len(code.co_code), 2)
    found = [line_at(code.co_linetable, code.co_firstlineno, offset) for offset in offsets]
    assert found == expected[: len(found)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_has_the_line_that_the_interpreter_gives(shape: str) -> None:
    for code in codes(compile(SHAPES[shape], "shape.py", "exec")):
        check_lines(code)


@pytest.mark.parametrize("module", ["dataclasses", "inspect", "typing", "decimal", "asyncio.tasks"])
def test_every_instruction_of_a_real_module_has_its_line(module: str) -> None:
    loader = __import__(module, fromlist=["x"]).__loader__
    for code in codes(loader.get_code(module)):
        check_lines(code)


def test_traceback_and_table_agree_on_a_call_in_a_nested_expression() -> None:
    source = "def f(g):\n    return [\n        1,\n        g(),\n    ]\n"
    names: dict[str, object] = {}
    exec(compile(source, "nested.py", "exec"), names)

    def caller() -> tuple[int, int]:
        frame = sys._getframe(1)
        code = frame.f_code
        return frame.f_lineno, line_at(code.co_linetable, code.co_firstlineno, frame.f_lasti)

    [_, (line, found)] = names["f"](caller)  # type: ignore[operator]
    assert (line, found) == (4, 4)


@pytest.mark.parametrize("offset", [1 << 20, (1 << 64) - 1])
def test_instruction_behind_the_code_has_no_line(offset: int) -> None:
    code = compile(SHAPES["loop"], "shape.py", "exec")
    assert line_at(code.co_linetable, 1, offset) == 0


def test_table_that_is_cut_gives_no_line() -> None:
    code = next(iter(codes(compile(SHAPES["loop"], "shape.py", "exec").co_consts[0])))
    last = len(code.co_code) - 2
    for length in range(len(code.co_linetable)):
        assert line_at(code.co_linetable[:length], code.co_firstlineno, last) in (
            0,
            line_at(code.co_linetable, code.co_firstlineno, last),
        )


@settings(deadline=None, derandomize=True)
@given(table=st.binary(max_size=200), offset=st.integers(0, 500))
def test_any_bytes_give_a_line_or_none_of_it(table: bytes, offset: int) -> None:
    assert isinstance(line_at(table, 1, offset), int)


STATEMENTS = st.recursive(
    st.sampled_from(
        ["pass", "g()", "x = (a,\n b,\n\n  c())", "return g(\n\n1)", "del x", "x += 1"]
    ),
    lambda inner: st.tuples(
        st.sampled_from(["if a:", "for x in b(\n c):", "while a:", "with a(\n\n) as x:"]),
        st.lists(inner, min_size=1, max_size=4),
        st.integers(0, 40),
    ).map(lambda parts: block(*parts)),
    max_leaves=12,
)


def block(head: str, body: list[str], gap: int) -> str:
    lines = "\n".join(body).split("\n")
    return head + "\n" * (gap + 1) + "\n".join(f"    {line}" for line in lines)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(body=st.lists(STATEMENTS, min_size=1, max_size=6), gap=st.integers(0, 300))
def test_generated_functions_have_the_lines_of_the_interpreter(body: list[str], gap: int) -> None:
    for code in codes(compile("\n" * gap + block("def f():", body, 0), "made.py", "exec")):
        check_lines(code)
