"""Stand-ins for a real model: a target that recites a fixed text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lookupdec.ids import Ids


class ScriptedTarget:
    """A target whose own choice at every position is the next token of ``script``.

    It keeps what a KV cache would hold, checks that only emitted text stays in it, and counts what it was asked.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)
        self.cached: list[int] = []
        self.prompt_length = 0
        self.passes = 0
        self.choices_made = 0

    def start(self, prompt: Ids) -> int:
        self.cached = [int(token) for token in prompt]
        self.prompt_length = len(self.cached)
        return self._choice(len(self.cached))

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        start = len(self.cached)
        self.passes += 1
        self.cached.extend(ids)
        return (self._choice(start + offset + 1) for offset in range(len(ids)))

    def rewind(self, count: int) -> None:
        assert 0 <= count < len(self.cached)
        if count:
            del self.cached[-count:]

    def _choice(self, length: int) -> int:
        self.choices_made += 1
        return self.script[length - self.prompt_length]
