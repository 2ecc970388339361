"""The names that the package offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lookupdec
from lookupdec.installed import own_version


def test_every_name_can_be_had_and_they_are_sorted() -> None:
    assert lookupdec.__all__ == sorted(lookupdec.__all__)
    assert set(lookupdec.__all__) == set(lookupdec._HOMES)
    for name in lookupdec.__all__:
        assert getattr(lookupdec, name).__module__ == f"lookupdec.{lookupdec._HOMES[name]}"


def test_the_version_is_the_one_installed() -> None:
    assert lookupdec.__version__ == own_version()


@pytest.mark.parametrize("module", ["lookupdec", "lookupdec.cli"])
def test_the_package_can_be_run_as_the_command(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{own_version()}\n", "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = lookupdec.nothing
