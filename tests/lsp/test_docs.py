"""What docs/lsp.md tells people to paste."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer
from lsprotocol import types

from lookupdec.cli.app import app
from lookupdec.lsp.marks import piece_of
from lookupdec.lsp.orders import EDIT, REWRITE, SUMMARIZE, Order

TEXT = (Path(__file__).parents[2] / "docs" / "lsp.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def test_helix_starts_the_server_for_each_language():
    (block,) = blocks("toml")
    config = tomllib.loads(block)
    server = config["language-server"]["lookupdec"]
    assert [server["command"], *server["args"]] == ["lookupdec", "lsp"]
    assert all(isinstance(instruction, str) for instruction in server["config"]["instructions"])
    assert all("lookupdec" in language["language-servers"] for language in config["language"])


def test_the_extension_has_what_its_manifest_names():
    manifest = json.loads(blocks("json")[0])
    (script,) = blocks("javascript")
    for command in manifest["contributes"]["commands"]:
        assert f'registerCommand("{command["command"]}"' in script
    settings = manifest["contributes"]["configuration"]["properties"]
    for name in re.findall(r'settings\.get\("(\w+)"\)', script):
        assert f"lookupdec.{name}" in settings
    assert "lookupdec.instructions" in settings
    for module in set(re.findall(r'require\("([\w-]+)', script)) - {"vscode"}:
        assert module in manifest["dependencies"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_extension_is_javascript():
    (script,) = blocks("javascript")
    subprocess.run(["node", "--check", "-"], input=script, text=True, check=True, timeout=300)


def test_the_example_request_is_read():
    order = Order.read(types.ExecuteCommandParams(**json.loads(blocks("json")[1])))
    assert (order.command, order.instruction, order.version) == (EDIT, "Use pathlib.", 3)
    assert order.range is not None and order.range.end.line == 9


def test_the_example_comment_is_an_instruction():
    (text,) = blocks("python")
    found = piece_of(text, 0, len(text))
    assert (found.instruction, found.text) == ("use pathlib", text.partition("\n")[2])


def test_every_option_is_documented():
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    options = {name for option in command.commands["lsp"].params for name in option.opts} - {"--help", "-h"}
    assert set(re.findall(r"`(--[\w-]+)", TEXT.partition("\n## ")[0])) == options


def test_every_command_is_documented():
    assert re.findall(r"^\| `(lookupdec\.\w+)`", TEXT, re.MULTILINE) == [EDIT, REWRITE, SUMMARIZE]
