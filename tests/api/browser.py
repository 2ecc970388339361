"""A real browser: Debian's chromium, driven by Playwright. Also for scripts that take pictures of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A container has neither the rights for chromium's sandbox nor a GPU, and little shared memory.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"]
DESK = (1280, 900)
PHONE = (390, 844)
PATIENCE = 120_000  # milliseconds: machines may be slow


def chromium() -> str | None:
    """Return where chromium is, None where it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Give a browser. Keep it short-lived: while it is open, its thread runs an event loop."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS, timeout=PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """The page in a browser, and what went wrong in it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)

    def by(self, name: str) -> Locator:
        """Return the element with an id."""
        return self.page.locator(f"#{name}")

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def load_example(self, beginning: str) -> None:
        """Click the example whose name begins so."""
        self.by("examples").get_by_role("button", name=beginning).first.click()

    def text(self, box: str = "editor") -> str:
        """Return the text in a text box, as far as it is drawn."""
        lines = self.by(box).locator(".cm-line").all_text_contents()
        return "\n".join(lines)

    def write(self, text: str) -> None:
        """Put a text into the text box."""
        self.by("editor").locator(".cm-content").fill(text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.problems.append(f"an outside resource: {request.url}")

    def watch(self) -> None:
        """Remember errors, and requests to anywhere else."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._request)


@contextmanager
def tab(
    browser: Browser, port: int, path: str = "/", *, size: tuple[int, int] = DESK, **options: Any
) -> Iterator[Tab]:
    """Open the page of a service. ``options`` are those of a browser context, such as ``color_scheme``."""
    with browser.new_context(viewport={"width": size[0], "height": size[1]}, **options) as context:
        context.set_default_timeout(PATIENCE)
        opened = Tab(context.new_page(), f"http://127.0.0.1:{port}/")
        opened.watch()
        opened.page.goto(opened.origin + path.lstrip("/"))
        yield opened
