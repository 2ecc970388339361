"""The rules of docs/architecture.md that imports and file sizes can show."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lookupdec"
MODULES = sorted(PACKAGE.rglob("*.py"))
# ``python -m lookupdec`` is the command, a door.
CORE = [path for path in MODULES if path.parent == PACKAGE and path.name != "__main__.py"]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def top_level(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", [p for p in MODULES if "hf" not in p.parts], ids=str)
def test_torch_is_imported_in_hf_alone(path: Path) -> None:
    assert "torch" not in top_level(path)
    if path.name != "traces.py":  # it loads a tokenizer where no recorded ids exist
        assert "transformers" not in top_level(path)


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_imports_no_door(path: Path) -> None:
    doors = ("lookupdec.hf", "lookupdec.edit", "lookupdec.cli", "lookupdec.lsp")
    assert not [name for name in imported(path) if name.startswith(doors)]


def test_only_the_targets_touch_the_cache() -> None:
    touching = ("crop(", "activate_past_recording", "get_seq_length", "index_copy_", ".keys[:", ".values[:")
    found = {path.name for path in MODULES for word in touching if word in path.read_text()}
    assert found <= {"target.py", "fixed_cache.py"}
    # `passes` asks what kind of cache a model has, `network` knows by which names a model takes one.
    named = {
        path.name
        for path in MODULES
        for word in ("past_key_values", "DynamicCache")
        if word in path.read_text()
    }
    assert named <= {"network.py", "passes.py"}


def test_importing_the_package_is_quick_for_it_imports_no_other() -> None:
    code = "import sys; before = set(sys.modules); import lookupdec; print(*set(sys.modules) - before)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert {name.split(".")[0] for name in answer.split()} - sys.stdlib_module_names == {"lookupdec"}


def test_nothing_prints_or_unpickles() -> None:
    for path in MODULES:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert "print" not in names, path
        assert "pickle" not in top_level(path), path


@pytest.mark.parametrize(("package", "table"), [("lookupdec", 0), ("editor_api", 1)])
def test_the_architecture_names_every_module(package: str, table: int) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().split("| file | what it does |")[1 + table]
    rows = text.strip().partition("\n\n")[0].splitlines()
    named = [name for row in rows for name in re.findall(r"`([\w/]+\w)`", row.split("|")[1])]
    modules = (path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py"))
    assert sorted(named) == sorted(str(path.with_suffix("")) for path in modules if path.name[:2] != "__")


def test_modules_are_of_a_readable_size() -> None:
    long = {path.name: text.count("\n") for path in MODULES if (text := path.read_text()).count("\n") > 450}
    assert not long


def test_data_folder_holds_no_package() -> None:
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_packaged_files_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "lookupdec"
    ]
    data = {p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc", ".nbi", ".nbc")}
    assert data == {p for pattern in declared for p in PACKAGE.glob(pattern)}
