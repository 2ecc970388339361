"""Fixtures for the tests of ``lookupdec.hf``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lookupdec.hf import LanguageModel, load
from tests.hf.tiny import byte_tokenizer, tiny_model

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def default_model() -> LanguageModel:
    return load()


@pytest.fixture(scope="session")
def tiny() -> LanguageModel:
    """A tiny Llama that reads and writes bytes."""
    model = tiny_model("llama", 3, vocab_size=257, eos_token_id=256, initializer_range=0.3)
    return LanguageModel(model, byte_tokenizer(), "tiny")


@pytest.fixture(scope="session")
def trace_prompts() -> list[list[dict[str, str]]]:
    """Short real edits and summaries as chat messages."""
    if not TRACES.is_dir():
        pytest.skip(f"the traces are not at {TRACES}")
    prompts: list[list[dict[str, str]]] = []
    for name in ("code_edit", "config_edit", "doc_rewrite", "summarize"):
        lines = (TRACES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        items: list[dict[str, Any]] = sorted(map(json.loads, lines), key=lambda item: len(item["input"]))
        short = [item for item in items if len(item["input"]) > 400][:3]
        prompts += [
            [{"role": "user", "content": f"{item['instruction']}\n\n{item['input']}"}] for item in short
        ]
    return prompts


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads wait for each other longer than tiny models compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
