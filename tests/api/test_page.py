"""The page in a real browser, served over an engine that recites."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the page's tests need playwright: pip install -e '.[dev]'")
pytest.importorskip("axe_playwright_python", reason="the page's tests need axe: pip install -e '.[dev]'")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Request, expect

from tests.api.browser import PATIENCE, PHONE, Tab, browsing, chromium, tab
from tests.api.fakes import PASS, SECONDS, FakeEngine
from tests.api.serving import Served, serving, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="the page's tests need chromium: apt-get install chromium"),
]

ROOT = Path(__file__).parents[2]
EXAMPLES: list[dict[str, str]] = json.loads((ROOT / "editor_api/static/examples.json").read_text())
EXAMPLE = next(example for example in EXAMPLES if example["language"] == "go")
# Three changes, far enough from each other.
CHANGED = (
    EXAMPLE["input"].replace("Copyright 2015", "Copyright 2016").replace("parent commend", "parent command")
).replace("byName []", "byTitle []")
TEXT = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
NEW = TEXT.replace("two", "2").replace("eight", "8")
DYING = """
import sys
from tests.api.fakes import FakeEngine
from tests.api.serving import serving

with serving(FakeEngine(answer="abc" * 2, pause_after=1)) as served:
    print(served.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as opened:
        yield opened


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(answer=CHANGED, context_length=100_000)


@pytest.fixture
def here(browser: Browser, served: Served) -> Iterator[Tab]:
    """The page, in which nothing may go wrong."""
    with tab(browser, served.port) as opened:
        yield opened
        assert opened.problems == []


@pytest.fixture
def keyed(browser: Browser, fake: FakeEngine, tmp_path: Path) -> Iterator[Tab]:
    """The page of a service that has one key, "right"."""
    keys = tmp_path / "keys"
    keys.write_text("right\n")
    with serving(fake, api_keys_file=keys) as served, tab(browser, served.port) as opened:
        yield opened


def write(opened: Tab, fake: FakeEngine, text: str = TEXT, answer: str = NEW) -> None:
    fake.answer = answer
    opened.write(text)
    opened.by("instruction").fill("Use digits.")


def is_done(opened: Tab) -> None:
    expect(opened.by("status")).to_contain_text("Done:")


def hunk(opened: Tab, kind: str, number: int) -> Any:
    return opened.by("diff").get_by_role("button", name=f"{kind} this change").nth(number)


def axe_violations(opened: Tab) -> list[str]:
    found = Axe().run(opened.page).response["violations"]
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found]


def test_an_example_runs_and_every_token_shows_where_it_came_from(here: Tab, fake: FakeEngine) -> None:
    here.load_example("go ")
    expect(here.by("credit")).to_contain_text("Apache-2.0")
    expect(here.by("instruction")).to_have_value(EXAMPLE["instruction"])
    here.button("Run").click()
    is_done(here)
    assert here.by("answer").text_content() == CHANGED
    # The engine drafts two tokens of every three, of which the first, from the reference, is accepted.
    assert here.by("answer").locator(".from-file").first.text_content() == CHANGED[0]
    assert here.by("answer").locator(".from-model").first.text_content() == CHANGED[1:3]
    passes = fake.jobs[0].passes
    expect(here.by("legend")).to_contain_text(f"the text {passes}")
    expect(here.by("legend")).to_contain_text(f"the model {len(CHANGED) - passes}")
    expect(here.by("now-tokens")).to_have_text(str(len(CHANGED)))
    expect(here.by("now-pass")).to_have_text("3.0")
    assert here.by("chart").locator(".bar").count() == passes - 1  # the first comes with the prompt
    statistics = here.page.get_by_role("table")
    expect(statistics).to_contain_text(f"Tokens{len(CHANGED)}")
    expect(statistics).to_contain_text(f"from the text{passes} of {passes}")
    assert fake.jobs[0].expected[0] == EXAMPLE["input"]
    expect(here.by("error")).to_be_hidden()


