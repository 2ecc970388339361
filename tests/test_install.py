"""An editable installation, as ``make demo`` and the README's lines make it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_editable(sys.argv[1]))"
IMPORT = (
    "import site, sys; site.addsitedir(sys.argv[1]); import editor_api, lookupdec.errors, lookupdec; "
    "print(editor_api.__file__, lookupdec.__file__)"
)


def run(folder: Path, *arguments: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_found_from_the_folder_that_holds_the_clone(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    clone, installed = tmp_path / "lookupdec", tmp_path / "installed"
    clone.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for name in ("lookupdec", "editor_api"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    wheel = run(clone, "-c", BUILD, installed).splitlines()[-1]
    with zipfile.ZipFile(installed / wheel) as archive:
        archive.extractall(installed)
    # There, a folder "lookupdec" without an __init__.py lies before the installed package: the clone itself.
    found = run(tmp_path, "-S", "-c", IMPORT, installed).split()
    assert found == [str(clone / name / "__init__.py") for name in ("editor_api", "lookupdec")]
