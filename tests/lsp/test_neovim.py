"""The configuration of docs/lsp.md in a real Neovim, where there is one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = "def one():\n    return 1\n\n\ndef two():\n    return '\U0001f600', 2\n"
LONG = "".join(f"line {number} of a text\n" for number in range(300))

pytestmark = pytest.mark.skipif(shutil.which("nvim") is None, reason="nvim is not installed")

PRELUDE = """
local said = {}
vim.notify = function(message) table.insert(said, message) end
local function until_true(what) assert(vim.wait(240000, what, 20), vim.inspect(said)) end
local function text() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\\n") .. "\\n" end
local function is_running()
  local client = vim.lsp.get_clients({ bufnr = 0, name = "lookupdec" })[1]
  return client ~= nil and client.initialized
end
vim.cmd.edit(vim.env.FILE)
until_true(is_running)
local before = text()
local function until_changed() until_true(function() return text() ~= before end) end
"""
EPILOGUE = """
io.stdout:write(vim.json.encode({ text = text(), said = said }))
vim.lsp.stop_client(vim.lsp.get_clients())
until_true(function() return #vim.lsp.get_clients() == 0 end)
vim.cmd("qall!")
"""


def neovim(tmp_path, text: str, steps: str, **options: object):
    """Run steps in an editor that was configured as the page says; return its text and its messages."""
    (block,) = re.findall(r"```lua\n(.*?)```", (ROOT / "docs" / "lsp.md").read_text(), re.DOTALL)
    command = [sys.executable, "-m", "tests.lsp.scripted_server", json.dumps(options)]
    scripted = f"vim.lsp.config('lookupdec', {{ cmd = vim.json.decode([==[{json.dumps(command)}]==]) }})\n"
    script = tmp_path / "steps.lua"
    script.write_text("\n".join([block, scripted, PRELUDE, steps, EPILOGUE]))
    file = tmp_path / "text.py"
    file.write_text(text)
    environment = os.environ | {"FILE": str(file), "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        ["nvim", "--clean", "--headless", "-c", "filetype on", "-c", f"luafile {script}", "-c", "cquit 1"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_edits_the_lines_it_is_given(tmp_path):
    result = neovim(
        tmp_path, TEXT, "vim.cmd('5,6Lookup use yield')\nuntil_changed()", replace={"return": "yield"}
    )
    assert result == {"text": TEXT.replace("return '", "yield '"), "said": []}


def test_the_command_asks_for_an_instruction(tmp_path):
    steps = """
    vim.ui.input = function(_, answer) answer("use yield") end
    vim.cmd("%Lookup")
    until_changed()
    """
    result = neovim(tmp_path, TEXT, steps, replace={"return": "yield"})
    assert result["text"] == TEXT.replace("return", "yield")


def test_the_code_action_offers_the_instructions(tmp_path):
    steps = """
    vim.ui.select = function(items, _, choice) choice(items[1], 1) end
    vim.api.nvim_win_set_cursor(0, { 2, 4 })
    vim.lsp.buf.code_action({
      apply = true,
      filter = function(action) return action.title == "Edit selection with instruction..." end,
    })
    until_changed()
    """
    result = neovim(tmp_path, TEXT, steps, replace={"return": "yield"})
    assert result["text"] == TEXT.replace("return 1", "yield 1")


def test_an_instruction_in_the_text_is_one_undo_step(tmp_path):
    steps = """
    vim.api.nvim_win_set_cursor(0, { 2, 0 })
    vim.lsp.buf.code_action({
      apply = true,
      filter = function(action) return action.title == "Edit selection: use yield" end,
    })
    until_changed()
    assert(not text():find("lookupdec"))
    vim.cmd.undo()
    """
    text = "# lookupdec: use yield\n" + TEXT
    assert neovim(tmp_path, text, steps, replace={"return": "yield"})["text"] == text


def test_stop_ends_an_edit_and_a_change_ends_one(tmp_path):
    # After three passes each waits for the gate. The second edit begins once the first one's generation has ended.
    steps = """
    local folder = vim.fs.dirname(vim.env.FILE)
    local file, gate = vim.fs.joinpath(folder, "passes"), vim.fs.joinpath(folder, "gate")
    local function passes() return vim.fn.filereadable(file) == 1 and vim.fn.readfile(file) or {} end
    vim.cmd("%Lookup tell")
    until_true(function() return #passes() == 3 end)
    vim.cmd("LookupStop")
    local params = vim.lsp.util.make_range_params(0, "utf-16")
    params.context = { diagnostics = {} }
    assert(vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 240000), "no answer after the stop")
    vim.fn.writefile({}, gate)
    until_true(function() return #passes() == 4 end)
    vim.fn.delete(gate)
    vim.cmd("%Lookup tell")
    until_true(function() return vim.deep_equal(passes(), { "0", "1", "2", "3", "0", "1", "2" }) end)
    vim.api.nvim_buf_set_lines(0, 0, 0, false, { "more" })
    until_true(function() return #said > 0 or vim.fn.execute("messages"):find("changed meanwhile") end)
    """
    result = neovim(tmp_path, LONG, steps, gate=str(tmp_path / "gate"), passes=str(tmp_path / "passes"))
    assert result["text"] == "more\n" + LONG
