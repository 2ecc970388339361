"""The settings of docs/editors.md, and the requests that editors send with them."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import yaml

from editor_api.app import create_app
from editor_api.settings import Settings
from tests.api.documented import PORT, block, blocks
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, events

CODE = "def f(x):\n    return x"
SYSTEM = {"role": "system", "content": "You are an expert coder."}
TOOL = {"type": "function", "function": {"name": "edit_file", "parameters": {"type": "object"}}}
LLAMA_FIELDS = {
    "id_slot": 0,
    "cache_prompt": True,
    "samplers": ["top_k", "top_p", "infill"],
    "t_max_prompt_ms": 500,
}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def strings(text: str, name: str) -> list[str]:
    """Return the strings that Lua or Vim script gives to a name."""
    return re.findall(rf"""'?\b{name}'?\s*[=:]\s*["']([^"']*)["']""", text)


def send(served: Served, url: str, body: dict[str, Any]) -> httpx2.Response:
    answer = served.client.post(url, json=body, headers={"authorization": "Bearer none"})
    assert answer.status_code == 200, answer.text
    return answer


def said(answer: httpx2.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def deltas(answer: httpx2.Response) -> str:
    chunks = events(answer.content)
    # Continue loses the text of chunks that have a usage.
    return "".join(
        chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if not chunk.get("usage")
    )


def test_every_address_is_that_of_the_service() -> None:
    settings = Settings()
    paths = set(create_app(settings, FakeEngine()).openapi()["paths"])
    assert settings.port == PORT
    for one in blocks("editors.md"):
        for host, port, path in re.findall(r"https?://([\w.]+):(\d+)([\w/]*)", one.text):
            assert (host, int(port)) == (settings.host, PORT), one.heading
            assert path in {"", "/v1"} or path in paths, path


def test_every_editor_of_the_table_has_settings() -> None:
    page_editors = {
        "Continue",
        "Zed",
        "llama.vscode",
        "llama.vim",
        "aider",
        "avante.nvim",
        "codecompanion.nvim",
    }
    with_settings = {one.heading for one in blocks("editors.md") if one.language != "sh"}
    assert with_settings == page_editors


def continues_models(served: Served) -> dict[str, dict[str, Any]]:
    config = yaml.safe_load(block("editors.md", "Continue", "yaml").at(served.port))
    assert (config["schema"], config["name"]) == ("v1", "lookupdec")
    return {role: model for model in config["models"] for role in model["roles"]}


def test_continue_edits(fake: FakeEngine, served: Served) -> None:
    model = continues_models(served)["edit"]
    asked = f"```python a.py\n{CODE}\n```\n\nPlease rewrite the above file to address the following request:\n\nTypes."
    body = {
        "model": model["model"],
        "messages": [user(asked)],
        "max_tokens": 400,
        "stop": ["```"],
        "stream": True,
        "stream_options": {"include_usage": True},
        **model["defaultCompletionOptions"],
    }
    assert deltas(send(served, f"{model['apiBase']}/chat/completions", body)) == "Hello, world"
    assert fake.jobs[0].expected[0] == CODE


def test_continue_applies(fake: FakeEngine, served: Served) -> None:
    model = continues_models(served)["apply"]
    asked = f"ORIGINAL CODE:\n```\n{CODE}\n```\n\nSUGGESTED EDIT:\n```\nx\n```\n\nApply the edit."
    messages = [user(asked), {"role": "assistant", "content": "```\n"}]
    body = {"model": model["model"], "messages": messages, "stream": True}
    assert deltas(send(served, f"{model['apiBase']}/chat/completions", body)) == "Hello, world"
    assert fake.jobs[0].expected[0] == CODE


def test_continue_completes(fake: FakeEngine, served: Served) -> None:
    model = continues_models(served)["autocomplete"]
    assert model["provider"] == "mistral"
    body = {
        "model": model["model"],
        "prompt": "def f(x):\n",
        "suffix": "\n",
        "max_tokens": 100,
        "temperature": 0.01,
        "stop": ["[PREFIX]", "[SUFFIX]", "\n\n"],
        "stream": True,
    }
    assert deltas(send(served, f"{model['apiBase']}/fim/completions", body)) == "Hello, world"
    assert fake.decode(fake.jobs[0].request.prompt) == "<def f(x):\n|\n>"


def zed(served: Served) -> Any:
    return json.loads(block("editors.md", "Zed", "json").at(served.port))


def test_zeds_assistant(fake: FakeEngine, served: Served) -> None:
    provider = zed(served)["language_models"]["openai_compatible"]["lookupdec"]
    model = provider["available_models"][0]
    body = {
        "model": model["name"],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            user([{"type": "text", "text": "Rewrite "}, {"type": "text", "text": "this."}]),
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 900,
        "stop": [],
        "temperature": 1.0,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "tools": [TOOL],
        "prompt_cache_key": "thread-1",
        "reasoning_effort": None,
    }
    assert deltas(send(served, f"{provider['api_url']}/chat/completions", body)) == "Hello, world"
    assert fake.decode(fake.jobs[0].request.prompt) == "sRewrite this."
    assert fake.jobs[0].request.namespace.endswith('/[null, "thread-1"]')


def test_zeds_predictions(fake: FakeEngine, served: Served) -> None:
    predictions = zed(served)["edit_predictions"]
    config = predictions[predictions["provider"]]
    prompt = "<|fim_prefix|>def f(x):\n<|fim_suffix|>\n<|fim_middle|>"
    stop = ["<|endoftext|>", "<|file_sep|>", "<|fim_pad|>", "<|fim_prefix|>"]
    body = {
        "model": config["model"],
        "prompt": prompt,
        "max_tokens": config["max_output_tokens"],
        "stop": stop,
    }
    answer = send(served, config["api_url"], body).json()
    assert answer["choices"][0]["text"] == "Hello, world"
    assert all(isinstance(answer[name], str) for name in ("id", "object", "model"))
    assert isinstance(answer["created"], int) and len(answer["usage"]) >= 3


def llama_vscode(served: Served) -> dict[str, str]:
    config = json.loads(block("editors.md", "llama.vscode", "json").at(served.port))
    return {name.removeprefix("llama-vscode."): value for name, value in config.items()}


def test_llama_vscode_asks_what_it_talks_to(served: Served) -> None:
    base = llama_vscode(served)["endpoint_chat"]
    assert "status" in served.client.get(f"{base}/health").json()
    assert served.client.get(f"{base}/v1/models").json()["data"][0]["context_length"] == 1000
    props = served.client.get(f"{base}/props", params={"model": "any", "autoload": "false"}).json()
    assert props["default_generation_settings"]["n_ctx"] == 1000
    assert send(served, f"{base}/apply-template", {"messages": [user("hi")]}).json() == {"prompt": "hi"}
    assert send(served, f"{base}/tokenize", {"content": "hi"}).json()["tokens"] == [104, 105]


def test_llama_vscode_edits_a_selection(fake: FakeEngine, served: Served) -> None:
    config = llama_vscode(served)
    asked = f"Modify it.\n\ninstructions:\nTypes.\n\noriginal code:\n{CODE}\n\nmodified code:"
    body = {
        "messages": [SYSTEM, user(asked)],
        "stream": False,
        "cache_prompt": True,
        "samplers": "edkypmxt",
        "temperature": 0.8,
        "dynatemp_range": 0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1,
        "repeat_last_n": 64,
        "repeat_penalty": 1,
        "dry_multiplier": 0,
        "max_tokens": -1,
        "timings_per_token": False,
        "model": config["ai_model"],
    }
    url = f"{config['endpoint_chat']}/{config['ai_api_version']}/chat/completions"
    assert said(send(served, url, body)) == "Hello, world"
    assert fake.jobs[0].expected[0] == CODE


def test_llama_vscode_completes_and_warms_up(fake: FakeEngine, served: Served) -> None:
    url = f"{llama_vscode(served)['endpoint']}/infill"
    chunk = {"text": "y = 1\n", "time": 12345.6, "filename": "b.py"}
    gap = {"input_prefix": "a\n", "input_suffix": "\n", "input_extra": [chunk], "prompt": "x"}
    body = {
        **gap,
        **LLAMA_FIELDS,
        "n_predict": 128,
        "top_k": 40,
        "top_p": 0.99,
        "stream": False,
        "n_indent": 4,
    }
    answer = send(served, url, body | {"t_max_predict_ms": 500}).json()
    assert answer["content"] == "Hello, world"
    assert {"timings", "tokens_cached", "truncated", "generation_settings"} <= answer.keys()
    warm = {**gap, **LLAMA_FIELDS, "n_predict": 0, "samplers": [], "t_max_predict_ms": 1}
    assert send(served, url, warm).json()["content"] == ""
    warm_chat = {"messages": [SYSTEM, user("context")], "n_predict": 0, "samplers": [], "cache_prompt": True}
    send(served, f"{llama_vscode(served)['endpoint_chat']}/v1/chat/completions", warm_chat)
    assert fake.jobs[-1].request.settings["max_new_tokens"] == 1


def test_llama_vscodes_agent_is_answered_with_text(served: Served) -> None:
    url = f"{llama_vscode(served)['endpoint_tools']}/v1/chat/completions"
    messages = [
        user("hi"),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        {"role": "tool", "content": "done", "tool_call_id": "1"},
    ]
    body = {"messages": messages, "stream": False, "tools": [TOOL], "tool_choice": "auto"}
    assert said(send(served, url, body)) == "Hello, world"


def test_llama_vim_completes(served: Served) -> None:
    text = block("editors.md", "llama.vim", "vim").at(served.port)
    (url,) = strings(text, "endpoint_fim")
    fields = ["content", "timings/prompt_n", "timings/prompt_per_token_ms", "timings/predicted_per_second"]
    body = {
        "id_slot": 0,
        "input_prefix": "a\n",
        "input_suffix": "\nb\n",
        "input_extra": [{"text": "y\n", "time": [1, 2], "filename": "b.py"}],
        "prompt": "x",
        "n_predict": 128,
        "n_cmpl": 1,
        "stop": [],
        "n_indent": 0,
        "top_k": 40,
        "top_p": 0.99,
        "stream": False,
        **LLAMA_FIELDS,
        "t_max_predict_ms": 1000,
        "response_fields": [*fields, "truncated", "tokens_cached"],
    }
    answer = send(served, url, body).json()
    assert answer.keys() == {*fields, "truncated", "tokens_cached"}
    assert all(isinstance(answer[name], int | float) for name in fields[1:])
    warm = {"prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [], "t_max_predict_ms": 1}
    assert send(served, url, warm | {"response_fields": [""], "stream": False}).json() == {}


def test_llama_vim_edits(fake: FakeEngine, served: Served) -> None:
    text = block("editors.md", "llama.vim", "vim").at(served.port)
    (url,) = strings(text, "endpoint_inst")
    system = f"You edit.\n--- SELECTION --------\n{CODE}\n--- CONTEXT ----\ny = 1"
    body = {
        "id_slot": 0,
        "messages": [{"role": "system", "content": system}, user("INSTRUCTION: Types.")],
        "min_p": 0.1,
        "temperature": 0.1,
        "samplers": ["min_p", "temperature"],
        "stream": True,
        "cache_prompt": True,
    }
    assert deltas(send(served, url, body)) == "Hello, world"
    assert fake.jobs[0].expected[0] == CODE


def test_aider_continues_an_answer_that_was_cut(fake: FakeEngine, served: Served) -> None:
    config = yaml.safe_load(block("editors.md", "aider", "yaml").at(served.port))
    metadata = json.loads(block("editors.md", "aider", "json").text)
    (settings,) = yaml.safe_load(block("editors.md", "aider", "yaml", 1).text)
    assert config["model"] in metadata and settings["name"] == config["model"]
    assert config["edit-format"] == settings["edit_format"] == "whole"
    body = {
        "model": config["model"].removeprefix("openai/"),
        "messages": [user("hi"), {"role": "assistant", "content": "Hel", "prefix": True}],
        "temperature": 0,
        "stream": True,
        **settings["extra_params"],
    }
    assert deltas(send(served, f"{config['openai-api-base']}/chat/completions", body)) == "Hello, world"
    assert fake.decode(fake.jobs[0].request.prompt) == "hiHel"


def test_avante_chats_and_merges(fake: FakeEngine, served: Served) -> None:
    text = block("editors.md", "avante.nvim", "lua").at(served.port)
    chat_url, morph_url = strings(text, "endpoint")
    chat_model, morph_model = strings(text, "model")
    body = {
        "model": chat_model,
        "messages": [SYSTEM, user("hi")],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4096,
        "temperature": 0,
    }
    assert deltas(send(served, f"{chat_url}/chat/completions", body)) == "Hello, world"
    fake.answer = f"```\n{CODE.replace('x', 'y')}\n```"
    sketch = (
        f"<instructions>I rename x.</instructions>\n<code>{CODE}</code>\n<update>def f(y):\n# ...</update>"
    )
    answer = send(served, f"{morph_url}/chat/completions", {"model": morph_model, "messages": [user(sketch)]})
    assert said(answer) == CODE.replace("x", "y")


def test_codecompanion_chats_and_edits_inside_json(fake: FakeEngine, served: Served) -> None:
    text = block("editors.md", "codecompanion.nvim", "lua").at(served.port)
    (url,), (chat_url,), (models_url,) = (
        strings(text, name) for name in ("url", "chat_url", "models_endpoint")
    )
    assert served.client.get(url + models_url).json()["data"][0]["id"] == "fake"
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    chat = {"model": "fake", "messages": [SYSTEM, user("hi")], "temperature": 1, "top_p": 1, "n": 1, **stream}
    assert deltas(send(served, url + chat_url, chat)) == "Hello, world"

    fake.answer = json.dumps({"code": CODE, "language": "python", "placement": "replace"})
    asked = 'Output only valid JSON.\n{"properties": {"code": {}, "language": {}, "placement": {}}}'
    selection = f"This is selected in the buffer:\n<code>\n```python\n{CODE}\n```\n</code>"
    messages = [{"role": "system", "content": asked}, user(selection), user("<prompt>Types.</prompt>")]
    answer = send(served, url + chat_url, {"model": "fake", "messages": messages, "stream": False})
    assert json.loads(said(answer))["code"] == CODE
    assert fake.jobs[-1].expected[0] == json.dumps(json.loads(fake.answer), indent=2)
