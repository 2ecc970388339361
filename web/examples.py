"""Write editor_api/static/examples.json, what the page offers to click, from datasets/. Python alone is needed."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "editor_api" / "static" / "examples.json"
DEMO = {
    "language": "javascript",
    "instruction": "Shorten the comment at the top.",
    "input": "datasets/demo/unique_digits.js",
    "source": "bigcode-project/octopack humanevalpack, JavaScript/104",
    "license": "MIT",
}
# Short ones of every kind, so that a small model on a CPU has an answer within a minute.
IDS = [
    "code_edit-56ab75b05cff",
    "config_edit-8084100568c7",
    "doc_rewrite-1eb70f598ba6",
    "code_edit-17364b716c56",
    "config_edit-a549b0f08f16",
    "code_edit-5dc573563623",
    "code_edit-6245feeb09c1",
    "config_edit-4614efc14a5d",
    "doc_rewrite-36a615d55b1e",
    "summarize-5d8e4cae978b",
]


def examples() -> list[dict[str, str]]:
    """Return the examples, in the order in which the page shows them."""
    lines = (ROOT / "datasets" / "edits.jsonl").read_text(encoding="utf-8").splitlines()
    edits = {edit["id"]: edit for edit in map(json.loads, lines)}
    demo = DEMO | {"input": (ROOT / DEMO["input"]).read_text(encoding="utf-8")}
    return [demo, *(_example(edits[name]) for name in IDS)]


def written() -> str:
    """Return the file's text."""
    return json.dumps(examples(), indent=1, ensure_ascii=False) + "\n"


def _example(edit: dict[str, str]) -> dict[str, str]:
    return {
        "language": "" if edit["lang"] in ("en", "text") else edit["lang"],
        "instruction": edit["instruction"],
        "input": edit["input"],
        "source": edit["source"].removeprefix("github:").partition("@")[0],
        "license": edit["license"],
    }


if __name__ == "__main__":
    WRITTEN.write_text(written(), encoding="utf-8")
