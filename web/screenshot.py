"""Take docs/page.png, the README's picture: the page after a run of the default model, with plain decoding beside it.

python -m web.screenshot, from the root of the repository, with the tools of make setup and chromium.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import expect

from editor_api.app import embedded_engine
from editor_api.settings import Settings
from tests.api.browser import browsing, tab
from tests.api.serving import serving, until

PICTURE = Path(__file__).parents[1] / "docs" / "page.png"
WIDTH = 1360
PATIENCE = 600_000.0  # milliseconds


def main() -> None:
    """Run an example and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", default="javascript Shorten", help="what the example's name begins with")
    parser.add_argument("--scheme", default="light", choices=["light", "dark"])
    parser.add_argument("--to", type=Path, default=PICTURE)
    given = parser.parse_args()
    engine = embedded_engine(Settings())
    with serving(engine) as served, browsing() as browser:
        until(lambda: engine.capacity.state != "loading")
        with tab(browser, served.port, size=(WIDTH, 1000), color_scheme=given.scheme) as opened:
            opened.load_example(given.example)
            opened.page.get_by_label("Compare with plain decoding").check()
            opened.button("Run").click()
            expect(opened.by("status")).to_contain_text("Plain decoding:", timeout=PATIENCE)
            # The whole page in view: what is out of sight is not laid out to the pixel.
            height = opened.page.evaluate("document.documentElement.scrollHeight")
            opened.page.set_viewport_size({"width": WIDTH, "height": height})
            opened.page.mouse.move(0, 0)
            opened.page.wait_for_timeout(500)
            opened.page.screenshot(path=given.to)
            print(opened.by("status").text_content(), *opened.problems, sep="\n")


if __name__ == "__main__":
    main()
