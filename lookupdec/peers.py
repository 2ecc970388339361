"""Other systems' drafting rules, written anew from their descriptions, for comparison in replays only.

Knows nothing of the engines around those rules. What each rule does with a text:

- transformers' prompt lookup: finds the leftmost earlier place of the last n tokens, n from the largest down
  to 1, and copies what follows there.
- vLLM's n-gram: the same for the longest n of a range.
- Arctic's suffix cache: counts what followed every suffix; needs the package arctic-inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from lookupdec.decode import Drafter
from lookupdec.errors import InputError
from lookupdec.ids import Ids, Int32Array, Reference, as_ids

ARCTIC_MIN_TOKEN_PROB = 0.1
_NO_IDS = np.empty(0, dtype=np.int32)


def leftmost_ngram(text: Int32Array, size: int) -> int:
    """Return where the leftmost earlier place of the last ``size`` tokens ends, or -1.

    A place counts if a token follows it in ``text`` ([n] int32); it may overlap the last tokens.
    """
    length = len(text)
    for end in range(size, length):
        matched = 0
        while matched < size and text[end - 1 - matched] == text[length - 1 - matched]:
            matched += 1
        if matched == size:
            return end
    return -1


def longest_ngram(text: Int32Array, smallest: int, largest: int) -> int:
    """Return where the leftmost earlier place of the longest n-gram ends, or -1.

    The n-gram is the last n tokens of ``text`` ([n] int32), ``smallest`` <= n <= ``largest``.
    """
    length = len(text)
    best, best_end = smallest - 1, -1
    for end in range(1, length):
        matched, most = 0, min(largest, end)
        while matched < most and text[end - 1 - matched] == text[length - 1 - matched]:
            matched += 1
        if matched > best:  # strictly: of equally long ones the leftmost stays
            best, best_end = matched, end
            if best == largest:
                break
    return best_end


# Called, not decorated: the plain functions stay visible to type checkers.
_leftmost_ngram: Callable[[Int32Array, int], int] = njit(cache=True, nogil=True)(leftmost_ngram)
_longest_ngram: Callable[[Int32Array, int, int], int] = njit(cache=True, nogil=True)(longest_ngram)


class _Text:
    """Prompt and output so far in one int32 array that grows in place."""

    def __init__(self, ids: Ids) -> None:
        self._buffer = as_ids(ids).copy()
        self._length = len(self._buffer)

    @property
    def ids(self) -> Int32Array:
        return self._buffer[: self._length]

    def append(self, ids: Ids) -> None:
        new = as_ids(ids)
        length = self._length + len(new)
        if length > len(self._buffer):
            self._buffer = np.concatenate([self.ids, np.empty(length, dtype=np.int32)])
        self._buffer[self._length : length] = new
        self._length = length


class _ContextDrafter:
    """The part that both context-only rules share: keep the text, copy what follows the place they find."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._drafted = 0
        self._text = _Text(_NO_IDS)
        self._find(np.zeros(4, dtype=np.int32))  # compiles now, not in the first proposal

    @property
    def sources(self) -> Sequence[str]:
        """The rules do not tell prompt and output apart."""
        return ("context",) * self._drafted

    def begin(
        self,
        prompt: Ids,
        *,
        reference: Ids | slice | Reference | None = None,  # noqa: ARG002
        namespace: str | None = None,  # noqa: ARG002
    ) -> None:
        """Start from the prompt alone: neither rule knows a reference or a namespace."""
        self._text = _Text(prompt)

    def propose(self, limit: int) -> Int32Array:
        """Return what follows the place found."""
        text = self._text.ids
        end = self._find(text)
        draft = _NO_IDS if end < 0 else text[end : end + min(self._max_tokens, limit)]
        self._drafted = draft.size
        return draft

    def observe(self, ids: Ids) -> None:
        """Append to the text."""
        self._text.append(ids)

    def end(self) -> None:
        """Forget the text."""
        self._text = _Text(_NO_IDS)

    def _find(self, text: Int32Array) -> int:
        raise NotImplementedError


class PromptLookup(_ContextDrafter):
    """transformers' prompt lookup; its names are ``max_matching_ngram_size``, ``prompt_lookup_num_tokens``.

    Its cropping of drafts at an end-of-text token and at tokens that logits processors forbid is left out.
    """

    def __init__(self, max_ngram: int = 2, max_tokens: int = 10) -> None:
        self._max_ngram = max_ngram
        super().__init__(max_tokens)

    def _find(self, text: Int32Array) -> int:
        for size in range(min(self._max_ngram, len(text) - 1), 0, -1):
            end = _leftmost_ngram(text, size)
            if end >= 0:
                return end
        return -1


