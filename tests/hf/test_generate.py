"""``generate`` and ``stream``: text, stops, limits, errors and what is left behind."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor

from lookupdec.decode import Drafter, PlainDrafter
from lookupdec.errors import ContextFullError, InputError
from lookupdec.hf import Chunk, Generation, LanguageModel, Settings, generate, stream
from tests.hf.drafters import DRAFTERS, Known, NaiveCopier
from tests.hf.tiny import byte_tokenizer, plain, random_prompt, tiny_model, wrap

TEXT = "naïve 語 👩‍👩‍👧 e\u0301: the cat sat, the cat sat. Sluß!"


class Recite(LogitsProcessor):
    """Makes any model say a fixed text."""

    def __init__(self, prompt_length: int, script: Sequence[int]) -> None:
        self.prompt_length = prompt_length
        self.script = list(script)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        said = torch.full_like(scores, float("-inf"))
        said[:, self.script[input_ids.shape[1] - self.prompt_length]] = 0.0
        return said


def reciting(tiny: LanguageModel, text: str, **settings: Any) -> tuple[list[int], Settings]:
    """Return a prompt and settings for which ``tiny`` says ``text`` and ends."""
    script = [*tiny.encode_text(text), 256]
    prompt = tiny.encode_prompt("say it: the cat sat")
    return prompt, Settings(logits_processor=[Recite(len(prompt), script)], **settings)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_stream_joins_to_the_text_of_generate(
    tiny: LanguageModel, drafter: Callable[[], Drafter | None]
) -> None:
    prompt, settings = reciting(tiny, TEXT)
    whole = generate(tiny, prompt, settings, drafter=drafter())
    chunks = list(stream(tiny, prompt, settings, drafter=drafter()))
    assert whole.text == "".join(chunk.text for chunk in chunks) == TEXT
    assert whole.ids == tuple(token for chunk in chunks for token in chunk.ids)
    assert whole.ids[-1] == 256
    assert all("\N{REPLACEMENT CHARACTER}" not in chunk.text for chunk in chunks)
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == whole.finish_reason == "stop"
    assert whole.stats.tokens == len(whole.ids)


def test_chunks_tell_where_tokens_were_copied_from(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT)
    chunks = list(stream(tiny, prompt, settings, drafter=NaiveCopier()))
    copied = [chunk for chunk in chunks if chunk.step.accepted]
    assert copied
    assert {source for chunk in copied for source in chunk.step.sources} == {"prompt"}
    stats = chunks[-1].stats
    assert stats.accepted == sum(chunk.step.accepted for chunk in chunks)
    assert stats.by_source["prompt"].accepted == stats.accepted
    assert stats.passes == len(chunks) - 1 < stats.tokens - 1


def test_every_token_has_its_own_piece_of_text_and_none_is_half_a_character(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT)
    script = settings.logits_processor[0].script  # type: ignore[attr-defined]
    chunks = list(stream(tiny, prompt, settings, drafter=Known(script, most=9)))
    assert max(len(chunk.ids) for chunk in chunks) > 5
    assert all(len(chunk.pieces) == len(chunk.ids) for chunk in chunks)
    assert [chunk.text for chunk in chunks] == ["".join(chunk.pieces) for chunk in chunks]
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    # However the tokens came, the pieces are those of one token a pass, and whole characters.
    plainly = [chunk.text for chunk in stream(tiny, prompt, settings, drafter=PlainDrafter())]
    assert pieces == plainly
    assert "".join(pieces) == TEXT
    assert all(len(piece) <= 1 and "\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)


def test_pieces_hold_back_what_may_become_a_stop_string(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, "a<<b<<<EN<<<ENDxyz", stop="<<<END")
    script = settings.logits_processor[0].script  # type: ignore[attr-defined]
    for drafter in (PlainDrafter(), Known(script, most=12), None):
        pieces = [
            piece for chunk in stream(tiny, prompt, settings, drafter=drafter) for piece in chunk.pieces
        ]
        assert pieces == ["a", "", "", "<<b", "", "", "", "", "", "<<<EN", "", "", "", "", ""]


def windows(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    for length in (1, 2, 3):
        for start in range(0, len(ids) - length, 2):
            yield start, start + length


def test_stop_strings_over_windows_of_the_own_output_equal_generate(tiny: LanguageModel) -> None:
    prompt = tiny.encode_prompt("start start")
    decode = cast(Callable[[Sequence[int]], str], tiny.tokenizer.decode)
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 20,
        "do_sample": False,
    }
    # Only letters: half characters have no stop string.
    options["suppress_tokens"] = [token for token in range(257) if not decode([token]).isalpha()]
    free = tiny.model.generate(ids, **options)[0, len(prompt) :].tolist()  # type: ignore[operator]
    text = decode(free)
    assert len(set(free)) > 4
    for start, end in windows(free):
        stop = decode(free[start:end])
        expected = tiny.model.generate(ids, **options, stop_strings=[stop], tokenizer=tiny.tokenizer)  # type: ignore[operator]
        settings = Settings(max_new_tokens=20, suppress_tokens=options["suppress_tokens"], stop=stop)
        for drafter in (Known(free), None):
            result = generate(tiny, prompt, settings, drafter=drafter)
            assert list(result.ids) == expected[0, len(prompt) :].tolist()
            assert result.text == text[: text.index(stop)]
            assert (result.finish_reason, result.stop) == ("stop", stop)


@pytest.mark.parametrize("own", ["cat sat.", ["zzz", "cat sat."]])
def test_the_models_own_stop_strings_count_beside_those_asked_for(own: str | list[str]) -> None:
    model = wrap(tiny_model(vocab_size=257))
    model.model.generation_config.stop_strings = own
    prompt, settings = reciting(model, TEXT)
    result = generate(model, prompt, settings)
    assert (result.text, result.stop) == (TEXT[: TEXT.index("cat sat.")], "cat sat.")
    earlier = generate(model, prompt, replace(settings, stop="naïve"))
    assert (earlier.text, earlier.stop) == ("", "naïve")


def test_no_chunk_shows_the_beginning_of_a_stop_string(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT, stop=["cat sat.", "zzz"])
    script = settings.logits_processor[0].script  # type: ignore[attr-defined]
    for drafter in (PlainDrafter(), Known(script, most=7)):
        shown = ""
        for chunk in stream(tiny, prompt, settings, drafter=drafter):
            shown += chunk.text
            assert TEXT.startswith(shown)
            assert len(shown) <= TEXT.index("cat sat.") or "cat sat," in shown
        assert shown == TEXT[: TEXT.index("cat sat.")]
        assert (chunk.finish_reason, chunk.stop) == ("stop", "cat sat.")


def test_the_end_of_text_token_is_no_text_whichever_it_is(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, "abcdef", eos_token_id=tiny.encode_text("d")[0])
    result = generate(tiny, prompt, settings, drafter=NaiveCopier())
    assert (result.text, result.finish_reason, result.stop) == ("abc", "stop", None)
    assert len(result.ids) == 4


def test_min_new_tokens_holds_back_the_end(tiny: LanguageModel) -> None:
    prompt = tiny.encode_prompt("abcabc")
    favoured = Settings(max_new_tokens=12, min_new_tokens=6, logit_bias={256: 100.0})
    result = generate(tiny, prompt, favoured, drafter=NaiveCopier())
    assert (len(result.ids), result.ids[-1], result.finish_reason) == (7, 256, "stop")


def test_a_deadline_ends_inside_a_block(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT * 3, deadline=0.0)
    result = generate(tiny, prompt, settings, drafter=NaiveCopier())
    assert (len(result.ids), result.finish_reason) == (1, "deadline")


def test_a_deadline_in_the_middle_of_a_block_ends_there(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, settings = reciting(tiny, TEXT, deadline=9.5)
    script = settings.logits_processor[0].script  # type: ignore[attr-defined]
    # A second passes whenever somebody looks: once at the beginning and once per token.
    monkeypatch.setattr(sys.modules["lookupdec.hf.generate"], "monotonic", itertools.count().__next__)
    for drafter in (Known(script, most=30), PlainDrafter()):
        result = generate(tiny, prompt, settings, drafter=drafter)
        assert (result.ids, result.finish_reason) == (tuple(script[:10]), "deadline")
        assert result.text == tiny.tokenizer.decode(script[:10])


def test_a_deadline_not_reached_changes_nothing(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT, deadline=600.0)
    assert generate(tiny, prompt, settings, drafter=NaiveCopier()).finish_reason == "stop"


@pytest.mark.parametrize("free", [1, 2, 5])
def test_a_full_context_ends_with_length_and_no_error(free: int) -> None:
    for family in ("gpt2", "llama"):
        model = LanguageModel(tiny_model(family, 1), byte_tokenizer())
        prompt = (random_prompt(1) * 40)[: 256 - free]
        for settings in (Settings(), Settings(max_new_tokens=100)):
            result = generate(model, prompt, settings)
            assert (len(result.ids), result.finish_reason) == (free, "length")


def test_a_prompt_that_does_not_fit_names_the_numbers(tiny: LanguageModel) -> None:
    with pytest.raises(ContextFullError, match="has 256 tokens, but at most 255 fit .* 256"):
        generate(tiny, [5] * 256, Settings(), drafter=NaiveCopier())


def test_a_reference_may_be_text_ids_or_a_span(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, "something else entirely")
    for reference in ("something else", tiny.encode_text("something else"), slice(0, 6)):
        drafter = NaiveCopier()
        result = generate(tiny, prompt, settings, drafter=drafter, reference=reference)
        assert result.text == "something else entirely"
        expected = prompt[:6] if isinstance(reference, slice) else tiny.encode_text("something else")
        assert drafter.reference == expected


def test_a_consumer_that_stops_early_ends_the_drafter(tiny: LanguageModel) -> None:
    prompt, settings = reciting(tiny, TEXT)
    drafter = NaiveCopier()
    chunks = stream(tiny, prompt, settings, drafter=drafter)
    next(chunks)
    next(chunks)
    assert drafter.ended == 0
    chunks.close()
    assert drafter.ended == 1
    assert list(chunks) == []


def test_an_error_inside_ends_the_drafter(tiny: LanguageModel) -> None:
    class Broken(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken")

    drafter = NaiveCopier()
    with pytest.raises(RuntimeError, match="broken"):
        generate(tiny, "abc", Settings(max_new_tokens=3, logits_processor=[Broken()]), drafter=drafter)
    assert drafter.ended == 1


def test_two_threads_on_one_model_do_not_disturb_each_other() -> None:
    model = LanguageModel(tiny_model("mistral", 2), byte_tokenizer())
    jobs = [
        (random_prompt(seed), Settings(max_new_tokens=40, temperature=0.8, seed=seed)) for seed in range(6)
    ]
    expected = [generate(model, prompt, settings, drafter=PlainDrafter()).ids for prompt, settings in jobs]
    got: dict[int, Generation] = {}

    def work(number: int) -> None:
        prompt, settings = jobs[number]
        got[number] = generate(model, prompt, settings)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[number].ids for number in range(6)] == expected


def test_interleaved_streams_do_not_disturb_each_other(tiny: LanguageModel) -> None:
    texts = ["first text text text", "and the second one, the second one"]
    requests = [reciting(tiny, text) for text in texts]
    streams = [stream(tiny, prompt, settings, drafter=NaiveCopier()) for prompt, settings in requests]
    shown = ["", ""]
    live: set[int] = {0, 1}
    while live:
        for number in sorted(live):
            chunk: Chunk | None = next(streams[number], None)
            if chunk is None:
                live.discard(number)
            else:
                shown[number] += chunk.text
    assert shown == texts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": 3, "min_new_tokens": 4}, "min_new_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.2}, "top_p"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": -1.0}, "min_p"),
        ({"typical_p": 2.0}, "typical_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"seed": -1}, "seed"),
        ({"stop": ["a", ""]}, "stop string is empty"),
        ({"deadline": -1.0}, "deadline"),
        ({"max_new_tokens": 5.0}, "max_new_tokens must be a whole number, not 5.0"),
        ({"max_new_tokens": "5"}, "max_new_tokens must be a whole number"),
        ({"max_new_tokens": True}, "max_new_tokens must be a whole number"),
        ({"seed": 1.0}, "seed must be a whole number"),
        ({"top_k": 3.0}, "top_k must be a whole number"),
        ({"logprobs": True}, "logprobs must be a whole number"),
        ({"temperature": True}, "temperature must be a number"),
        ({"presence_penalty": "1"}, "presence_penalty must be a number"),
        ({"top_p": []}, "top_p must be a number"),
        ({"stop": [1]}, "stop must be a string or a list of strings"),
        ({"stop": b"a"}, "stop must be a list"),
        ({"stop": 3}, "stop must be a list"),
        ({"eos_token_id": 4.0}, "eos_token_id must be"),
        ({"eos_token_id": [True]}, "eos_token_id must be a whole number"),
        ({"suppress_tokens": [1.5]}, "suppress_tokens must be a whole number"),
        ({"bad_words_ids": [5]}, "bad_words_ids must be a list, not 5"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias must be a whole number, not '3'"),
        ({"logit_bias": {3: float("nan")}}, "logit_bias of 3"),
        ({"logit_bias": [3]}, "logit_bias must map ids to numbers"),
        ({"logits_processor": 3}, "logits_processor must be a list"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Settings(**settings)
    assert "\n" not in str(caught.value)


def test_settings_take_numbers_of_every_library_and_none() -> None:
    settings: Any = Settings(
        max_new_tokens=np.int64(5),  # type: ignore[arg-type]
        seed=torch.tensor(3),  # type: ignore[arg-type]
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.int32(4),  # type: ignore[arg-type]
        eos_token_id=np.int64(4),  # type: ignore[arg-type]
        suppress_tokens=torch.tensor([7, 8]),  # type: ignore[arg-type]
        logit_bias={np.int64(3): 2},  # type: ignore[dict-item]
        stop=None,
        logits_processor=None,  # type: ignore[arg-type]
        presence_penalty=None,  # type: ignore[arg-type]
    )
    assert (settings.max_new_tokens, settings.seed, settings.top_k) == (5, 3, 4)
    assert {type(settings.max_new_tokens), type(settings.seed), type(settings.top_k)} == {int}
    assert settings.stop_strings == settings.logits_processor == ()
    overrides = settings.generation_overrides(5)
    assert (overrides["eos_token_id"], overrides["suppress_tokens"]) == ([4], [7, 8])
    assert overrides["sequence_bias"] == {(3,): 2.0}
    assert settings == replace(settings)
    for eos in (torch.tensor([4, 9]), torch.tensor(4), [np.int64(4)], 4):
        given: Any = Settings(eos_token_id=eos)  # type: ignore[arg-type]
        assert given.generation_overrides(5)["eos_token_id"][0] == 4
    nothing: Any = Settings(eos_token_id=())
    assert nothing.generation_overrides(5)["eos_token_id"] is None


def test_an_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="max_tokens"):
        Settings(max_tokens=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([3, 400], "vocabulary"),
        ([-1], "vocabulary"),
        ("a \ud800 b", "lone surrogate"),
        ([{"role": "user", "content": "hi"}, 3], "mixes messages and ids"),
        ({"role": "user", "content": "hi"}, r"one message: give a list, \[message\]"),
        ({"text": "hi"}, "without input_ids"),
        (["hello", "you"], "list of texts: give one text, or all of them to generate_many"),
        (None, "of type NoneType: give a text, a list of messages, or ids"),
        (5, "of type int"),
        (b"abc", "bytes: decode it"),
        ([1.7, 2.2], "whole numbers, not float64"),
        (np.array([1.0, 2.0]), "whole numbers, not float64"),
        ([True, False], "whole numbers, not bool"),
        ([[1, 2], [3]], "flat row of whole numbers"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\): give one row"),
        (torch.tensor([[1], [2]]), r"shape \(2, 1\): give one row"),
        (torch.tensor(3), r"shape \(\)"),
        ([2**70], "vocabulary"),
    ],
)
def test_prompts_that_cannot_be_read_are_refused_at_once(
    tiny: LanguageModel, prompt: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        stream(tiny, prompt, Settings(max_new_tokens=2), drafter=NaiveCopier())


def test_ids_come_in_every_usual_form(tiny: LanguageModel) -> None:
    ids = tiny.encode_prompt("abc")
    tokenizer: Any = tiny.tokenizer
    batch = tokenizer("abc", return_tensors="pt")
    forms: list[Any] = [
        tuple(ids),
        np.array(ids),
        np.array([ids]),
        torch.tensor(ids),
        torch.tensor([ids]),
        [ids],
    ]
    forms += [batch, batch.input_ids, tokenizer("abc"), tokenizer("abc").input_ids, list(torch.tensor(ids))]
    for form in (*forms, iter(ids)):
        found = tiny.encode_prompt(form)
        assert found == ids
        assert {type(token) for token in found} == {int}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"logit_bias": {300: 1.0}}, "logit_bias names the id 300"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names the id -1"),
        ({"bad_words_ids": [[1, 300]]}, "bad_words_ids names the id 300"),
    ],
)
def test_ids_beyond_the_vocabulary_are_told_at_once(
    tiny: LanguageModel, settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(
        InputError, match=f"{name}, which lies outside of the model's vocabulary of 257 tokens"
    ):
        stream(tiny, "abc", Settings(max_new_tokens=2, **settings))


def test_bad_words_that_transformers_refuses_are_an_input_error(tiny: LanguageModel) -> None:
    with pytest.raises(InputError):
        generate(tiny, "abc", Settings(max_new_tokens=2, bad_words_ids=[[-1]]), drafter=NaiveCopier())


def test_chat_messages_go_through_the_template(tiny: LanguageModel) -> None:
    user, begun = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "well"}
    assert tiny.tokenizer.decode(tiny.encode_prompt([user])) == "[user]hi\n[assistant]"
    assert tiny.tokenizer.decode(tiny.encode_prompt([user, begun])) == "[user]hi\n[assistant]well"


def test_a_tokenizer_without_a_template_takes_strings_only(tiny: LanguageModel) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        LanguageModel(tiny.model, tokenizer).encode_prompt([{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_is_an_input_error(tiny: LanguageModel) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InputError, match="roles must alternate"):
        LanguageModel(tiny.model, tokenizer).encode_prompt([{"role": "user", "content": "hi"}])


def test_a_model_without_a_context_length_needs_a_limit() -> None:
    model = LanguageModel(tiny_model("bloom", max_position_embeddings=None), byte_tokenizer())
    with pytest.raises(InputError, match="set max_new_tokens"):
        generate(model, [1, 2], Settings(), drafter=NaiveCopier())
    assert len(generate(model, [1, 2], Settings(max_new_tokens=3), drafter=NaiveCopier()).ids) == 3


def test_the_clock_of_a_stream_starts_with_its_consumer(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(sys.modules["lookupdec.hf.generate"], "monotonic", lambda: now[0])
    prompt, settings = reciting(tiny, "abc", deadline=5.0)
    chunks = stream(tiny, prompt, settings, drafter=NaiveCopier())
    now[0] = 10.0
    assert "".join(chunk.text for chunk in chunks) == "abc"


def configured(**settings: Any) -> LanguageModel:
    """Return a model whose own generation config says so."""
    model = wrap(tiny_model("llama", 3))
    for name, value in settings.items():
        setattr(model.model.generation_config, name, value)
    return model


def test_the_models_own_max_time_is_kept() -> None:
    model = configured(max_time=0.0)
    result = generate(model, [1, 2, 3], Settings(max_new_tokens=20))
    assert (len(result.ids), result.finish_reason) == (1, "deadline")
    assert list(result.ids) == plain(model.model, [1, 2, 3], max_new_tokens=20, do_sample=False)
    longer = generate(model, [1, 2, 3], Settings(max_new_tokens=20, deadline=60))
    assert (len(longer.ids), longer.finish_reason) == (20, "length")


@pytest.mark.parametrize("temperature", [None, 0.8])
@pytest.mark.parametrize(
    "own",
    [
        {"output_attentions": True},
        {"output_hidden_states": True, "return_dict_in_generate": True},
        {"output_scores": True, "return_dict_in_generate": True},
        {"num_return_sequences": 3},
        {"num_return_sequences": 3, "do_sample": True},
    ],
    ids=str,
)
def test_what_a_generation_config_asks_for_beside_text_is_left_out(
    own: dict[str, Any], temperature: float | None
) -> None:
    settings = Settings(max_new_tokens=20, temperature=temperature, seed=5)
    expected = generate(configured(), [1, 2, 3], settings).ids
    assert generate(configured(**own), [1, 2, 3], settings).ids == expected