def test_a_run_is_stopped_half_way_and_run_again(here: Tab, fake: FakeEngine) -> None:
    here.load_example("go ")
    fake.pause_after = 4
    here.button("Run").click()
    expect(here.by("answer")).not_to_be_empty()
    here.button("Stop").click()
    expect(here.by("status")).to_have_text("Stopped.")
    expect(here.by("stop")).to_be_focused()
    until(lambda: fake.jobs[0].stopped)
    shown = here.by("answer").text_content() or ""
    assert 0 < len(shown) < len(CHANGED)
    assert CHANGED.startswith(shown)
    expect(here.by("review")).to_be_hidden()
    fake.pause_after = None
    here.button("Run").click()
    is_done(here)
    assert here.by("answer").text_content() == CHANGED


def test_changes_are_accepted_and_rejected_one_by_one(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    here.button("Run").click()
    expect(here.by("review-state")).to_contain_text("Change 1 of 2, at line 2")
    hunk(here, "Accept", 0).click()
    expect(here.by("review-state")).to_contain_text("Change 1 of 1, at line 8")
    assert here.text() == TEXT.replace("two", "2")
    hunk(here, "Reject", 0).click()
    expect(here.by("review-state")).to_contain_text("No open changes")
    assert here.text() == TEXT.replace("two", "2")
    # To undo is to edit: the change is open again.
    here.by("editor").locator(".cm-content").press("Control+z")
    expect(here.by("review-state")).to_contain_text("Change 1 of 1, at line 2")
    here.button("Accept all").click()
    assert here.text() == TEXT.replace("two", "2")
    expect(here.by("review-state")).to_contain_text("No open changes")


def test_all_of_an_answer_that_is_not_complete_is_accepted_only_when_confirmed(
    here: Tab, fake: FakeEngine
) -> None:
    write(here, fake, answer="one\n2\n")
    here.page.get_by_text("Settings").click()
    here.page.get_by_label("Longest answer").fill("6")
    here.button("Run").click()
    expect(here.by("status")).to_contain_text("Done, but the answer is not complete: 6 tokens")
    dialog = here.page.get_by_role("dialog", name="The answer is not complete")
    for key in ("Enter", "Escape"):  # the first button keeps the text
        here.button("Accept all").click()
        expect(dialog).to_be_visible()
        assert axe_violations(here) == []
        here.page.keyboard.press(key)
        expect(dialog).to_be_hidden()
        assert here.text() == TEXT
    here.button("Accept all").click()
    here.button("Accept them").click()
    expect(here.by("review-state")).to_contain_text("No open changes")
    assert here.text() == "one\n2\n"
    # A whole answer is accepted without a question.
    write(here, fake)
    here.page.get_by_label("Longest answer").fill("")
    here.button("Run").click()
    expect(here.by("status")).to_contain_text("Done: ")
    here.button("Accept all").click()
    expect(here.by("review-state")).to_contain_text("No open changes")
    assert here.text() == NEW


def test_everything_works_by_keyboard(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    fake.pause_after = 4
    press = here.page.keyboard.press
    here.by("instruction").press("Control+Enter")
    expect(here.by("answer")).not_to_be_empty()
    press("Escape")
    expect(here.by("status")).to_have_text("Stopped.")
    fake.pause_after = None
    press("Tab")
    press("Enter")  # on Run
    is_done(here)
    here.by("previous").focus()
    press("Enter")
    expect(here.by("review-state")).to_contain_text("Change 2 of 2")
    for _ in range(2):
        press("Tab")
    press("Enter")  # on Accept
    expect(here.by("accept")).to_be_focused()
    assert here.text() == TEXT.replace("eight", "8")
    press("Tab")
    press("Enter")  # on Reject
    expect(here.by("review-state")).to_contain_text("No open changes")
    # Tab leaves the text box, too.
    here.by("editor").locator(".cm-content").focus()
    press("Tab")
    expect(here.by("instruction")).to_be_focused()


def test_lines_far_from_changes_are_shown_when_asked_for(here: Tab, fake: FakeEngine) -> None:
    text = "".join(f"line {number}\n" for number in range(60))
    write(here, fake, text, text.replace("line 50\n", "line fifty\n"))
    here.button("Run").click()
    is_done(here)
    far = here.by("diff").get_by_text("line 20", exact=True)
    expect(far).to_have_count(0)
    here.by("all-lines").press("Enter")
    expect(here.by("all-lines")).to_have_attribute("aria-pressed", "true")
    expect(far).to_have_count(2)  # one on each side
    expect(here.by("review-state")).to_contain_text("Change 1 of 1, at line 51")
    here.by("all-lines").press("Enter")
    expect(far).to_have_count(0)


def test_only_the_selection_is_changed_where_there_is_one(here: Tab, fake: FakeEngine) -> None:
    write(here, fake, answer="2\n")
    here.by("editor").get_by_text("two", exact=True).dblclick()
    expect(here.page.get_by_label("Change the selection only: 3 characters in line 2")).to_be_checked()
    here.button("Run").click()
    is_done(here)
    here.button("Accept all").click()
    assert here.text() == TEXT.replace("two", "2")


def test_comparing_runs_plain_decoding_and_draws_its_rate(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    here.page.get_by_label("Compare with plain decoding").check()
    here.button("Run").click()
    expect(here.by("status")).to_contain_text("Plain decoding:")
    assert [job.request.drafting for job in fake.jobs] == [True, False]
    expect(here.by("chart").locator(".plain")).to_have_count(1)
    # Events that arrive together tell no time: what counts in the end is the time the service took.
    rate, plain = f"{PASS / SECONDS:.1f}", f"{1 / SECONDS:.1f}"
    expect(here.by("chart")).to_have_attribute(
        "aria-label", re.compile(f"; {rate} tokens a second, plain decoding {plain}$")
    )
    expect(here.page.get_by_role("caption")).to_have_text("Plain decoding gave the same answer.")
    expect(here.by("now-rate")).to_have_text(rate)
    expect(here.by("now-plain")).to_have_text(plain)


def test_what_comes_behind_the_end_of_an_answer_makes_no_difference(here: Tab, fake: FakeEngine) -> None:
    write(
        here, fake, answer=f"```python\n{NEW}```\nAs you asked."
    )  # a pass brings more of these words, or less
    here.by("language").select_option("python")
    here.page.get_by_label("Compare with plain decoding").check()
    here.button("Run").click()
    expect(here.by("status")).to_contain_text("Plain decoding:")
    assert fake.jobs[0].stopped
    assert fake.jobs[1].stopped
    expect(here.page.get_by_role("caption")).to_have_text("Plain decoding gave the same answer.")


def test_settings_are_sent(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    here.page.get_by_text("Settings").click()
    here.page.get_by_label("Longest answer").fill("5")
    here.page.get_by_label("Temperature").fill("0.5")
    here.page.get_by_label("Seed").fill("7")
    here.page.get_by_label("Show answers that leave something out").uncheck()
    here.button("Run").click()
    expect(here.by("status")).to_contain_text("Done, but the answer is not complete: ")
    settings = fake.jobs[0].request.settings
    assert (settings["max_new_tokens"], settings["temperature"], settings["seed"]) == (5, 0.5, 7)
    expect(here.by("warnings")).to_be_visible()
    expect(here.by("review-state")).to_contain_text("No open changes")


def test_what_is_missing_is_said(here: Tab) -> None:
    here.button("Run").click()
    expect(here.page.get_by_role("alert")).to_contain_text("There is no text yet")
    here.write(TEXT)
    here.button("Run").click()
    expect(here.page.get_by_role("alert")).to_contain_text("Write an instruction")
    expect(here.by("instruction")).to_be_focused()


def test_an_error_in_the_middle_of_an_answer_is_shown(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    fake.error = RuntimeError("secret")
    here.button("Run").click()
    expect(here.page.get_by_role("alert")).to_contain_text("The server gave up")
    fake.error = None
    here.button("Run").click()
    is_done(here)
    expect(here.by("error")).to_be_hidden()


def test_a_refused_request_is_shown(browser: Browser, fake: FakeEngine, served: Served) -> None:
    fake.room = 0
    with tab(browser, served.port) as opened:
        write(opened, fake)
        opened.button("Run").click()
        expect(opened.page.get_by_role("alert")).to_contain_text("the queue is full: try again in 7 s")


@contextmanager
def dying_server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", DYING]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_server_that_dies_in_the_middle_of_an_answer_is_told(browser: Browser) -> None:
    with dying_server() as (process, port), tab(browser, port) as opened:
        opened.write(TEXT)
        opened.by("instruction").fill("Use digits.")
        opened.button("Run").click()
        expect(opened.by("answer")).to_contain_text("abc")
        process.kill()
        alert = opened.page.get_by_role("alert")
        expect(alert).to_contain_text("The server went away in the middle of the answer")
        expect(opened.by("answer")).to_contain_text("abc")
        opened.button("Run").click()
        expect(alert).to_contain_text("The server cannot be reached")


def test_the_key_is_asked_for_and_kept_while_the_tab_is_open(keyed: Tab, fake: FakeEngine) -> None:
    dialog = keyed.page.get_by_role("dialog", name="This server needs a key")
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_role("button", name="Use this key").click()
    expect(dialog).to_contain_text("does not know that key")
    assert axe_violations(keyed) == []
    dialog.get_by_label("Key").fill("right")
    keyed.page.keyboard.press("Enter")
    expect(keyed.by("status")).to_have_text("Ready: fake")
    write(keyed, fake)
    keyed.button("Run").click()
    is_done(keyed)
    keyed.page.reload()
    expect(keyed.by("status")).to_have_text("Ready: fake")
    expect(dialog).to_be_hidden()
    assert keyed.page.evaluate("localStorage.length") == 0
    assert all("401" in problem for problem in keyed.problems)


def test_a_run_without_a_key_says_so(keyed: Tab, fake: FakeEngine) -> None:
    keyed.button("Cancel").click()
    expect(keyed.page.get_by_role("alert")).to_contain_text("The server needs a key")
    write(keyed, fake)
    keyed.button("Run").click()
    expect(keyed.by("status")).to_have_text("Waiting for a key …")
    keyed.button("Cancel").click()
    expect(keyed.by("status")).to_have_text("")
    keyed.button("Run").click()
    keyed.by("key").fill("right")
    keyed.page.keyboard.press("Enter")
    is_done(keyed)


def test_the_page_waits_for_the_model(browser: Browser, fake: FakeEngine, served: Served) -> None:
    fake.state = "loading"
    with tab(browser, served.port) as opened:
        expect(opened.by("status")).to_contain_text("being loaded")
        fake.state = "ready"
        expect(opened.by("status")).to_have_text("Ready: fake")
        assert opened.problems == []


def test_on_a_phone_nothing_is_wider_than_the_screen(
    browser: Browser, fake: FakeEngine, served: Served
) -> None:
    with tab(browser, served.port, size=PHONE, is_mobile=True, has_touch=True) as opened:
        write(opened, fake)
        opened.button("Run").click()
        is_done(opened)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        hunk(opened, "Accept", 0).tap()
        assert opened.text() == TEXT.replace("two", "2")
        hunk(opened, "Reject", 0).tap()
        expect(opened.by("review-state")).to_contain_text("No open changes")
        assert opened.text() == TEXT.replace("two", "2")
        # Turned, the screen has room for two sides.
        opened.page.set_viewport_size({"width": PHONE[1], "height": PHONE[0]})
        expect(opened.by("diff").locator(".cm-merge-a")).to_be_visible()
        assert opened.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_screen_readers_and_has_contrast(
    browser: Browser, fake: FakeEngine, served: Served, scheme: str
) -> None:
    with tab(browser, served.port, color_scheme=scheme) as opened:
        expect(opened.by("status")).to_have_text("Ready: fake")
        assert axe_violations(opened) == []
        opened.load_example("go ")
        opened.page.get_by_label("Compare with plain decoding").check()
        opened.page.get_by_text("Settings").click()
        opened.button("Run").click()
        expect(opened.by("status")).to_contain_text("Plain decoding:")
        assert axe_violations(opened) == []
        dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(20, 23, 22)") == (scheme == "dark")


def test_nothing_moves_where_less_motion_is_wanted(
    browser: Browser, fake: FakeEngine, served: Served
) -> None:
    fake.pause_after = 4
    moving = "document.getAnimations().filter(one => one.effect.getTiming().iterations === Infinity).length"
    for motion, count in (("no-preference", 1), ("reduce", 0)):
        with tab(browser, served.port, reduced_motion=motion) as opened:
            write(opened, fake)
            opened.button("Run").click()
            expect(opened.by("status")).to_contain_text("Running")
            assert opened.page.evaluate(moving) == count
            expect(opened.by("answer")).to_contain_text("one")
            opened.by("editor").locator(".cm-content").focus()
            expect(opened.by("editor").locator(".cm-focused")).to_be_visible()
            # With it, the text box's cursor blinks.
            assert opened.page.evaluate(moving) == 2 * count


def test_the_description_of_the_endpoints_needs_no_other_server(browser: Browser, served: Served) -> None:
    with tab(browser, served.port, "/docs") as opened:
        expect(opened.page.get_by_text("/v1/edits", exact=True)).to_be_visible()
        opened.page.get_by_text("/v1/edits", exact=True).click()
        expect(opened.page.get_by_text("Change a text as an instruction says")).to_be_visible()
        assert opened.problems == []


@pytest.mark.model
def test_the_page_with_the_default_model(browser: Browser, model_served: Served) -> None:
    with tab(browser, model_served.port) as opened:
        opened.load_example("toml Update deny.toml")
        opened.page.get_by_text("Settings").click()
        opened.page.get_by_label("Longest answer").fill("40")
        opened.button("Run").click()
        expect(opened.by("status")).to_contain_text(
            "the answer is not complete: 40 tokens", timeout=4 * PATIENCE
        )
        assert opened.by("answer").locator(".from-file").count() > 0
        assert opened.problems == []


def test_what_is_typed_while_the_answer_comes_is_kept(here: Tab, fake: FakeEngine) -> None:
    write(here, fake)
    fake.pause_after = 1
    here.button("Run").click()
    expect(here.by("answer")).not_to_be_empty()
    box = here.by("editor").locator(".cm-content")
    box.press("Control+End")
    here.page.keyboard.type("ten")
    # In the middle of a line that the answer changes, too.
    here.by("editor").get_by_text("two", exact=True).click()
    box.press("End")
    here.page.keyboard.type(" typed")
    assert not fake.jobs[0].finished
    fake.jobs[0].pause_after = None
    is_done(here)
    expect(here.by("review-state")).to_contain_text("of 2")
    here.button("Accept all").click()
    assert here.text() == NEW.replace("2\n", "2 typed\n") + "ten"


def test_a_key_that_no_header_holds_is_refused_in_the_dialog(keyed: Tab) -> None:
    dialog = keyed.page.get_by_role("dialog", name="This server needs a key")
    for wrong in ("“right”", "clé"):
        dialog.get_by_label("Key").fill(wrong)
        keyed.page.keyboard.press("Enter")
        expect(dialog).to_contain_text("A key has no such characters")
    keyed.page.reload()
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key").fill("right")
    keyed.page.keyboard.press("Enter")
    expect(keyed.by("status")).to_have_text("Ready: fake")


def test_the_key_goes_to_what_needs_one_alone(keyed: Tab) -> None:
    keyed.by("key").fill("right")
    keyed.page.keyboard.press("Enter")
    expect(keyed.by("status")).to_have_text("Ready: fake")
    sent: dict[str, bool] = {}

    def note(request: Request) -> None:
        sent[request.url.removeprefix(keyed.origin)] = "authorization" in request.headers

    keyed.page.on("request", note)
    keyed.page.reload()
    expect(keyed.by("status")).to_have_text("Ready: fake")
    assert {path for path, has_key in sent.items() if has_key} == {"v1/models"}
    assert {"health", "static/examples.json"} <= set(sent)


def test_the_key_dialog_has_the_keyboard(keyed: Tab, fake: FakeEngine) -> None:
    expect(keyed.by("key")).to_be_focused()
    expect(keyed.by("examples").locator("button").first).to_be_visible()
    keyed.page.evaluate("document.querySelector('#examples button').click()")  # behind the dialog
    keyed.by("key").fill("right")
    keyed.page.keyboard.press("Control+Enter")
    if keyed.by("key").is_visible():
        expect(keyed.by("key")).to_have_value("right")
        keyed.page.keyboard.press("Enter")
    expect(keyed.by("status")).to_have_text("Ready: fake")
    expect(keyed.by("model").locator("option")).to_have_count(2)
    assert not fake.jobs