class VllmNgram(_ContextDrafter):
    """vLLM's n-gram rule: ``prompt_lookup_min``, ``prompt_lookup_max`` and ``num_speculative_tokens``."""

    def __init__(self, min_ngram: int = 5, max_ngram: int = 5, max_tokens: int = 10) -> None:
        self._min_ngram, self._max_ngram = min_ngram, max_ngram
        super().__init__(max_tokens)

    def _find(self, text: Int32Array) -> int:
        return _longest_ngram(text, self._min_ngram, self._max_ngram)


class ArcticSuffix:
    """Arctic's suffix cache, driven as its vLLM plug-in drives it: one live request, drafts as a path.

    ``past_outputs`` keeps every finished output for the requests after it.

    Raises
    ------
    InputError
        The package arctic-inference is not installed.
    """

    def __init__(
        self, max_tokens: int = 24, depth: int = 24, factor: float = 1.0, *, past_outputs: bool = True
    ) -> None:
        try:
            from arctic_inference.suffix_decoding import SuffixDecodingCache
        except ImportError as error:
            raise InputError("the arctic drafter needs its package: pip install arctic-inference") from error
        self._cache: Any = SuffixDecodingCache(depth, max_cached_requests=-1 if past_outputs else 0)
        self._max_tokens, self._depth, self._factor = max_tokens, depth, factor
        self._text = _Text(_NO_IDS)
        self._request = 0
        self._drafted = 0

    @property
    def sources(self) -> Sequence[str]:
        """The package does not tell a draft's place: prompt, output and past outputs count as one."""
        return ("suffix cache",) * self._drafted

    def begin(
        self,
        prompt: Ids,
        *,
        reference: Ids | slice | Reference | None = None,  # noqa: ARG002
        namespace: str | None = None,  # noqa: ARG002
    ) -> None:
        """Start a request in the cache: it knows neither a reference nor a namespace."""
        self._text = _Text(prompt)
        self._request += 1
        self._cache.start_request(self._request, self._text.ids)

    def propose(self, limit: int) -> Sequence[int]:
        """Return the path the cache scores highest."""
        draft = self._cache.speculate(
            self._request,
            self._text.ids[-self._depth :],
            max_spec_tokens=min(self._max_tokens, limit),
            max_spec_factor=self._factor,
            min_token_prob=ARCTIC_MIN_TOKEN_PROB,
        )
        ids: list[int] = draft.token_ids
        self._drafted = len(ids)
        return ids

    def observe(self, ids: Ids) -> None:
        """Append to the request's output."""
        self._text.append(ids)
        self._cache.add_active_response(self._request, as_ids(ids))

    def end(self) -> None:
        """Finish the request; its output stays if past outputs are kept."""
        self._cache.stop_request(self._request)
        self._text = _Text(_NO_IDS)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One setting of one peer: its name in tables, how to make a fresh drafter, and whether outputs stay."""

    peer: str
    name: str
    make: Callable[[], Drafter]
    past_outputs: bool = False


def _arctic(max_tokens: int, depth: int, factor: float, past_outputs: bool) -> PeerRow:
    kept = "past outputs" if past_outputs else "no past outputs"
    return PeerRow(
        "arctic",
        f"Arctic suffix k={max_tokens} depth={depth} factor={factor} {kept}",
        lambda: ArcticSuffix(max_tokens, depth, factor, past_outputs=past_outputs),
        past_outputs,
    )


PEER_ROWS: tuple[PeerRow, ...] = (
    PeerRow("transformers", "transformers prompt lookup n=2 k=10", lambda: PromptLookup(2, 10)),
    PeerRow("transformers", "transformers prompt lookup n=3 k=60", lambda: PromptLookup(3, 60)),
    PeerRow("vllm", "vLLM n-gram 5-5 k=10", lambda: VllmNgram(5, 5, 10)),
    PeerRow("vllm", "vLLM n-gram 2-5 k=64", lambda: VllmNgram(2, 5, 64)),
    _arctic(24, 24, 1.0, past_outputs=True),
    _arctic(64, 64, 1.0, past_outputs=False),
    _arctic(64, 64, 4.0, past_outputs=False),
    _arctic(256, 256, 4.0, past_outputs=False),
    _arctic(64, 64, 4.0, past_outputs=True),
    _arctic(128, 128, 4.0, past_outputs=True),
    _arctic(128, 128, 8.0, past_outputs=True),
    _arctic(256, 256, 4.0, past_outputs=True),
    _arctic(512, 512, 4.0, past_outputs=True),
)
"""Every setting measured for comparison. The first of each peer is its default."""


def rows_by_peer() -> Mapping[str, tuple[PeerRow, ...]]:
    """Return the rows of each peer, in order."""
    peers = dict.fromkeys(row.peer for row in PEER_ROWS)
    return {peer: tuple(row for row in PEER_ROWS if row.peer == peer) for peer in peers}
