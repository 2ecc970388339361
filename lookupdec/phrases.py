"""Phrases that a user registers because they come back: licence headers, import blocks, templates.

Knows token ids only, and of the text it is told no more than which phrases it may be in the middle of.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import ahocorasick
import numpy as np

from lookupdec.errors import DrafterError, FileError, InputError
from lookupdec.files import read_bytes
from lookupdec.ids import Ids, Int32Array, as_ids

MAX_FOLLOWED = 8
"""Places in phrases followed at once, the longest prefixes first; only text like "aaaa" has more than two."""

SEPARATOR_LINE = "---"


class PhraseBook:
    """Phrases by their token ids; each drafts its remainder once its beginning has been written.

    Where several phrases go on differently after the same beginning, the one registered first is offered.

    Parameters
    ----------
    phrases
        Token ids of each phrase. Phrases of at most ``min_prefix`` tokens are kept but never drafted.
    min_prefix
        Tokens of a phrase that must have been written before its remainder is offered.
    """

    def __init__(self, phrases: Iterable[Ids] = (), *, min_prefix: int = 4) -> None:
        if min_prefix < 1:
            raise InputError(f"min_prefix must be at least 1, got {min_prefix}")
        self._min_prefix = min_prefix
        # Big-endian ids, which sort as the ids do; in order of registration.
        self._phrases: dict[bytes, None] = {}
        self._finder: _Finder | None = None  # built when a tracker is asked for
        self._lock = threading.Lock()
        for ids in phrases:
            self.add(ids)

    @classmethod
    def from_file(cls, path: str | Path, encode: Callable[[str], Ids], *, min_prefix: int = 4) -> PhraseBook:
        """Register the phrases of a file, see ``read_phrases``. Raises ``FileError``."""
        return cls(map(encode, read_phrases(path)), min_prefix=min_prefix)

    def __len__(self) -> int:
        return len(self._phrases)

    def add(self, ids: Ids) -> None:
        """Register a phrase; trackers asked for from now on know it. Raises ``DrafterError`` for bad ids."""
        phrase = as_ids(ids).astype(">i4").tobytes()
        with self._lock:
            if phrase and phrase not in self._phrases:
                self._phrases[phrase] = None
                self._finder = None

    def tracker(self) -> PhraseTracker:
        """Return a tracker for one request, at the start of its output."""
        with self._lock:
            if self._finder is None:
                self._finder = _Finder(self._phrases, self._min_prefix)
            return PhraseTracker(self._finder)


class PhraseTracker:
    """Follows one output and offers the remainder of the phrase it is in the middle of."""

    def __init__(self, finder: _Finder) -> None:
        self._finder = finder
        self._beginnings = finder.automaton.iter(()) if finder.automaton else None
        self._observed = 0
        self._followed: list[_Place] = []  # longest prefix first

    def observe(self, ids: Ids) -> None:
        """Tell the tokens that were written since the last call.

        Raises
        ------
        DrafterError
            The ids are not whole numbers in 0 .. 2**31 - 1. Nothing has changed then.
        """
        if self._beginnings is None:
            return
        written = tuple(ids.tolist() if isinstance(ids, np.ndarray) else ids)
        try:
            self._beginnings.set(written)  # the automaton goes on from where it was
        except (TypeError, ValueError) as error:
            raise DrafterError(f"token ids must be whole numbers in 0 .. 2**31 - 1: {error}") from error
        position = 0
        for end, place in self._beginnings:
            begun = end - self._observed + 1
            self._follow(written[position:begun])
            position = begun
            if len(self._followed) < MAX_FOLLOWED:
                self._followed.append(place)
        self._follow(written[position:])
        self._observed += len(written)

    def candidate(self) -> Int32Array | None:
        """Return the rest of the phrase of which most has just been written, as a view; or None."""
        if not self._followed:
            return None
        return self._finder.rest(self._followed[0])

    def _follow(self, ids: tuple[int, ...]) -> None:
        for token in ids:
            if not self._followed:
                return
            self._followed = [
                further for place in self._followed if (further := self._finder.after(place, token))
            ]


class _Place(NamedTuple):
    """The phrases ``first`` to ``last`` - 1 in order begin with the same ``length`` tokens and go on."""

    first: int
    last: int
    length: int


class _Finder:
    """All phrases in sorted order, so that those with one beginning stand together. Never changes."""

    def __init__(self, phrases: Iterable[bytes], min_prefix: int) -> None:
        bytes_of_prefix = 4 * min_prefix
        usable = sorted(
            (phrase, rank) for rank, phrase in enumerate(phrases) if len(phrase) > bytes_of_prefix
        )
        self._ids = [np.frombuffer(phrase, ">i4").astype(np.int32) for phrase, _ in usable]
        self._tokens = [ids.data for ids in self._ids]  # a memoryview gives Python's own int fastest
        self._ranks = np.array([rank for _, rank in usable], np.int64)
        self.automaton = self._beginnings([phrase[:bytes_of_prefix] for phrase, _ in usable], min_prefix)

    def _beginnings(self, prefixes: list[bytes], min_prefix: int) -> ahocorasick.Automaton | None:
        if not prefixes:
            return None
        automaton = ahocorasick.Automaton(ahocorasick.STORE_ANY, ahocorasick.KEY_SEQUENCE)
        first = 0
        while first < len(prefixes):
            last = bisect_right(prefixes, prefixes[first], lo=first)
            automaton.add_word(tuple(self._tokens[first][:min_prefix]), _Place(first, last, min_prefix))
            first = last
        automaton.make_automaton()
        return automaton

    def after(self, place: _Place, token: int) -> _Place | None:
        """Return the place one token on, or None where no phrase goes on with it and further."""
        first, last, length = place.first, place.last, place.length
        if last - first > 1:
            candidates = range(first, last)
            first += bisect_left(candidates, token, key=lambda phrase: self._tokens[phrase][length])
            last = place.first + bisect_right(
                candidates, token, key=lambda phrase: self._tokens[phrase][length]
            )
            if first == last:
                return None
        elif self._tokens[first][length] != token:
            return None
        length += 1
        if len(self._tokens[first]) == length:  # it ends here; of equal beginnings the shortest comes first
            first += 1
            if first == last:
                return None
        return _Place(first, last, length)

    def rest(self, place: _Place) -> Int32Array:
        """Return what is left of the phrase of ``place`` that was registered first."""
        chosen = place.first
        if place.last - place.first > 1:
            chosen += int(self._ranks[place.first : place.last].argmin())
        return self._ids[chosen][place.length :]


def read_phrases(path: str | Path) -> list[str]:
    """Read phrases from a UTF-8 file.

    A ``.jsonl`` file holds one object a line with the phrase under ``text``. Any other file holds the phrases
    themselves, separated by lines ``---``; blank ones are left out.

    Raises
    ------
    FileError
        The file cannot be read, is not UTF-8, or has a line that is no such object.
    """
    path = Path(path)
    try:
        text = read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    phrases = _json_phrases(path, text) if path.suffix.lower() == ".jsonl" else _plain_phrases(text)
    return [phrase for phrase in phrases if phrase.strip()]


def _plain_phrases(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if line.rstrip() == SEPARATOR_LINE:
            yield "".join(lines)
            lines = []
        else:
            lines.append(line + "\n")
    yield "".join(lines).removesuffix("\n")


def _json_phrases(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            phrase = json.loads(line)["text"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileError(
                f'{path} line {number} is not an object with a "text": write one a line'
            ) from error
        if not isinstance(phrase, str):
            raise FileError(f'{path} line {number} has a "text" that is not a string: write one a line')
        yield phrase
