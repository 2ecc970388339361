"""Whatever is sent: an error in OpenAI's shape, and a server that lives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editor_api.auth import ApiKeys
from editor_api.errors import ApiError
from editor_api.settings import Settings
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, chat_body, serving, until

BAD_BODIES = {
    "nothing": b"",
    "random bytes": random.Random(0).randbytes(2000),
    "invalid UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "a cut body": chat_body()[:-3],
    "a lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "a raw lone surrogate": b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}',
    "a surrogate in a key": b'{"messages":[{"role":"user","content":"a"}],"logit_bias":{"\\ud800":1}}',
    "a surrogate in a stop string": b'{"messages":[{"role":"user","content":"a"}],"stop":["\\udfff"]}',
    "deep lists": b"[" * 100_000,
    "deep lists in a field": b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 100_000,
    "NaN": chat_body()[:-1] + b',"temperature":NaN}',
    "Infinity": chat_body()[:-1] + b',"top_p":Infinity}',
    "an overflowing number": chat_body()[:-1] + b',"temperature":1e999}',
    "a huge integer": chat_body()[:-1] + b',"max_tokens":' + b"9" * 5000 + b"}",
    "a large integer": chat_body()[:-1] + b',"seed":' + b"9" * 40 + b"}",
    "a long line": chat_body("x" * 10_000_000),
    "a list": b"[1, 2]",
    "null": b"null",
    "a number": b"1",
    "no messages": b"{}",
    "empty messages": b'{"messages":[]}',
    "messages as text": b'{"messages":"hi"}',
    "an unknown role": b'{"messages":[{"role":"pirate","content":"a"}]}',
    "an image": b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]}',
    "a prediction without a type": chat_body(prediction={"content": "a"}),
    "a negative limit": chat_body(max_tokens=-5),
    "a zero limit": chat_body(max_tokens=0),
    "a text for a number": chat_body(temperature="hot"),
    "a bias for a word": chat_body(logit_bias={"word": 1}),
    "a bad seed": chat_body(seed=13),
    "too many answers": chat_body(n=9),
    "too many stop strings": chat_body(stop=["a"] * 17),
    "no JSON schema": chat_body(response_format={"type": "json_schema", "json_schema": {}}),
    "an unknown format": chat_body(response_format={"type": "xml"}),
}


@pytest.fixture(scope="module")
def lasting() -> Iterator[Served]:
    """A service for many bad requests."""
    with serving(FakeEngine()) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies_are_told_and_survived(lasting: Served, name: str, stream: bool) -> None:
    body = BAD_BODIES[name]
    if stream and body.endswith(b"}"):
        body = body[:-1] + b',"stream":true}'
    answer = lasting.client.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] and error["code"]
    assert "\n" not in answer.text
    assert lasting.chat().status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"temperature": -1}, 422, "invalid_value", "temperature"),
        ({"stop": [1]}, 422, "invalid_value", "stop.0"),
        ({"n": 9}, 400, "invalid_value", "n"),
        ({"stop": ["a"] * 17}, 400, "invalid_value", "stop"),
        ({"response_format": {"type": "xml"}}, 422, "invalid_value", "response_format.type"),
        ({"content": "x" * 1000}, 400, "context_length_exceeded", "messages"),
    ],
)
def test_errors_name_the_field(
    lasting: Served, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = lasting.chat(**fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"


def test_a_body_that_is_no_json_is_400(lasting: Served) -> None:
    assert lasting.raw(b"{")[0].startswith(b"HTTP/1.1 400")
    for body in (b"{", BAD_BODIES["invalid UTF-8"], BAD_BODIES["deep lists"]):
        assert json.loads(lasting.raw(body)[1])["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_of_another_kind_is_told(lasting: Served, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = lasting.client.post("/v1/chat/completions", content=chat_body(), headers=headers)
    assert answer.status_code == 422
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/edits", "/tokenize", "/infill"])
def test_a_body_that_is_empty_is_told(lasting: Served, path: str) -> None:
    head, answer = lasting.raw(b"", path)
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(answer)["error"]["message"].startswith("the body is empty: send a JSON object")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", {"POST"}),
        ("DELETE", "/v1/models", {"GET", "HEAD"}),
        ("POST", "/v1/models/fake", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
        ("POST", "/", {"GET", "HEAD"}),
        ("PUT", "/infill", {"POST"}),
        ("POST", "/static/app.js", {"GET", "HEAD"}),
        ("POST", "/openapi.json", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_told_with_the_right_ones(
    lasting: Served, method: str, path: str, allowed: set[str]
) -> None:
    answer = lasting.client.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/health", "/v1/health", "/ready", "/docs", "/openapi.json", "/metrics", "/props"),
        *("/v1/models", "/v1/models/fake", "/static/app.js"),
    ],
)
def test_what_answers_get_answers_head(lasting: Served, path: str) -> None:
    whole, head = lasting.client.get(path), lasting.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_unknown_routes_and_methods(lasting: Served) -> None:
    for answer, status in [
        (lasting.client.get("/v1/nothing"), 404),
        (lasting.client.get("/nothing"), 404),
        (lasting.client.get("/v1/chat/completions"), 405),
        (lasting.client.post("/%ff%00"), 404),
    ]:
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("POST", "/v1/embeddings", "there is nothing at /v1/embeddings: /docs shows what there is"),
        ("GET", "/v1/edits", "/v1/edits does not take GET: /docs shows what there is"),
        ("GET", "/a%0A%C3%A9", "there is nothing at /a\n\\xe9: /docs shows what there is"),
    ],
)
def test_an_unknown_route_is_named(lasting: Served, method: str, path: str, told: str) -> None:
    assert lasting.client.request(method, path).json()["error"]["message"] == told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}],
            "only text parts",
        ),
        ([{"type": "image", "source": {}}], "only text parts"),
        ([{"type": "text"}], "messages.0.content.0.text: Field required"),
        (5, "messages.0.content: Input should be a valid string"),
    ],
)
def test_content_that_is_no_text_is_told(lasting: Served, content: object, told: str) -> None:
    answer = lasting.client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]}
    )
    assert answer.status_code == 422
    assert told in answer.json()["error"]["message"]


def test_a_body_too_large_is_refused_whether_or_not_it_says_so(lasting: Served) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(9):
            yield b" " * (1 << 20)

    chunked = lasting.client.post("/v1/chat/completions", content=parts())
    assert chunked.status_code == 413
    assert chunked.json()["error"]["code"] == "request_too_large"
    assert lasting.client.post("/v1/edits", content=b" " * (9 << 20)).status_code == 413


def test_too_many_headers_are_refused(lasting: Served) -> None:
    head, body = lasting.raw(chat_body(), headers="x-long: " + "a" * 40_000 + "\r\n")
    assert head.startswith(b"HTTP/1.1 431")
    assert json.loads(body)["error"]["code"] == "headers_too_large"


def test_request_ids_are_taken_or_made(lasting: Served) -> None:
    mine = lasting.client.get("/health", headers={"x-request-id": "abc-1"})
    assert mine.headers["x-request-id"] == "abc-1"
    odd = lasting.client.get("/health", headers={"x-request-id": "a b\tc" * 99})
    assert len(odd.headers["x-request-id"]) == 32
    assert lasting.chat().json()["id"].startswith("chatcmpl-")


def test_a_full_queue_says_when_to_come_back(fake: FakeEngine, served: Served) -> None:
    fake.room = 0
    answer = served.chat(stream=True)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "7"
    assert answer.json()["error"]["type"] == "rate_limit_error"


def test_another_model_is_refused_where_names_matter(fake: FakeEngine) -> None:
    with serving(fake, strict_model=True) as served:
        assert served.chat(model="gpt-4o").json()["error"]["code"] == "model_not_found"
        assert served.chat(model="gpt-4o").status_code == 404
        assert served.chat(model="fake").status_code == 200
        assert served.chat(model="fake-Fast-Apply").status_code == 200
        assert served.client.get("/v1/models/gpt-4o").status_code == 404


@pytest.fixture
def keyed(fake: FakeEngine, tmp_path: Path) -> Iterator[Served]:
    """A service with two keys."""
    file = tmp_path / "keys"
    file.write_text("# people\nfirst-key\n\n  second-key\n")
    with serving(fake, api_keys_file=file) as running:
        yield running


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first-key"},
        {"authorization": "bearer second-key"},
        {"api-key": "first-key"},
        {"x-api-key": "second-key"},
        {"authorization": "Bearer wrong", "api-key": "first-key"},
    ],
)
def test_every_way_to_send_a_key(keyed: Served, headers: dict[str, str]) -> None:
    assert keyed.client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Basic first-key"},
        {"api-key": ""},
        {"api-key": "first-ke"},
    ],
)
def test_without_a_key_nothing_is_read(keyed: Served, headers: dict[str, str]) -> None:
    answer = keyed.client.post("/v1/chat/completions", content=b"{", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_what_needs_no_key(keyed: Served) -> None:
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/v1/health"):
        assert keyed.client.get(path).status_code == 200
    for path in ("/metrics", "/v1/models", "/nothing"):
        assert keyed.client.get(path).status_code == 401


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (b"\xef\xbb\xbfsecret\n", "secret"),
        (b"secret  # laptop\n", "secret"),
        (b"secret\t# laptop\r\n", "secret"),
        (b"  # comment\n\nse#cret\r\n", "se#cret"),
    ],
)
def test_keys_are_read_from_files_of_every_editor(tmp_path: Path, written: bytes, key: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(written)
    assert ApiKeys.read(file).tenant({"authorization": f"Bearer {key}"})
    with pytest.raises(ApiError):
        ApiKeys.read(file).tenant({"authorization": "Bearer # comment"})


@pytest.mark.parametrize("written", ["clé\n", "a\n“b”\n", "a\tb\n", "a\x00\n"])
def test_keys_that_no_header_holds_are_refused_at_the_start(tmp_path: Path, written: str) -> None:
    file = tmp_path / "keys"
    file.write_text(written)
    with pytest.raises(ValueError, match="^line . of the key file .* ASCII") as raised:
        ApiKeys.read(file)
    assert "\n" not in str(raised.value)


def test_keys_tell_tenants_apart(keyed: Served, fake: FakeEngine) -> None:
    for key in ("first-key", "second-key", "first-key"):
        keyed.client.headers["authorization"] = f"Bearer {key}"
        keyed.chat(session="s")
    first, second, again = [job.request for job in fake.jobs]
    assert first.tenant == again.tenant != second.tenant
    assert first.namespace == again.namespace != second.namespace
    assert "first-key" not in first.tenant


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8"])
def test_pages_on_this_computer_may_call(lasting: Served, origin: str) -> None:
    asked = "authorization,content-type,x-stainless-os"
    preflight = lasting.client.options(
        "/v1/chat/completions",
        headers={
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": asked,
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-headers"] == asked
    answer = lasting.client.get("/v1/models", headers={"origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-expose-headers"] == "x-request-id, retry-after"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "null"])
def test_pages_from_elsewhere_may_not(lasting: Served, origin: str) -> None:
    answer = lasting.client.post("/v1/chat/completions", content=chat_body(), headers={"origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert answer.json()["error"]["code"] == "origin_not_allowed"


@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("*", "https://a.example"),
        ("*", "null"),
        ("https://a.example", "https://a.example"),
        ("https://A.example/", "https://a.example"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:8080/", "http://a.example:8080"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ("null", "null"),
    ],
)
def test_pages_of_allowed_origins_may_call(fake: FakeEngine, allowed: str, origin: str) -> None:
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    with serving(fake, cors_origins=[allowed]) as served:
        path = "/v1/chat/completions"
        assert served.client.options(path, headers=preflight).status_code == 200
        headers = {"origin": origin, "content-type": "application/json"}
        answer = served.client.post(path, content=chat_body(), headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == ("*" if allowed == "*" else origin)


@pytest.mark.parametrize(
    "written", ["a.example", "https://a.example/path", "https://*.example", "", "https://ä.example"]
)
def test_what_is_no_origin_is_refused_at_the_start(written: str) -> None:
    with pytest.raises(ValueError, match="is no web origin"):
        Settings(cors_origins=[written])


def test_errors_that_nobody_foresaw_can_be_read_by_pages() -> None:
    with serving(FakeEngine(answer="x", error=RuntimeError("secret"))) as served:
        headers = {"origin": "http://localhost:1", "content-type": "application/json"}
        answer = served.client.post("/v1/chat/completions", content=chat_body(), headers=headers)
        assert answer.status_code == 500
        assert answer.headers["access-control-allow-origin"] == "http://localhost:1"
        assert answer.headers["x-request-id"]
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


def test_errors_can_be_read_by_pages(keyed: Served) -> None:
    answer = keyed.client.get("/v1/models", headers={"origin": "http://localhost:1"})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "http://localhost:1"


def test_logs_hold_ids_and_no_prompts(lasting: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        lasting.chat("the secret text")
        # The line is written after the answer was sent.
        until(lambda: any(record.getMessage() == "request" for record in caplog.records))
    lines = [record for record in caplog.records if record.name.startswith("editor_api")]
    assert any(getattr(record, "path", None) == "/v1/chat/completions" for record in lines)
    assert all("secret" not in str(vars(record)) for record in caplog.records)
