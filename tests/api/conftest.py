"""Fixtures for the tests of ``editor_api``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from editor_api.embedded import EmbeddedEngine
from lookupdec.hf import LanguageModel, load
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, embedding, serving, until
from tests.hf.tiny import byte_tokenizer, tiny_model

TINY = {"vocab_size": 257, "eos_token_id": 256, "initializer_range": 0.3, "max_position_embeddings": 2048}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Several threads wait for each other longer than tiny models compute."""
    torch.set_num_threads(1)


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def served(fake: FakeEngine) -> Iterator[Served]:
    """The service over the fake engine."""
    with serving(fake) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_language_model() -> LanguageModel:
    """A tiny Llama that reads and writes bytes."""
    return LanguageModel(tiny_model("llama", 3, **TINY), byte_tokenizer(), "tiny")


@pytest.fixture(scope="module")
def tiny_served(tiny_language_model: LanguageModel) -> Iterator[Served]:
    """The service over the embedded engine with a tiny model."""
    with embedding(tiny_language_model) as running:
        yield running


@pytest.fixture(scope="module")
def model_served() -> Iterator[Served]:
    """The service with the default model. How long drafts are follows no clock."""
    engine = EmbeddedEngine(lambda: load(measure_cost=False))
    with serving(engine) as running:
        until(lambda: engine.capacity.state != "loading")
        yield running
