"""One request after the other and several at once: nothing stays behind, nothing leaks across."""

from __future__ import annotations

import gc
import threading
from typing import Any

import psutil
import pytest
import torch

from lookupdec import _kernels as kernels
from lookupdec.draft import CopyDrafter
from lookupdec.errors import DrafterError, InputError
from lookupdec.hf import Generation, Settings, custom_generate, generate, stream
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap


def indexed(drafter: CopyDrafter) -> list[list[int]]:
    """Return all that a drafter's index holds; what lies beyond is memory nobody has written."""
    states, edges, meta, text = drafter._index.automaton
    filled = int(meta[kernels.N_STATES]) * kernels.STATE_FIELDS
    return [states[:filled].tolist(), edges.tolist(), meta.tolist(), text[: meta[kernels.N_TOKENS]].tolist()]


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize(
    "second",
    [[5, 6], [*range(20), *range(20), 3, 4, 5], random_prompt(3), [9]],
    ids=["shorter", "longer", "equal", "one token"],
)
def test_a_second_request_finds_the_drafter_as_a_fresh_one_is(family: str, second: list[int]) -> None:
    model, settings = tiny_model(family, 3), Settings(max_new_tokens=30)
    drafter = CopyDrafter()
    generate(wrap(model), random_prompt(3), settings, drafter=drafter)
    result = generate(wrap(model), second, settings, drafter=drafter)
    assert list(result.ids) == plain(model, second, max_new_tokens=30, do_sample=False)
    fresh = CopyDrafter()
    assert generate(wrap(model), second, settings, drafter=fresh).ids == result.ids
    assert indexed(drafter) == indexed(fresh)


def test_an_empty_prompt_is_refused_and_leaves_the_drafter_usable() -> None:
    model, prompt, drafter = wrap(tiny_model("llama", 3)), random_prompt(3), CopyDrafter()
    expected = generate(model, prompt, Settings(max_new_tokens=20), drafter=drafter).ids
    with pytest.raises(InputError, match="the prompt is empty"):
        generate(model, [], Settings(max_new_tokens=20), drafter=drafter)
    assert generate(model, prompt, Settings(max_new_tokens=20), drafter=drafter).ids == expected


def test_a_stream_given_up_leaves_the_drafter_usable() -> None:
    model, prompt, drafter = wrap(tiny_model("llama", 3)), random_prompt(3), CopyDrafter()
    expected = generate(model, prompt, Settings(max_new_tokens=20)).ids
    chunks = stream(model, prompt, Settings(max_new_tokens=20), drafter=drafter)
    next(chunks)
    chunks.close()
    assert generate(model, prompt, Settings(max_new_tokens=20), drafter=drafter).ids == expected


def test_a_drafter_shared_by_threads_is_refused_by_name() -> None:
    model, drafter, errors = wrap(tiny_model("llama", 3)), CopyDrafter(), list[Exception]()
    chunks = stream(model, random_prompt(3), Settings(max_new_tokens=20), drafter=drafter)
    next(chunks)

    def work() -> None:
        try:
            generate(model, [1, 2, 3], Settings(max_new_tokens=4), drafter=drafter)
        except DrafterError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "use one drafter a thread" in str(errors[0])
    assert sum(len(chunk.ids) for chunk in chunks) == 19


def test_streams_drop_ins_and_plain_generate_at_once_on_one_model_are_all_right() -> None:
    model = tiny_model("mistral", 2)
    prompts = [random_prompt(seed) for seed in range(4)]
    expected = [plain(model, prompt, max_new_tokens=40, do_sample=False) for prompt in prompts]
    wrong: list[str] = []

    def work(kind: str, number: int) -> None:
        for _ in range(3):
            if kind == "lookup":
                got = list(generate(wrap(model), prompts[number], Settings(max_new_tokens=40)).ids)
            else:
                extra: dict[str, Any] = {"custom_generate": custom_generate} if kind == "drop-in" else {}
                got = plain(model, prompts[number], max_new_tokens=40, do_sample=False, **extra)
            if got != expected[number]:
                wrong.append(kind)

    jobs = [("lookup", 0), ("drop-in", 1), ("plain", 2), ("lookup", 3)]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_seed_counts_alone_whatever_runs_beside_it() -> None:
    model, prompt = wrap(tiny_model("llama", 1, initializer_range=0.1)), [1, 2, 3]
    settings = Settings(max_new_tokens=30, temperature=1.0, seed=5)
    alone = generate(model, prompt, settings).ids
    others = [
        stream(model, prompt, Settings(max_new_tokens=30, temperature=1.0, seed=seed))
        for seed in (5, 6, None)
    ]
    mine: list[int] = []
    for chunk in stream(model, prompt, settings):
        mine += chunk.ids
        torch.rand(3)
        for other in others:
            next(other, None)
    assert tuple(mine) == alone


def test_generations_in_a_row_do_not_grow_the_process() -> None:
    model, drafter, process = wrap(tiny_model("mistral", 1)), CopyDrafter(), psutil.Process()
    results: list[Generation] = []

    def run(seed: int) -> None:
        settings = Settings(max_new_tokens=24, temperature=0.8, seed=seed)
        results[:] = [generate(model, random_prompt(seed), settings, drafter=drafter if seed % 2 else None)]

    for seed in range(20):
        run(seed)
    gc.collect()
    before = process.memory_info().rss
    for seed in range(20, 220):
        run(seed)
    gc.collect()
    assert process.memory_info().rss - before < 20 * 2**20
