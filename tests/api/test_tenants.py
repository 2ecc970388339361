"""One tenant's text never speeds up another's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editor_api.embedded import EmbeddedEngine
from editor_api.metrics import Metrics
from editor_api.work import Sessions, Work
from lookupdec.hf import LanguageModel
from lookupdec.phrases import read_phrases
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, embedding, serving, until

ASKED = "Tell me what nobody else has asked."


@pytest.fixture
def shared(tiny_language_model: LanguageModel, tmp_path: Path) -> Iterator[Served]:
    """A service with two keys over the embedded engine."""
    file = tmp_path / "keys"
    file.write_text("alice\nbob\n")
    with embedding(tiny_language_model, api_keys_file=file) as running:
        yield running


@pytest.fixture
def letters_only(tiny_language_model: LanguageModel) -> dict[str, Any]:
    """A request's fields with which the tiny model writes letters only."""
    tokens = range(tiny_language_model.model.config.vocab_size)
    others = [token for token in tokens if not str(tiny_language_model.tokenizer.decode([token])).isalpha()]
    return {"logit_bias": {str(token): -100 for token in others}}


@pytest.fixture
def phrased(
    tiny_language_model: LanguageModel, shared: Served, letters_only: dict[str, Any], tmp_path: Path
) -> Iterator[Served]:
    """A service whose phrases hold what the model answers."""
    phrases = tmp_path / "phrases.jsonl"
    phrases.write_text(json.dumps({"text": ask(shared, "alice", **letters_only)["text"]}) + "\n")
    engine = EmbeddedEngine(lambda: tiny_language_model, phrases=read_phrases(phrases))
    with serving(engine) as running:
        until(lambda: engine.capacity.state == "ready")
        yield running


def ask(served: Served, key: str, **fields: Any) -> dict[str, Any]:
    served.client.headers["authorization"] = f"Bearer {key}"
    answer = served.chat(ASKED, max_tokens=60, **fields).json()
    timings = answer["timings"]
    return {"text": answer["choices"][0]["message"]["content"], **timings}


def counts(answer: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(answer[name] for name in ("text", "passes", "draft_n", "draft_n_accepted", "draft_sources"))


def test_another_tenants_answers_are_neither_copied_nor_learnt_from(shared: Served) -> None:
    first = ask(shared, "alice")
    again = ask(shared, "alice")
    assert again["passes"] < first["passes"]
    assert again["draft_sources"]["past output"]["draft_n_accepted"] > 0
    # Whatever Alice asked and however often, Bob's first answer costs what hers did.
    assert counts(ask(shared, "bob")) == counts(first)


def test_phrases_are_everyones(shared: Served, phrased: Served, letters_only: dict[str, Any]) -> None:
    without, answer = ask(shared, "bob", **letters_only), ask(phrased, "bob", **letters_only)
    assert answer["text"] == without["text"]
    assert answer["draft_sources"]["phrase"]["draft_n_accepted"] > 0
    assert answer["passes"] < without["passes"]


def test_another_sessions_answers_are_not_copied(shared: Served) -> None:
    ask(shared, "alice", session="a")
    other = ask(shared, "alice", session="b")
    apart = ask(shared, "alice", prompt_cache_key="c")
    assert "past output" not in other["draft_sources"]
    assert "past output" not in apart["draft_sources"]
    assert "past output" in ask(shared, "alice", session="a")["draft_sources"]


def test_what_another_tenant_has_read_is_read_again(shared: Served) -> None:
    assert ask(shared, "alice")["cache_n"] == 0
    assert ask(shared, "alice")["prompt_n"] == 1
    assert ask(shared, "alice", session="a")["cache_n"] == 0
    assert ask(shared, "alice", prompt_cache_key="a")["cache_n"] == 0
    assert ask(shared, "alice", session="a", prompt_cache_key="b")["cache_n"] == 0
    assert ask(shared, "alice", session="a")["cache_n"] > 0
    assert ask(shared, "alice", prompt_cache_key="a")["cache_n"] > 0
    assert ask(shared, "bob")["cache_n"] == 0


def test_a_session_is_replaced_by_its_own_tenant_alone() -> None:
    engine = FakeEngine()
    sessions, metrics = Sessions(), Metrics(engine)
    alices, bobs, newer = (Work(engine, metrics, arrived=0.0) for _ in range(3))
    sessions.begin("alice", "s", alices)
    sessions.begin("bob", "s", bobs)
    sessions.begin("alice", None, newer)
    assert not alices.is_stopped
    sessions.begin("alice", "s", newer)
    assert alices.is_stopped
    assert not bobs.is_stopped
    assert not newer.is_stopped
