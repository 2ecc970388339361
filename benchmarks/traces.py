"""Recorded edits for the benchmarks: of a folder that the caller has, or those of this repository."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from lookupdec.traces import Trace, load_traces

OWN = Path(__file__).resolve().parents[1] / "datasets" / "edits.jsonl"


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``folder``."""
    parser.add_argument(
        "folder", type=Path, nargs="?",
        help="holds code_edit.jsonl, config_edit.jsonl, doc_rewrite.jsonl and summarize.jsonl, in the format of "
        "datasets/edits.jsonl; without it the edits of that file are taken",
    )  # fmt: skip


def load_kind(folder: Path | None, kind: str, limit: int = 150) -> list[Trace]:
    """Return at most ``limit`` recorded edits of one kind, such as ``code_edit``."""
    if folder is not None:
        return load_traces(folder / f"{kind}.jsonl", limit)
    lines = OWN.read_text(encoding="utf-8").splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as name:
        chosen = Path(name) / f"{kind}.jsonl"
        chosen.write_text(
            "".join(line for line in lines if json.loads(line)["task"] == kind), encoding="utf-8"
        )
        return load_traces(chosen, limit)
