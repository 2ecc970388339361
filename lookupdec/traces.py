"""Recorded (prompt, output) pairs as token ids, by one fixed set of rules. Knows no drafter and no model.

A trace file holds one JSON object a line with ``instruction``, ``input`` and ``output``. The rules, so that
two measurements of one file compare: items are shuffled with ``random.Random(0)`` and kept if prompt and
output together are under 8,000 tokens and the output is over 20; the prompt is one user turn in the chat
template with the generation prompt; the output ends with the end-of-turn token.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from lookupdec import installed
from lookupdec.errors import InputError, ModelError
from lookupdec.files import read_bytes

MAX_TRACE_TOKENS = 8000
"""Prompt and output together are shorter than this."""
MIN_OUTPUT_TOKENS = 20
"""The output without its end-of-turn token is longer than this."""
PROMPT = (
    "{instruction}\n\n"
    "Rewrite the whole text below with this change applied. Return only the result.\n\n"
    "{input}"
)

_FIELDS = ("instruction", "input", "output")
_FORMAT = "traces-1"  # part of the cache's key: change it whenever the rules or the layout change

IntArray = npt.NDArray[np.int32]
Item = Mapping[str, str]


class Tokenizer(Protocol):
    """What a transformers tokenizer (fast, with a chat template) offers and the rules use."""

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-turn token."""
        ...

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> Any:
        """Render a conversation as text."""
        ...

    def __call__(
        self, text: Any, *, add_special_tokens: bool, return_offsets_mapping: bool, verbose: bool
    ) -> Any:
        """Return ``input_ids`` and ``offset_mapping`` (character spans) of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded request.

    ``prompt`` and ``output`` are int32 ids; the output's last id is the end-of-turn token. ``reference`` is
    the span of the prompt that holds the item's ``input``: the tokens that begin inside that text.
    """

    id: str
    prompt: IntArray
    output: IntArray
    reference: slice


def load_traces(
    path: str | Path,
    limit: int = 150,
    *,
    tokenizer: Tokenizer | None = None,
    cache_folder: str | Path | None = None,
) -> list[Trace]:
    """Read a trace file as token ids, at most ``limit`` traces, in the fixed order.

    With the default tokenizer (``tokenizer=None``) the ids are kept in ``cache_folder`` (if not given, one in
    the user's cache), so that only the first run of a file needs transformers.

    Raises
    ------
    InputError
        The file cannot be read, is not what it should be, or holds no item that fits the rules.
    ModelError
        The default model, whose tokenizer that is, is not installed.
    """
    if limit < 1:
        raise InputError(f"the number of traces must be at least 1, not {limit}")
    content = read_bytes(Path(path))
    if tokenizer is not None:
        traces = tokenise(parse_items(content, str(path)), tokenizer)
    else:
        folder = installed.cache_folder("traces") if cache_folder is None else Path(cache_folder)
        traces = _load_cached(content, str(path), folder)
    if not traces:
        raise InputError(
            f"{path}: no item left; an output must have more than {MIN_OUTPUT_TOKENS} tokens and "
            f"prompt and output together fewer than {MAX_TRACE_TOKENS}"
        )
    return traces[:limit]


