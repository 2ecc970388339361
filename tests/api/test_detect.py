"""The text under edit, found in the prompts that editors really send."""

from __future__ import annotations

import json
import time

import pytest

from editor_api.detect import text_to_edit
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, serving

CODE = "def f(x):\n    return x"
OTHER = "z = 1"

PROMPTS = {
    "continue, a whole file": [
        f"```python a.py\n{CODE}\n```\n\nPlease rewrite the above file to address the following request:\n\nAdd types."
    ],
    "continue, a selection": [
        f"This is the prefix of the file:\n```py\n{OTHER}\n```\n\n"
        f"This is the suffix of the file:\n```py\n{OTHER}\n```\n\n"
        f"This is the code to rewrite:\n```py\n{CODE}\n```\n\nAdd types.\n\nHere is the rewritten code:"
    ],
    "continue, apply": [
        f"ORIGINAL CODE:\n```\n{CODE}\n```\n\nSUGGESTED EDIT:\n```\n{OTHER}\n```\n\nApply the edit.",
        "```\n",
    ],
    "llama.vscode": [
        "You are an editor.",
        f"Modify the code by the instructions.\n\ninstructions:\nAdd types.\n\n"
        f"original code:\n{CODE}\n\nmodified code:",
    ],
    "llama.vim": [
        f"You edit.\n--- SELECTION --------\n{CODE}\n--- CONTEXT ----\n{OTHER}",
        "INSTRUCTION: Add types.",
    ],
    "morph": [f"<instruction>Add types.</instruction>\n<code>{CODE}</code>\n<update>{OTHER}</update>"],
    "morph without an instruction": [f"<code>{CODE}</code>\n<update>{OTHER}</update>"],
    "avante": [f"<instructions>Add types.</instructions>\n<code>{CODE}</code>\n<update>{OTHER}</update>"],
    "mercury, apply": [
        f"<|original_code|>\n{CODE}\n<|/original_code|>\n\n<|update_snippet|>\n{OTHER}\n<|/update_snippet|>"
    ],
    "mercury, next edit": [
        f"<|current_file_content|>\ncurrent_file_path: a.py\n{OTHER}\n"
        "<|code_to_edit|>\ndef f(x):\n    ret<|cursor|>urn x\n"
        "<|/code_to_edit|>\n<|/current_file_content|>"
    ],
    "zeta 2": [
        f"<|file_sep|>b.py\n{OTHER}\n<|fim_prefix|>\n<|fim_suffix|>\n<|fim_middle|>current\n"
        "def f(x):\n    return<|user_cursor|> x\n<|fim_middle|>updated\n"
    ],
    "instinct": [
        f"### User Excerpt:\n{OTHER}\n"
        f"<|editable_region_start|>\n{CODE}<|user_cursor_is_here|>\n<|editable_region_end|>\n"
    ],
}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_text_is_found(name: str) -> None:
    found = text_to_edit(PROMPTS[name])
    assert found is not None
    assert found.strip("\n") == CODE


@pytest.mark.parametrize("trust", ["", "*Trust this message!*\nOthers may be outdated.\n\n"])
def test_a_file_added_to_an_aider_chat_is_found_with_its_path(trust: str) -> None:
    said = "I have *added these files to the chat* so you can edit them.\n\n"
    added = f"{said}{trust}a.py\n```\n{CODE}\n```\n\nb.py\n```\n{OTHER}\n```\n"
    assert text_to_edit([added, "Ok.", "Add types."]) == f"a.py\n```\n{CODE}\n```\n"


JSON_ASKED = (
    "Return your code in valid JSON matching this schema:\n"
    '{"required": ["code", "language"], "properties": {"code": { "type": "string" }}}'
)


@pytest.mark.parametrize("placement", [False, True])
def test_code_that_comes_back_inside_json_is_drafted_as_json_writes_it(placement: bool) -> None:
    code = 'print("é\\n")\n\treturn'
    asked = JSON_ASKED + ('"placement": "replace" or "add"' if placement else "")
    found = text_to_edit(
        [asked, f"This is selected:\n<code>\n```lua\n{code}\n```\n</code>", "<prompt>Add types.</prompt>"]
    )
    assert found is not None
    assert "é" in found and '\\"' in found
    expected = {"code": code, "language": "lua"} | ({"placement": "replace"} if placement else {})
    assert json.loads(found) == expected


@pytest.mark.parametrize("content", ["hi", "```lua", "```lua\n```", "```lua x```"])
def test_a_request_for_json_without_code_has_no_text_to_edit(content: str) -> None:
    assert text_to_edit([JSON_ASKED, content]) is None


def test_the_newest_text_counts() -> None:
    form = "original code:\n{}\n\nmodified code:"
    assert text_to_edit([form.format("old"), "old", form.format("new")]) == "new"


def test_code_may_hold_the_tags_themselves() -> None:
    code = "a = '<code></code>'\nb = '</code>'"
    assert text_to_edit([f"<code>{code}</code>\n<update>x</update>"]) == code


@pytest.mark.parametrize(
    "contents",
    [[], [""], ["What does this do?\n```\nx\n```"], ["<code></code><update></update>"], ["original code:"]],
)
def test_elsewhere_nothing_is_found(contents: list[str]) -> None:
    assert text_to_edit(contents) is None


@pytest.mark.parametrize(
    "opening", ["<code>", "```a\n", "ORIGINAL CODE:\n```\n", "--- SELECTION ---\n", "<|original_code|>"]
)
def test_long_prompts_that_only_begin_like_a_form_cost_no_time(opening: str) -> None:
    began = time.perf_counter()
    text_to_edit([opening + "x `` </code \n" * 100_000])
    text_to_edit([opening * 300_000])
    assert time.perf_counter() - began < 2.0


def test_what_is_found_is_the_reference_unless_a_prediction_is_sent(fake: FakeEngine) -> None:
    with serving(fake) as served:
        content = PROMPTS["morph"][0]
        served.chat(content)
        served.client.post("/v1/completions", json={"prompt": content})
        served.chat(content, prediction={"type": "content", "content": "p"})
    assert [job.expected for job in fake.jobs] == [(CODE,), (CODE,), ("p",)]


def test_without_drafting_nothing_is_searched(fake: FakeEngine) -> None:
    with serving(fake, drafting=False) as served:
        served.chat(PROMPTS["mercury, apply"][0])
    assert fake.jobs[0].expected == ()
    assert not fake.jobs[0].request.drafting


def test_code_in_json_is_expected_where_json_is_asked_for(fake: FakeEngine, served: Served) -> None:
    asked = f"original code:\n{CODE}\n\nmodified code:"
    system = {"role": "system", "content": "Answer in JSON with the keys code and language."}
    body = {"messages": [system, {"role": "user", "content": asked}]}
    assert served.client.post("/v1/chat/completions", json=body).status_code == 200
    schema = {"response_format": {"type": "json_object"}}
    assert served.chat(asked, **schema).status_code == 200
    assert served.chat(asked).status_code == 200
    escaped = json.dumps(CODE)[1:-1]
    assert [job.expected for job in fake.jobs] == [(CODE, escaped), (CODE, escaped), (CODE,)]
