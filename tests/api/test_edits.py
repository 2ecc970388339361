"""``/v1/edits`` over the real editor and a reciting engine."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import httpx2
import pytest

from lookupdec.edit import Position, TextEdit, apply_edits
from tests.api.fakes import FakeEngine
from tests.api.serving import PATIENCE, Served, events, until

TEXT = "colour = 1\r\nprint(colour)\r\n"
NEW = "color = 1\nprint(color)\n"
INSTRUCTION = "Rename colour to color."


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(answer=NEW)


def edit(served: Served, **fields: Any) -> httpx2.Response:
    return served.client.post("/v1/edits", json={"input": TEXT, "instruction": INSTRUCTION, **fields})


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    def place(at: dict[str, int]) -> Position:
        return Position(at["line"], at["character"])

    return apply_edits(
        text,
        [TextEdit(place(one["range"]["start"]), place(one["range"]["end"]), one["newText"]) for one in edits],
    )


def test_an_edit_gives_text_edits_and_diff(served: Served) -> None:
    result = edit(served, path="a.py").json()
    assert result["object"] == "edit"
    assert result["text"] == "color = 1\r\nprint(color)\r\n"
    assert applied(TEXT, result["edits"]) == result["text"]
    assert "--- a/a.py" in result["diff"]
    assert result["changed"] and result["complete"]
    assert result["warnings"] == []
    assert result["base_sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert result["usage"]["total_tokens"] > result["usage"]["completion_tokens"] > 0
    assert result["timings"]["draft_n"] > 0


def test_the_text_is_the_reference_unless_a_prediction_is_given(fake: FakeEngine, served: Served) -> None:
    edit(served)
    edit(served, prediction="other\n")
    edit(served, prediction={"type": "content", "content": [{"type": "text", "text": "third\n"}]})
    expected = [TEXT.replace("\r\n", "\n"), "other\n", "third\n"]
    assert [job.expected for job in fake.jobs] == [(text,) for text in expected]


@pytest.mark.parametrize("text", ["", " \r\n"])
def test_where_there_is_no_text_one_is_written(fake: FakeEngine, served: Served, text: str) -> None:
    fake.answer = "```python\nprint('hello')\n```"
    result = edit(served, input=text, path="hello.py").json()
    ending = "\r\n" if "\r" in text else "\n"
    assert (result["text"], result["complete"]) == (f"print('hello'){ending}", True)
    assert "Write a new python file" in fake.decode(fake.jobs[0].request.prompt)


def test_only_what_is_asked_for_is_returned(served: Served) -> None:
    result = edit(served, **{"return": ["edits"]}).json()
    assert "edits" in result
    assert "text" not in result
    assert "diff" not in result


def test_a_stream_gives_the_answer_and_then_the_result(served: Served) -> None:
    head, body = served.raw(
        b'{"input":"colour = 1\\r\\nprint(colour)\\r\\n","instruction":"x","stream":true}', "/v1/edits"
    )
    assert b"text/event-stream" in head
    *deltas, last = events(body)
    assert "".join(one["delta"]["text"] for one in deltas) == NEW
    assert len(deltas) > 1
    assert all(set(one["delta"]) == {"text"} for one in deltas)
    assert last["object"] == "edit"
    assert last["text"] == "color = 1\r\nprint(color)\r\n"
    assert {one["id"] for one in [*deltas, last]} == {last["id"]}


def test_a_stream_tells_its_sources_where_they_are_asked_for(served: Served) -> None:
    body = {"input": TEXT, "instruction": "x", "stream": True, "stream_options": {"include_sources": True}}
    *deltas, last = events(served.raw(json.dumps(body).encode(), "/v1/edits")[1])
    assert deltas[0]["delta"] == {
        "text": NEW[:3],
        "spans": [
            {"source": "reference", "text": NEW[0], "tokens": 1},
            {"source": "model", "text": NEW[1:3], "tokens": 2},
        ],
        "draft_n": 2,
        "draft_n_accepted": 1,
    }
    spans = [span for one in deltas for span in one["delta"]["spans"]]
    assert "".join(span["text"] for span in spans) == NEW
    assert sum(span["tokens"] for span in spans) == last["usage"]["completion_tokens"]


def test_the_sources_are_the_tokens_own(tiny_served: Served) -> None:
    body = {"input": TEXT, "instruction": "x", "max_tokens": 40, "prompt_cache_key": "sources"}
    streamed = {**body, "stream": True, "stream_options": {"include_sources": True}}
    for _ in range(2):  # the second time, the first answer is known
        *deltas, last = events(tiny_served.raw(json.dumps(streamed).encode(), "/v1/edits")[1])
        tokens: dict[str, int] = {}
        for span in (span for one in deltas for span in one["delta"]["spans"]):
            tokens[span["source"]] = tokens.get(span["source"], 0) + span["tokens"]
        copied = {name: count["draft_n_accepted"] for name, count in last["timings"]["draft_sources"].items()}
        assert {name: count for name, count in tokens.items() if name != "model"} == {
            name: count for name, count in copied.items() if count
        }
        assert sum(tokens.values()) == 40
    assert tokens["past output"] > 0


def test_an_edit_without_drafting_is_the_same_in_more_passes(tiny_served: Served) -> None:
    fields = {"max_tokens": 30, "allow_incomplete": True, "prompt_cache_key": "plain"}
    plain, drafted = edit(tiny_served, **fields, drafting=False).json(), edit(tiny_served, **fields).json()
    assert plain["timings"]["passes"] == 29
    assert plain["timings"]["draft_n"] == 0
    assert drafted["timings"]["draft_n"] > 0
    assert drafted["text"] == plain["text"]


def test_lines_and_selections(fake: FakeEngine, served: Served) -> None:
    fake.answer = "print(color)\n"
    by_lines = edit(served, lines=[2, 2]).json()
    by_positions = edit(
        served, selection={"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 13}}
    ).json()
    by_offsets = edit(served, selection=[12, 25]).json()
    assert by_lines["text"] == "colour = 1\r\nprint(color)\r\n"
    assert by_positions["text"] == by_offsets["text"] == by_lines["text"]


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 5), ("utf-16", 3), ("utf-32", 2)])
def test_positions_count_what_is_asked_for(
    fake: FakeEngine, served: Served, encoding: str, character: int
) -> None:
    fake.answer = "y"
    result = edit(
        served,
        input="\U0001f600ax\n",
        selection={
            "start": {"line": 0, "character": character},
            "end": {"line": 0, "character": character + 1},
        },
        position_encoding=encoding,
    ).json()
    assert result["text"] == "\U0001f600ay\n"
    assert result["edits"][0]["range"]["start"] == {"line": 0, "character": character}


def test_a_cut_answer_changes_nothing_unless_that_is_allowed(served: Served) -> None:
    cut = edit(served, max_tokens=5).json()
    assert not cut["complete"]
    assert cut["text"] == TEXT
    assert cut["edits"] == []
    assert cut["warnings"]
    assert edit(served, max_tokens=5, allow_incomplete=True).json()["text"] != TEXT


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"input": "", "lines": [1, 1]}, 400, "invalid_value"),
        ({"instruction": "  "}, 400, "invalid_value"),
        ({"lines": [1, 9]}, 400, "invalid_value"),
        ({"lines": [1]}, 422, "invalid_value"),
        ({"lines": [1, 1], "selection": [0, 1]}, 400, "invalid_value"),
        ({"selection": [5, 99999]}, 400, "invalid_value"),
        (
            {"selection": {"start": {"line": 9, "character": 0}, "end": {"line": 9, "character": 1}}},
            400,
            "invalid_value",
        ),
        ({"position_encoding": "utf-7"}, 422, "invalid_value"),
        ({"return": ["everything"]}, 422, "invalid_value"),
        ({"seed": 13}, 400, "invalid_value"),
        ({"instruction": "x" * 2000}, 400, "context_length_exceeded"),
    ],
)
def test_what_cannot_be_done_is_told_before_the_first_byte(
    served: Served, fields: dict[str, Any], status: int, code: str
) -> None:
    for stream in (False, True):
        answer = edit(served, **fields, stream=stream)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["code"] == code


def test_lone_surrogates_are_refused(served: Served) -> None:
    head, _ = served.raw(b'{"input":"\\ud800","instruction":"x"}', "/v1/edits")
    assert head.startswith(b"HTTP/1.1 422")


def test_a_full_queue_refuses_edits(fake: FakeEngine, served: Served) -> None:
    fake.room = 0
    answer = edit(served, stream=True)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "7"


def test_a_text_longer_than_the_context_is_edited_in_parts(fake: FakeEngine, served: Served) -> None:
    long = "".join(f"line {number}\n" for number in range(150))
    result = edit(served, input=long).json()
    assert len(fake.jobs) > 1
    assert [job.request.admitted for job in fake.jobs] == [False] + [True] * (len(fake.jobs) - 1)
    assert result["usage"]["prompt_tokens"] == sum(len(job.request.prompt) for job in fake.jobs)


def test_a_full_queue_refuses_edits_before_they_are_planned(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(_text: object) -> list[int]:
        raise AssertionError("nothing is planned")

    monkeypatch.setattr(fake, "encode_prompt", encode)
    monkeypatch.setattr(fake, "encode_text", encode)
    fake.room = 0
    assert edit(served).status_code == 429
    fake.state = "stopping"
    assert edit(served).status_code == 503


def test_the_parts_of_an_edit_share_its_deadline(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer = "line\n" * 2  # four passes
    body = {"input": "".join(f"line {number}\n" for number in range(150)), "allow_incomplete": True}
    monkeypatch.setattr("editor_api.work.monotonic", fake.clock(1))
    assert edit(served, **body, deadline=300).status_code == 200
    left = [job.request.deadline for job in fake.jobs]
    assert len(left) > 1
    assert all(later < earlier - 4 for earlier, later in zip(left, left[1:], strict=False))
    fake.jobs.clear()
    monkeypatch.setattr("editor_api.work.monotonic", fake.clock(100))
    assert not edit(served, **body, deadline=300).json()["complete"]
    assert len(fake.jobs) == 1


def test_a_client_that_leaves_ends_the_plan_of_its_edit(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, go_on = threading.Event(), threading.Event()
    texts: list[str] = []

    def encode(text: str) -> list[int]:
        texts.append(text)
        counted.set()
        assert go_on.wait(PATIENCE)
        return [ord(char) for char in text]

    monkeypatch.setattr(fake, "encode_text", encode)
    body = {"input": "a line\n" * 300, "instruction": "x"}
    with served.sent(json.dumps(body).encode(), "/v1/edits"):
        assert counted.wait(PATIENCE)
    until(lambda: 'path="/v1/edits",status="499"' in served.client.get("/metrics").text)
    go_on.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "edit"])
    assert len(texts) == len(set(texts)) <= 2  # the messages of one prompt


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_edit(fake: FakeEngine, served: Served, stream: bool) -> None:
    fake.pause_after = 1
    body = b'{"input":"a\\n","instruction":"x","stream":%s}' % str(stream).lower().encode()
    with served.sent(body, "/v1/edits"):
        until(lambda: fake.jobs)
    until(lambda: fake.jobs[0].stopped)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "edit"])


def test_a_newer_edit_of_a_session_replaces_the_older_one(fake: FakeEngine, served: Served) -> None:
    fake.pause_after = 1
    answers: list[httpx2.Response] = []
    older = threading.Thread(target=lambda: answers.append(edit(served, session="s")))
    older.start()
    until(lambda: fake.jobs)
    fake.pause_after = None
    assert edit(served, session="s").status_code == 200
    older.join()
    assert answers[0].status_code == 409
    assert answers[0].json()["error"]["code"] == "request_replaced"


def test_edits_run_on_the_embedded_engine(tiny_served: Served) -> None:
    result = edit(tiny_served, max_tokens=30, allow_incomplete=True).json()
    assert result["usage"]["completion_tokens"] == 30
    assert applied(TEXT, result["edits"]) == result["text"]
    cached = edit(tiny_served, max_tokens=30, allow_incomplete=True).json()
    assert cached["text"] == result["text"]
    assert cached["timings"]["passes"] < result["timings"]["passes"]
