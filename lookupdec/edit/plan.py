"""How a request becomes questions to a model: one, or several where the text does not fit its context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lookupdec.edit.engine import Engine
from lookupdec.edit.prompts import EditPrompt, Messages, Task, Templates
from lookupdec.edit.region import Region
from lookupdec.edit.split import split
from lookupdec.edit.textio import Document, whole_lines
from lookupdec.errors import ContextFullError


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt, and the piece of text that its answer replaces."""

    region: Region
    messages: Messages

    @property
    def original(self) -> str:
        """The piece as the model sees it."""
        return self.region.document.shown


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes prompts that fit. ``longest_answer`` are the tokens an answer may have, None for any number."""

    engine: Engine
    templates: Templates
    longest_answer: int | None = None

    def questions(
        self, task: Task, region: Region, prompt: EditPrompt, *, may_split: bool, language: str | None = None
    ) -> list[Question]:
        """Return what to ask, in the order of the text. Raises ``ContextFullError`` with the numbers."""
        whole = self._question(task, region, prompt, Document(region.text).shown)
        context = self.engine.context_length
        piece = self.engine.count_text(whole.original)
        if context is None or self.engine.count(whole.messages) + self._answer(piece) < context:
            return [whole]
        if not may_split and region.is_whole:
            raise self._does_not_fit(whole, piece, context)
        room = context - self._overhead(task, prompt)
        # A part stands in the prompt twice, once with its neighbours, and comes back in the answer.
        limit = room // 4
        if limit < 1:
            raise ContextFullError(
                f"the instruction leaves no room for a text in the {context} tokens that {self.engine.name} "
                "holds: shorten it, and what is given along with it"
            )
        within = (region.start, region.end)
        spans = split(region.text, self.engine.count_text, limit, language=language, within=within)
        if not spans or (len(spans) > 1 and not may_split):
            raise self._does_not_fit(whole, piece, context)
        return [self._part(task, Region(region.text, *span), prompt, room) for span in spans]

    def _question(self, task: Task, region: Region, prompt: EditPrompt, around: str) -> Question:
        if task != "whole" or region.is_whole:
            filled = replace(prompt, text=around if task == "whole" else region.document.shown)
        else:
            task, filled = "part", replace(prompt, text=around, part=region.document.shown)
        return Question(region, self.templates.messages(task, filled))

    def _part(self, task: Task, region: Region, prompt: EditPrompt, room: int) -> Question:
        size = self.engine.count_text(region.document.shown)
        spare = room - 3 * size - size // 4
        return self._question(task, region, prompt, window(region, spare, self.engine.count_text))

    def _answer(self, piece: int) -> int:
        return piece if self.longest_answer is None else min(piece, self.longest_answer)

    def _overhead(self, task: Task, prompt: EditPrompt) -> int:
        empty = replace(prompt, text="", part="")
        return self.engine.count(self.templates.messages("part" if task == "whole" else task, empty))

    def _does_not_fit(self, question: Question, piece: int, context: int) -> ContextFullError:
        prompt = self.engine.count(question.messages)
        # Every token is read once in the prompt and written once more in the answer.
        fits = max(0, context - (prompt - piece)) // 2
        return ContextFullError(
            f"the text does not fit: the prompt has {prompt} tokens and the answer needs about {piece} more, "
            f"but {self.engine.name} holds {context}: about {fits} tokens of text fit, edit some lines of it "
            "only (--lines), or let it be split"
        )


def window(region: Region, budget: int, measure: Callable[[str], int]) -> str:
    """Return a piece with as many whole lines around it as measure ``budget``, half of that on each side."""
    before = _within(whole_lines(region.before)[::-1], budget // 2, measure)[::-1]
    after = _within(whole_lines(region.after), budget // 2, measure)
    return "".join([*before, region.document.shown, *after])


def _within(lines: list[str], budget: int, measure: Callable[[str], int]) -> list[str]:
    for number, line in enumerate(lines):
        budget -= measure(line)
        if budget < 0:
            return lines[:number]
    return lines
