import io
import re
import threading

import pytest
from rich.console import Console
from rich.live import Live

from lookupdec.cli.show import StreamView, print_diff, speed, stream_view, time_left, waiting
from lookupdec.edit import Editor
from lookupdec.edit.engine import Chunk
from lookupdec.edit.results import total
from lookupdec.stats import Stats, Step
from tests.edit.scripted import ScriptedChunk, ScriptedEngine

CYAN, YELLOW = "\x1b[36m", "\x1b[1;33m"


def terminal() -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=60, color_system="standard", highlight=False
    )


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def streamed(engine: ScriptedEngine, text: str, *, refreshed: bool = False) -> str:
    console = terminal()
    with stream_view(console, engine.decode) as view:
        assert isinstance(view, StreamView)

        def show(chunk: Chunk) -> None:
            view(chunk)
            if refreshed:  # as happens twelve times a second
                view._live.refresh()

        Editor(engine).edit(text, "x", on_token=show)
    return shown(console)


def test_copied_and_written_tokens_have_their_own_colours():
    output = streamed(ScriptedEngine("a b c d e f\n", accepted=3), "a b c d e f\n")
    assert f"{YELLOW}a" in output
    assert f"{CYAN} b \x1b[0m{YELLOW}c" in output


def test_the_speed_has_tokens_tokens_per_pass_and_tokens_per_second():
    assert speed(Stats(tokens=1201, passes=100), 10.0) == "1,201 tokens · 12.0 tokens per pass · 120 tok/s"
    # The first token of each of two texts came with its prompt.
    both = total([Stats(tokens=601, passes=50), Stats(tokens=601, passes=50)])
    assert speed(both, 10.0) == "1,202 tokens · 12.0 tokens per pass · 120 tok/s"


@pytest.mark.parametrize("refreshed", [False, True])
def test_every_line_is_printed_once_above_the_progress(refreshed):
    text = "".join(f"line number {number}\n" for number in range(40)) + "the end"
    output = streamed(ScriptedEngine(text, accepted=30), text, refreshed=refreshed)
    lines = [line for line in plain_lines(output) if line.startswith("line number")]
    assert lines == [f"line number {number}" for number in range(40)]
    assert plain_lines(output)[-1] == "the end"


def test_no_thread_writes_beside_the_view_and_it_refreshes_twelve_times_a_second(monkeypatch):
    now, console = 1.0, terminal()
    monkeypatch.setattr("lookupdec.cli.show.perf_counter", lambda: now)
    refreshes, threads = 0, threading.active_count()
    refresh = Live.refresh

    def counted(live: Live) -> None:
        nonlocal refreshes
        refreshes += 1
        refresh(live)

    monkeypatch.setattr(Live, "refresh", counted)
    with stream_view(console, lambda _ids: "") as view:
        assert threading.active_count() == threads
        before = refreshes
        for number in range(100):
            view(chunk(f"line {number}\n"))
            now += 0.01
        assert 11 <= refreshes - before <= 13
    assert [line for line in plain_lines(shown(console)) if line[:4] == "line"] == [
        f"line {number}" for number in range(100)
    ]


def test_a_file_cannot_drive_the_terminal():
    text = "a\x1b]0;title\x07b\x9bc\n"
    output = streamed(ScriptedEngine(text), text)
    assert "\x1b]0" not in output
    assert "\x07" not in output
    assert "\u241b]0;title\u2407" in "".join(plain_lines(output))
    console = terminal()
    print_diff(console, "-a\x1b[2J\n+b\r\n")
    assert "\x1b[2J" not in shown(console)
    assert "+b\u240d" in shown(console)


def test_nothing_is_shown_where_no_terminal_is():
    console = Console(file=io.StringIO())
    with stream_view(console, ScriptedEngine().decode) as view, waiting(console, "working") as progress:
        view(chunk("a line\n"))
        progress("reading", 1, 2)
    assert shown(console) == ""


def test_what_takes_long_tells_a_line_now_and_then_where_no_terminal_is(monkeypatch):
    now = 0.0
    monkeypatch.setattr("lookupdec.cli.show.perf_counter", lambda: now)
    console = Console(file=io.StringIO())
    with stream_view(console, ScriptedEngine().decode) as view, waiting(console, "working") as progress:
        for _ in range(40):
            now += 1.0
            view(chunk("a line\n"))
            progress("reading", int(now), 40)
    assert shown(console).splitlines() == [
        "15 tokens · 1.0 tokens per pass · 1 tok/s",
        "working: reading, 15 of 40",
        "30 tokens · 1.0 tokens per pass · 1 tok/s",
        "working: reading, 30 of 40",
    ]


@pytest.mark.parametrize(
    ("seconds", "done", "told"),
    [
        (30.0, 1, ", about 10 min left"),
        (30.0, 15, ", about 12 s left"),
        (30.0, 21, ""),
        (1.0, 0, ", about 21 s left"),
    ],
)
def test_the_time_that_is_left_is_reckoned_from_what_is_done(seconds, done, told):
    assert time_left(seconds, done, 21) == told


def chunk(text: str) -> ScriptedChunk:
    """One token from one pass."""
    return ScriptedChunk(text, Step((0,), drafted=0, accepted=0, sources=()), Stats(passes=1), None)


def test_the_view_ends_cleanly_on_ctrl_c():
    console = terminal()
    engine = ScriptedEngine("a b c d e f g h\n", interrupt_after=3)
    with pytest.raises(KeyboardInterrupt), stream_view(console, engine.decode) as view:
        Editor(engine).edit("a\n", "x", on_token=view)
    assert "\x1b[?25h" in shown(console)  # the cursor is back


def plain_lines(output: str) -> list[str]:
    """What stays on the screen, without the empty lines at its end."""
    lines, row, column = [""], 0, 0
    for char, number, code in re.findall(r"([^\x1b])|\x1b\[([0-9;?]*)([A-Za-z])", output):
        if code == "A":
            row -= int(number or 1)
        elif code == "K":
            lines[row] = ""
        elif char == "\r":
            column = 0
        elif char == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif char:
            lines[row] = lines[row].ljust(column)[:column] + char + lines[row][column + 1 :]
            column += 1
    while lines and not lines[-1]:
        lines.pop()
    return lines


def test_waiting_shows_the_part_that_is_done_on_a_terminal_and_nothing_elsewhere() -> None:
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=is_terminal, width=80)
        with waiting(console, "loading") as progress:
            progress("recording passes", 3, 8)
        assert isinstance(console.file, io.StringIO)
        assert ("loading: recording passes, 3 of 8" in console.file.getvalue()) == is_terminal
