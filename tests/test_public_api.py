"""The names that the package offers."""

from __future__ import annotations

import pytest

import lookupdec


def test_every_name_can_be_had_and_they_are_sorted() -> None:
    assert lookupdec.__all__ == sorted(lookupdec.__all__)
    assert set(lookupdec.__all__) == set(lookupdec._HOMES)
    for name in lookupdec.__all__:
        assert getattr(lookupdec, name).__module__ == f"lookupdec.{lookupdec._HOMES[name]}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = lookupdec.nothing
