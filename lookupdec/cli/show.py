"""Shows an answer on a terminal as it arrives: what was copied, what the model wrote, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from lookupdec.edit.engine import Chunk
from lookupdec.stats import Stats

_COPIED, _WRITTEN = "cyan", "bold yellow"
_REFRESH_SECONDS = 1 / 12
_SECONDS_A_LINE = 15.0
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

# Control characters as their visible symbols: a file must not be able to drive the terminal.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_VISIBLE |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Lines:
    """Progress where there is no terminal: a line now and then, and none of what is soon done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = perf_counter()

    def __call__(self, line: Callable[[], str]) -> None:
        """Print what ``line`` returns, if it is time."""
        if perf_counter() - self._told >= _SECONDS_A_LINE:
            self._told = perf_counter()
            self._console.print(line(), markup=False, soft_wrap=True)


class Meter:
    """What an answer has cost so far.

    Counted here, since a text that is edited in parts has an answer, and so its own counts, for each.
    """

    def __init__(self) -> None:
        self._stats = Stats(prefills=0)
        self._began = perf_counter()

    def add(self, chunk: Chunk) -> None:
        """Count one chunk."""
        self._stats.tokens += len(chunk.step.tokens)
        is_pass = chunk.stats.passes > 0
        self._stats.passes += is_pass
        self._stats.prefills += not is_pass and len(chunk.step.tokens)

    def __str__(self) -> str:
        return speed(self._stats, perf_counter() - self._began)


class StreamView:
    """Prints whole lines above, and keeps the unfinished line and the progress at the bottom.

    Refreshes the screen itself, now and then when a chunk comes: a thread that did would print lines twice.
    """

    def __init__(self, live: Live, decode: Callable[[Sequence[int]], str]) -> None:
        self._live = live
        self._decode = decode
        self._finished: list[Text] = []
        self._line = Text()
        self._meter = Meter()
        self._refreshed = 0.0

    def __call__(self, chunk: Chunk) -> None:
        """Show one chunk."""
        self._meter.add(chunk)
        for text, style in self._spans(chunk):
            self._line.append(text.translate(_VISIBLE), style)
        *finished, self._line = self._line.split("\n", allow_blank=True)
        self._finished += finished
        now = perf_counter()
        if now - self._refreshed >= _REFRESH_SECONDS:
            self._refreshed = now
            self._refresh(Group(self._line, Text(str(self._meter), style="dim")))

    def close(self) -> None:
        """Leave the unfinished line behind, and no progress line."""
        self._refresh(self._line)

    def _refresh(self, bottom: RenderableType) -> None:
        with self._live.console:  # gathers what is written, so that it comes to the screen at once
            if self._finished:
                self._live.console.print(Text("\n").join(self._finished), soft_wrap=True)
                self._finished.clear()
            self._live.update(bottom, refresh=True)

    def _spans(self, chunk: Chunk) -> Iterator[tuple[str, str]]:
        """Cut a chunk's text where the copied tokens end."""
        text, step = chunk.text, chunk.step
        written = self._decode(step.tokens[step.accepted :])
        cut = len(text)
        if not step.accepted:
            cut = 0
        elif written and text.endswith(written):
            cut = len(text) - len(written)
        yield text[:cut], _COPIED
        yield text[cut:], _WRITTEN


@contextmanager
def stream_view(
    console: Console, decode: Callable[[Sequence[int]], str]
) -> Iterator[Callable[[Chunk], None]]:
    """Give what to call with every chunk; it shows no text where ``console`` is no terminal."""
    if not console.is_terminal:
        yield _counting(console)
        return
    console.print(Text.assemble(("copied", _COPIED), " and ", ("written by the model", _WRITTEN), ":\n"))
    with Live(console=console, auto_refresh=False, transient=False) as live:
        view = StreamView(live, decode)
        try:
            yield view
        finally:
            view.close()


def _counting(console: Console) -> Callable[[Chunk], None]:
    lines, meter = Lines(console), Meter()

    def count(chunk: Chunk) -> None:
        meter.add(chunk)
        lines(lambda: str(meter))

    return count


@contextmanager
def waiting(console: Console, what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show that something takes a while; no more than a line now and then where ``console`` is no terminal.

    Gives a function that is told what is being done, how much of it is done, and how much there is.
    """

    def told(part: str, done: int, total: int) -> str:
        return f"{what}: {part}, {done} of {total}"

    if not console.is_terminal:
        lines = Lines(console)
        yield lambda *progress: lines(lambda: told(*progress))
        return
    with console.status(what) as status:
        yield lambda *progress: status.update(told(*progress))


def speed(stats: Stats, seconds: float) -> str:
    """Return tokens, tokens per pass and tokens per second in words."""
    rate = stats.tokens / seconds if seconds > 0 else 0.0
    return f"{stats.tokens:,} tokens · {stats.tokens_per_pass:.1f} tokens per pass · {rate:.0f} tok/s"


def time_left(seconds: float, done: int, count: int) -> str:
    """Return in words about how long the rest takes, "" where nothing is left."""
    left = seconds / max(1, done) * (count - done)
    if done >= count:
        return ""
    return f", about {left:.0f} s left" if left < 100 else f", about {left / 60:.0f} min left"


def print_diff(console: Console, diff: str) -> None:
    """Print a diff in colour, for a terminal."""
    lines = diff.removesuffix("\n").split("\n")
    shown = (Text(line.translate(_VISIBLE), _DIFF_STYLES.get(line[:1], "")) for line in lines)
    console.print(Text("\n").join(shown), soft_wrap=True)
