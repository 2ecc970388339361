"""Prompts for gaps, by families of models, and how a long one is cut."""

from __future__ import annotations

from typing import Any

import pytest

from editor_api.infill import Infill, Infiller, OtherText
from lookupdec.errors import InputError
from tests.hf.tiny import byte_fallback_tokenizer, byte_tokenizer

QWEN = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
FAMILIES = {
    "qwen": (QWEN, "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>"),
    "starcoder": (
        ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
        "<fim_prefix>ab<fim_suffix>cd<fim_middle>",
    ),
    "deepseek": (
        ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
        "<｜fim▁begin｜>ab<｜fim▁hole｜>cd<｜fim▁end｜>",
    ),
    "codellama": (["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"], "▁<PRE>ab▁<SUF>cd▁<MID>"),
    "codestral": (["[PREFIX]", "[SUFFIX]", "[MIDDLE]"], "[SUFFIX]cd[PREFIX]ab"),
    "glm": (
        ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
        "<|code_prefix|>ab<|code_suffix|>cd<|code_middle|>",
    ),
    "seed": (
        ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"],
        "<[fim-suffix]>cd<[fim-prefix]>ab<[fim-middle]>",
    ),
}


def tokenizer_with(*tokens: str) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(list(tokens), special_tokens=True)
    return tokenizer


def infiller(tokenizer: Any, eos: tuple[int, ...] = (256,)) -> Infiller:
    return Infiller(tokenizer, lambda text: tokenizer.encode(text, add_special_tokens=False), eos)


def written(tokenizer: Any, **gap: Any) -> str:
    prompt = infiller(tokenizer).encode(Infill(**gap), "m")
    return str(tokenizer.decode(prompt.ids, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_tokens_and_its_order(family: str) -> None:
    tokens, expected = FAMILIES[family]
    assert written(tokenizer_with(*tokens), prefix="ab", suffix="cd") == expected


def test_a_gap_at_an_end_of_a_text_is_one_too() -> None:
    assert written(tokenizer_with(*QWEN), prefix="", suffix="") == "".join(QWEN)


def test_an_answer_ends_at_the_models_own_end_and_where_another_gap_or_file_begins() -> None:
    tokenizer = tokenizer_with(*QWEN, "<|file_sep|>", "<|other|>")
    ends = infiller(tokenizer).encode(Infill(prefix="a", suffix="b"), "m").ends
    assert set(ends) == {256, *(tokenizer.convert_tokens_to_ids(token) for token in (*QWEN, "<|file_sep|>"))}


def test_other_texts_stand_first_under_their_names() -> None:
    others = [OtherText("x = 1", "a.py"), OtherText("y = 2\n")]
    tokenizer = tokenizer_with(*QWEN, "<|file_sep|>")
    assert written(tokenizer, prefix="p", suffix="s", others=others) == (
        "<|file_sep|>a.py\nx = 1\n<|file_sep|>other\ny = 2\n<|file_sep|>this\n"
        "<|fim_prefix|>p<|fim_suffix|>s<|fim_middle|>"
    )
    assert written(tokenizer_with(*QWEN), prefix="p", suffix="s", others=others) == (
        "x = 1\n\ny = 2\n\n<|fim_prefix|>p<|fim_suffix|>s<|fim_middle|>"
    )


def test_what_is_too_long_loses_other_texts_first_and_then_what_is_far_from_the_gap() -> None:
    tokenizer = tokenizer_with(*QWEN)
    gap: dict[str, Any] = {"prefix": "abcdefgh", "suffix": "ijklmnop"}
    others = [OtherText("far\n"), OtherText("near\n")]
    fits = {"most": 19 + 11, "others": others}
    assert "near" in written(tokenizer, **gap, **fits)
    assert written(tokenizer, **gap, **fits | {"most": 19 + 6}).startswith("near\n\n<|fim_prefix|>abcdefgh")
    assert written(tokenizer, **gap, **fits | {"most": 19}) == (
        "<|fim_prefix|>abcdefgh<|fim_suffix|>ijklmnop<|fim_middle|>"
    )
    assert written(tokenizer, **gap, most=3 + 12) == "<|fim_prefix|>abcdefgh<|fim_suffix|>ijkl<|fim_middle|>"
    assert written(tokenizer, **gap, most=3 + 4) == "<|fim_prefix|>fgh<|fim_suffix|>i<|fim_middle|>"


@pytest.mark.parametrize("most", range(1, 40))
def test_no_prompt_is_longer_than_it_may_be(most: int) -> None:
    tokenizer = tokenizer_with(*QWEN, "<|file_sep|>")
    gap = Infill(prefix="a" * 9, suffix="b" * 9, others=[OtherText("cc", "d")] * 3, most=most)
    prompt = infiller(tokenizer).encode(gap, "m")
    assert len(prompt.ids) <= max(most, 4)
    assert prompt.is_cut


def test_the_usual_opening_of_prompts_stands_first() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tokenizer_with("<s>", *QWEN)
    opening = tokenizer.convert_tokens_to_ids("<s>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<s> $A", None, [("<s>", opening)])
    assert infiller(tokenizer).encode(Infill(prefix="a", suffix=""), "m").ids[0] == opening


def test_a_suffix_begins_without_the_space_that_a_tokenizer_puts_before_texts() -> None:
    from tokenizers import normalizers

    tokenizer = byte_fallback_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Prepend("▁")
    tokenizer.add_tokens(["▁<PRE>", "▁<SUF>", "▁<MID>"], special_tokens=True)
    ids = infiller(tokenizer).encode(Infill(prefix="ab", suffix="ab"), "m").ids
    assert tokenizer.convert_ids_to_tokens(ids) == ["▁<PRE>", "▁", "a", "b", "▁<SUF>", "a", "b", "▁<MID>"]


def test_a_model_without_such_tokens_is_told_by_name() -> None:
    with pytest.raises(InputError, match="tiny has no fill-in-the-middle tokens"):
        infiller(byte_tokenizer()).encode(Infill(prefix="a", suffix="b"), "tiny")
