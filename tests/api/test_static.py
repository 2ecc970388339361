"""The page's files: what is served with which headers, what is packaged, and that vendored files are as built."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from editor_api.routes.page import FILES
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, serving
from web import examples

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
EDIT = {"input": "a\n", "instruction": "x"}


@pytest.fixture
def keyed(fake: FakeEngine, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A client of a service that needs a key, without one."""
    (tmp_path / "keys").write_text("right\n")
    with serving(fake, api_keys_file=tmp_path / "keys") as served:
        yield served.client


def test_every_page_has_a_policy_and_a_nonce_of_its_own(served: Served) -> None:
    nonces = set()
    for _ in range(2):
        answer = served.client.get("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        nonce = re.findall(r"'nonce-([\w-]+)'", policy)[0]
        assert f'content="{nonce}"' in answer.text
        assert "{{" not in answer.text
        nonces.add(nonce)
    assert len(nonces) == 2


def test_files_are_asked_for_again_but_not_sent_again(served: Served) -> None:
    answer = served.client.get("/static/app.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = served.client.get("/static/app.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_the_page_needs_no_key_and_all_else_does(keyed: httpx2.Client) -> None:
    for path in ("/", "/docs", "/openapi.json", "/static/app.js", "/static/vendor/codemirror.js"):
        assert keyed.get(path).status_code == 200, path
    for path in ("/metrics", "/v1/models", "/static", "/static/../metrics"):
        assert keyed.get(path).status_code == 401, path


@pytest.mark.parametrize(
    "path", ["/static/", "/static/nothing", "/static/%2e%2e/app.py", "/static/..%2fapp.py"]
)
def test_nothing_else_is_served(served: Served, path: str) -> None:
    answer = served.client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_the_page_may_call_by_whatever_name_it_was_reached_where_keys_are_needed(
    keyed: httpx2.Client, served: Served
) -> None:
    own = {"host": "edits.example", "origin": "https://edits.example"}
    right = {"authorization": "Bearer right"}
    assert keyed.post("/v1/edits", json=EDIT, headers=own | right).status_code == 200
    assert keyed.post("/v1/edits", json=EDIT, headers=own).status_code == 401
    other = right | {"host": "edits.example", "origin": "https://other.example"}
    assert keyed.post("/v1/edits", json=EDIT, headers=other).status_code == 403
    # Without keys, a name that leads to this computer would be enough.
    assert served.client.post("/v1/edits", json=EDIT, headers=own).status_code == 403


def test_the_description_names_files_of_the_service_alone(served: Served) -> None:
    text = served.client.get("/docs").text
    assert "static/vendor/swagger-ui-bundle.js" in text
    assert not re.findall(r"https?://", text)


def test_the_pages_own_files_name_no_other_server() -> None:
    for path in FILES.iterdir():
        if path.suffix in (".js", ".css", ".html", ".svg"):
            named = set(re.findall(r"https?://[^\s\"')]+", path.read_text(encoding="utf-8")))
            assert named <= {"http://www.w3.org/2000/svg"}, path


def test_modules_of_the_page_are_small() -> None:
    for path in FILES.glob("*.js"):
        assert path.read_text(encoding="utf-8").count("\n") < 400, path


def test_the_page_is_packaged_whole() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = project["tool"]["setuptools"]["package-data"]["editor_api"]
    packaged = {path for pattern in declared for path in FILES.parent.glob(pattern) if path.is_file()}
    assert packaged == {path for path in FILES.rglob("*") if path.is_file()}


def test_the_examples_are_those_of_the_data_sets() -> None:
    assert examples.WRITTEN.read_text(encoding="utf-8") == examples.written(), "run python web/examples.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("npm") is None, reason="building what is vendored needs npm")
def test_vendored_files_are_what_their_script_builds(tmp_path: Path) -> None:
    shutil.copytree(WEB, tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    built = tmp_path / "vendor"
    subprocess.run(["npm", "ci"], cwd=tmp_path / "web", check=True, capture_output=True)
    subprocess.run(["node", "build.mjs", built], cwd=tmp_path / "web", check=True, capture_output=True)
    vendored = {path.name: path.read_bytes() for path in (FILES / "vendor").iterdir()}
    assert {path.name: path.read_bytes() for path in built.iterdir()} == vendored