def parse_items(content: bytes, name: str) -> list[dict[str, str]]:
    """Return the items of a JSONL file with ``id`` and the fields the rules need, in file order."""
    items: list[dict[str, str]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            items.append(_parse_item(line, f"{name}, line {number}", number))
    return items


def tokenise(items: Sequence[Item], tokenizer: Tokenizer) -> list[Trace]:
    """Return every item that fits the rules as a trace, in the fixed order."""
    shuffled = list(items)
    random.Random(0).shuffle(shuffled)
    traces: list[Trace] = []
    for item in shuffled:
        trace = _tokenise_item(item, tokenizer)
        if (
            len(trace.output) > MIN_OUTPUT_TOKENS + 1
            and len(trace.prompt) + len(trace.output) <= MAX_TRACE_TOKENS
        ):
            traces.append(trace)
    return traces


def _parse_item(line: bytes, place: str, number: int) -> dict[str, str]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON; a trace file holds one JSON object a line") from error
    if not isinstance(item, dict):
        raise InputError(f"{place}: not a JSON object; a trace file holds one JSON object a line")
    for name in _FIELDS:
        if not isinstance(item.get(name), str):
            raise InputError(f"{place}: field {name!r} is missing or not text")
        if any("\ud800" <= character <= "\udfff" for character in item[name]):
            raise InputError(f"{place}: field {name!r} holds half a surrogate pair, which is no text")
    return {"id": str(item.get("id", number)), **{name: item[name] for name in _FIELDS}}


def _tokenise_item(item: Item, tokenizer: Tokenizer) -> Trace:
    turn = PROMPT.format(instruction=item["instruction"], input=item["input"])
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": turn}], tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    output = tokenizer(item["output"], add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    starts = np.array([span[0] for span in prompt["offset_mapping"]], dtype=np.int64)
    return Trace(
        id=item["id"],
        prompt=np.array(prompt["input_ids"], dtype=np.int32),
        output=np.array([*output["input_ids"], tokenizer.eos_token_id], dtype=np.int32),
        reference=_reference(text, turn, item["input"], starts),
    )


def _reference(text: str, turn: str, reference: str, starts: npt.NDArray[np.int64]) -> slice:
    """Return the tokens of ``text`` that begin inside ``reference``, which ends the user's ``turn``."""
    turn_at = text.rfind(turn)
    if turn_at < 0:  # a chat template that rewrites the turn: what it holds cannot be placed
        return slice(0, 0)
    stop = turn_at + len(turn)
    first, last = np.searchsorted(starts, [stop - len(reference), stop])
    return slice(int(first), int(last))


def _load_cached(content: bytes, name: str, folder: Path) -> list[Trace]:
    tokenizer_file = installed.default_model_file()
    size = tokenizer_file.stat().st_size
    key = hashlib.sha256(f"{_FORMAT}|{tokenizer_file.name}|{size}|".encode() + content).hexdigest()
    cached = folder / f"{key[:32]}.npz"
    traces = _read_cache(cached)
    if traces is None:
        traces = tokenise(parse_items(content, name), _load_tokenizer(tokenizer_file))
        _write_cache(cached, traces)
    return traces


def _load_tokenizer(file: Path) -> Tokenizer:
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except ImportError as error:
        raise ModelError(f"reading traces needs transformers: {installed.remedy('hf')}") from error
    return cast(Tokenizer, tokenizer)


def _read_cache(file: Path) -> list[Trace] | None:
    """Return the traces of a cache file, or None where there is none or it is damaged."""
    try:
        # Opened here: of a damaged archive, np.load would leave the file open.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            ids = [str(name) for name in arrays["ids"]]
            prompts = np.split(arrays["prompts"], arrays["prompt_ends"][:-1])
            outputs = np.split(arrays["outputs"], arrays["output_ends"][:-1])
            references = arrays["references"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return [
        Trace(name, prompt, output, slice(int(span[0]), int(span[1])))
        for name, prompt, output, span in zip(ids, prompts, outputs, references, strict=True)
    ]


def _write_cache(file: Path, traces: Sequence[Trace]) -> None:
    """Keep the traces; a folder that cannot be written only costs the next run its time."""
    if not traces:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=file.parent, suffix=".npz")
        with os.fdopen(handle, "wb") as stream:
            np.savez(
                stream,
                ids=np.array([trace.id for trace in traces]),
                prompts=np.concatenate([trace.prompt for trace in traces]),
                prompt_ends=np.cumsum([len(trace.prompt) for trace in traces]),
                outputs=np.concatenate([trace.output for trace in traces]),
                output_ends=np.cumsum([len(trace.output) for trace in traces]),
                references=np.array([(trace.reference.start, trace.reference.stop) for trace in traces]),
            )
        os.replace(unfinished, file)
    except OSError:
        return
