"""The shape of the code: who may import whom, and how large a module may get."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 400

BASE = {"greenscope", "greenscope.errors", "greenscope.model"}
ANALYSIS = BASE | {"greenscope.records"}
SYSTEM = ANALYSIS | {"greenscope.cachedir"}
KERNEL = SYSTEM | {
    "greenscope.target",
    "greenscope.offsets",
    "greenscope.bpf",
    "greenscope.bpf.abi",
}
AGENT = KERNEL | {"greenscope.rebuild", "greenscope.ship", "greenscope.budget"}

ALLOWED: dict[str, set[str]] = {
    # layer: what it may import of ours, besides itself. Imports point down.
    "greenscope": set(),
    "greenscope.errors": set(),
    "greenscope.model": {"greenscope.errors"},
    "greenscope.cachedir": {"greenscope.errors"},
    "greenscope.records": BASE,
    "greenscope.target": SYSTEM,
    "greenscope.offsets": SYSTEM | {"greenscope.target"},
    # The layout of what comes from the kernel is plain data: rebuild may see it, not the loader.
    "greenscope.bpf.abi": BASE,
    "greenscope.bpf": SYSTEM | {"greenscope.target", "greenscope.offsets", "greenscope.bpf.abi"},
    "greenscope.rebuild": ANALYSIS
    | {"greenscope.target", "greenscope.offsets", "greenscope.bpf.abi"},
    "greenscope.ship": ANALYSIS,
    "greenscope.budget": BASE,
    "greenscope.checks": KERNEL | {"greenscope.rebuild"},
    "greenscope.attachment": AGENT,
    "greenscope.tracer": AGENT | {"greenscope.attachment"},
    "greenscope.cli": AGENT
    | {"greenscope.attachment", "greenscope.checks", "greenscope.tracer", "collector"},
    "greenscope.__main__": {"greenscope.cli"},
    "collector": ANALYSIS,
}

# The one module that may import it, for packages that are hard to have everywhere.
ONLY_IN = {"bcc": "greenscope.bpf.builder"}

# Imports inside of functions: "module: what is imported", each with its reason here.
LATE_IMPORTS: set[str] = set()


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    line: int
    late: bool


def modules() -> dict[str, Path]:
    found = {}
    for package in ("greenscope", "collector"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(module: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in full]
        else:
            continue
        for name in names:
            yield Import(module, name, node.lineno, id(node) in late)


IMPORTS = [found for module, path in MODULES.items() for found in imports_of(module, path)]


def layer_of(module: str) -> str | None:
    """The longest entry of the table that the module is in; the bare package only for itself."""
    fitting = [
        layer
        for layer in ALLOWED
        if module == layer or (layer != "greenscope" and module.startswith(f"{layer}."))
    ]
    return max(fitting, key=len, default=None)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_has_a_layer(module: str) -> None:
    assert layer_of(module), f"add {module} to ALLOWED in {Path(__file__).name}"


def test_imports_point_down() -> None:
    wrong = []
    for found in IMPORTS:
        target, own = layer_of(found.imported), layer_of(found.importer)
        ours = found.imported.partition(".")[0] in ("greenscope", "collector")
        if ours and own and target != own and target not in ALLOWED[own]:
            wrong.append(f"{found.importer}:{found.line} imports {found.imported}")
    assert not wrong, "\n".join(wrong)


def test_table_itself_points_down() -> None:
    order = list(ALLOWED)
    for layer, below in ALLOWED.items():
        if layer not in ("greenscope.cli", "collector"):
            assert all(order.index(name) < order.index(layer) for name in below), layer


@pytest.mark.parametrize(("package", "home"), ONLY_IN.items())
def test_package_is_imported_in_one_module_only(package: str, home: str) -> None:
    importers = {f.importer for f in IMPORTS if f.imported.partition(".")[0] == package}
    assert importers <= {home}


def test_no_import_hides_inside_a_function() -> None:
    hidden = {f"{f.importer}: {f.imported}" for f in IMPORTS if f.late}
    assert hidden - LATE_IMPORTS == set()


def test_no_module_is_a_drawer_for_everything() -> None:
    assert [m for m in MODULES if m.rpartition(".")[2] in ("utils", "util", "helpers")] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_is_not_longer_than_a_reader_bears(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= MAX_LINES
