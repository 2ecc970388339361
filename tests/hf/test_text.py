"""Text as it comes: whole characters, stop strings held back and cut off."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lookupdec.hf.text import Detokenizer, TextStream
from tests.hf.tiny import byte_fallback_tokenizer, byte_tokenizer

TEXTS = [
    "plain words, and some more.",
    "emoji 👩‍👩‍👧‍👦 and 🏳️‍🌈 and 🤷🏽",
    "日本語と한국어 and ďábel e\u0301a\u0300",
    "  leading and trailing spaces  \n\n\t",
    "\N{REPLACEMENT CHARACTER}",
    "a .b , c ! it 's",
]


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(token) for token in ids] + [detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text_and_hold_no_half_character(text: str) -> None:
    tokenizer = byte_tokenizer()
    parts = pieces(tokenizer, tokenizer.encode(text))
    assert "".join(parts) == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert all("\N{REPLACEMENT CHARACTER}" not in part for part in parts)


@pytest.mark.parametrize(
    "tokens",
    [
        ["▁Hello", "▁world"],
        ["▁Hello", "<0xE2>", "<0x82>", "<0xAC>", "<0xE2>", "<0x82>", "<0xAC>", "a"],
        ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁", "é"],
        ["▁", "▁", "a", "▁world", "."],
    ],
)
def test_byte_fallback_and_word_starts_give_the_text_of_the_whole(tokens: list[str]) -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = tokenizer.convert_tokens_to_ids(tokens)
    parts = pieces(tokenizer, ids)
    assert "".join(parts) == tokenizer.decode(ids)
    assert all("\N{REPLACEMENT CHARACTER}" not in part for part in parts)


def test_bytes_that_never_become_a_character_come_out_at_the_end() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("a€")[:-1]
    assert pieces(tokenizer, ids) == ["a", "", "", "\N{REPLACEMENT CHARACTER}"]


def test_bytes_followed_by_other_text_are_not_held_for_ever() -> None:
    tokenizer = byte_tokenizer()
    half = tokenizer.encode("€")[:-1]
    parts = pieces(tokenizer, [*half, *tokenizer.encode("ab")])
    assert "".join(parts) == "\N{REPLACEMENT CHARACTER}ab"
    assert parts[-2] == "b"


def test_special_tokens_are_no_text() -> None:
    tokenizer = byte_tokenizer()
    end = tokenizer.eos_token_id
    assert "".join(pieces(tokenizer, [*tokenizer.encode("a"), end, *tokenizer.encode("b")])) == "ab"


def test_every_mix_of_characters_survives_every_split() -> None:
    tokenizer = byte_tokenizer()
    chance = random.Random(0)
    for _ in range(50):
        text = "".join(chance.choice("aé€😀\u0301 \n語") for _ in range(12))
        stream, shown = TextStream(tokenizer, ["zz"]), ""
        for token in tokenizer.encode(text):
            assert not stream.push(token)
            if chance.random() < 0.5:
                shown += stream.take()
                assert text.startswith(shown)
        assert shown + stream.take(final=True) == text


def show(text: str, stop: list[str]) -> tuple[list[str], str | None]:
    tokenizer = byte_tokenizer()
    stream, parts = TextStream(tokenizer, stop), []
    for token in tokenizer.encode(text):
        ended = stream.push(token)
        parts.append(stream.take(final=ended))
        if ended:
            break
    parts.append(stream.take(final=True))
    return parts, stream.stopped_by


@pytest.mark.parametrize(
    ("text", "stop", "shown", "stopped_by"),
    [
        ("the own fox", ["own fox"], "the ", "own fox"),
        ("a\nUser:b", ["\nUser:"], "a", "\nUser:"),
        ("ababac", ["abac"], "ab", "abac"),
        ("no match here", ["matches"], "no match here", None),
        ("ends with a pre", ["prefix"], "ends with a pre", None),
        ("one two", ["two", "ne t"], "o", "ne t"),
        ("x€y", ["€"], "x", "€"),
        ("abc", ["b", "abc"], "a", "b"),
    ],
)
def test_stop_strings(text: str, stop: list[str], shown: str, stopped_by: str | None) -> None:
    parts, by = show(text, stop)
    assert ("".join(parts), by) == (shown, stopped_by)


def test_no_beginning_of_a_stop_string_is_ever_shown() -> None:
    parts, _ = show("a<<b<<<EN<<<END", ["<<<END"])
    assert parts[:5] == ["a", "", "", "<<b", ""]
    assert "".join(parts) == "a<<b<<<EN"


def test_text_after_a_stop_string_within_one_block_is_not_shown() -> None:
    tokenizer = byte_tokenizer()
    stream = TextStream(tokenizer, ["ST"])
    for token in tokenizer.encode("abSTcd"):
        if stream.push(token):
            break
    assert stream.take(final=True) == "ab"
    assert stream.take(final=True) == ""
