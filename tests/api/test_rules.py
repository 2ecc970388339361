"""What the service may import, and how large its modules may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from editor_api.apply_schemas import ApplyRequest
from editor_api.errors import as_api_error
from editor_api.infill_schemas import FimRequest, InfillRequest
from editor_api.llama_schemas import DetokenizeRequest, TemplateRequest, TokenizeRequest
from editor_api.schemas import ChatRequest, CompletionRequest, EditRequest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "editor_api").rglob("*.py"))
SCHEMAS = (
    *(ChatRequest, CompletionRequest, EditRequest, ApplyRequest, FimRequest, InfillRequest),
    *(TokenizeRequest, DetokenizeRequest, TemplateRequest),
)
DOORS = {
    "lookupdec",
    *(f"lookupdec.{name}" for name in ("edit", "errors", "hf", "installed", "limits", "phrases", "stats")),
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_see_the_library_by_its_doors(path: Path) -> None:
    names = set(imported(path))
    assert {name for name in names if name.startswith("lookupdec")} <= DOORS
    assert not {name.split(".")[0] for name in names} & {"torch", "transformers"}
    text = path.read_text()
    assert text.count("\n") < 400
    assert "print(" not in text


def test_the_engine_knows_no_http() -> None:
    for name in ("engine", "embedded", "runner", "grammar", "detect", "infill"):
        names = {item.split(".")[0] for item in imported(ROOT / "editor_api" / f"{name}.py")}
        assert not names & {"fastapi", "starlette", "uvicorn", "pydantic"}


def test_the_documentation_names_every_field() -> None:
    text = (ROOT / "docs" / "http.md").read_text()
    aliases = {"n_predict", "wanted"}  # another server's spelling; "return" on the wire
    for schema in SCHEMAS:
        for name in set(schema.model_fields) - aliases:
            assert f"`{name}`" in text or f'"{name}"' in text or f"`{name}." in text, name


def test_unforeseen_errors_are_told_without_details() -> None:
    assert "secret" not in str(as_api_error(RuntimeError("secret")).body)
