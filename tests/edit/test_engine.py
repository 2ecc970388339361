from types import SimpleNamespace
from typing import Any

import pytest

from lookupdec.decode import PlainDrafter
from lookupdec.draft import CopyDrafter
from lookupdec.edit import Editor
from lookupdec.edit.engine import ModelEngine
from lookupdec.errors import FileError, InputError, ModelError
from lookupdec.hf import PrefixCache

PREFIXES = PrefixCache()
MESSAGES = [
    {"role": "system", "content": "You edit."},
    {"role": "user", "content": "````\na\n```\n````\n\nChange it."},
]


class FakeModel:
    """What an engine needs of a ``LanguageModel``."""

    name = "fake"
    dtype = "torch.bfloat16"
    context_length = 99
    cost = None

    def __init__(self, chat_template: str | None) -> None:
        self.tokenizer = SimpleNamespace(chat_template=chat_template, decode=lambda ids, **_: f"<{ids}>")

    def encode_prompt(self, prompt: object) -> list[int]:
        return [0] * len(str(prompt))

    def encode_text(self, text: str) -> list[int]:
        return list(map(ord, text))


@pytest.fixture
def calls(monkeypatch):
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: Any, **options: Any) -> None:
        calls.append((args, options))

    monkeypatch.setattr("lookupdec.hf.stream", record)
    return calls


def engine(chat_template: str | None) -> ModelEngine:
    return ModelEngine(FakeModel(chat_template), PREFIXES)  # type: ignore[arg-type]


def test_messages_go_through_the_models_chat_template(calls):
    engine("{{ messages }}").stream(MESSAGES, "a", {"seed": 3})
    ((_model, prompt, settings), options) = calls[0]
    assert (prompt, settings.seed, settings.stop_strings) == (MESSAGES, 3, ())
    assert isinstance(options.pop("drafter"), CopyDrafter)
    assert options == {"reference": "a", "namespace": None, "prefixes": PREFIXES}


def test_a_model_without_one_continues_an_open_code_block(calls):
    engine(None).stream(MESSAGES, "a", {"stop": ["END"]})
    ((_model, prompt, settings), _options) = calls[0]
    assert prompt == "You edit.\n\n````\na\n```\n````\n\nChange it.\n\nThe result:\n\n````\n"
    assert settings.stop_strings == ("END", "\n````")


def test_plain_decoding_drafts_nothing(calls):
    engine("x").stream(MESSAGES, "a", {}, plain=True)
    options = calls[0][1]
    assert isinstance(options["drafter"], PlainDrafter)
    assert options["reference"] is None


def test_settings_are_checked_by_name():
    with pytest.raises(TypeError):
        engine("x").check({"tempreature": 1})
    with pytest.raises(InputError):
        engine("x").check({"temperature": -1})


def test_what_the_model_is_can_be_asked():
    fake = engine("x")
    assert (fake.name, fake.dtype, fake.context_length) == ("fake", "bfloat16", 99)
    assert (fake.count_text("abc"), fake.count(MESSAGES) > 10, fake.decode((1, 2))) == (3, True, "<[1, 2]>")


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_package_is_named_with_the_remedy(monkeypatch, missing):
    def fail(name: str, *_args: object) -> None:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr("builtins.__import__", fail)
    with pytest.raises(ModelError, match=rf"models need {missing}: pip install"):
        ModelEngine.load()


def test_how_to_load_reaches_the_loader(monkeypatch):
    asked: list[dict[str, Any]] = []

    def load(_model: object, **options: Any) -> FakeModel:
        asked.append(options)
        return FakeModel("x")

    monkeypatch.setattr("lookupdec.hf.load", load)
    Editor.load("m", dtype="bfloat16", device="cpu", exact="fast", progress=print)
    assert asked == [{"dtype": "bfloat16", "device": "cpu", "exact": "fast", "progress": print}]


def test_earlier_answers_help_to_draft_in_their_namespace(calls):
    fake = engine("x")
    fake.remember("abc", "mine")
    fake.stream(MESSAGES, "a", {}, namespace="mine")
    cache = calls[0][1]["drafter"]._cache
    assert cache.namespaces() == ("mine",)
    assert len(cache) == len("abc")


def test_phrases_are_drafted_from(calls, monkeypatch, tmp_path):
    file = tmp_path / "phrases.txt"
    file.write_text("/* all rights reserved */\n")
    monkeypatch.setattr("lookupdec.hf.load", lambda *_args, **_options: FakeModel("x"))
    Editor.load(phrases=file).engine.stream(MESSAGES, "a", {})
    drafter = calls[0][1]["drafter"]
    drafter.begin([5, 6, 7])
    drafter.observe(list(map(ord, "/* all")))
    assert bytes(drafter.propose(7).tolist()) == b" rights"


def test_phrases_that_cannot_be_read_are_told_before_a_model_is_loaded(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        Editor.load("no model", phrases=tmp_path / "none")
