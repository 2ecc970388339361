"""Decoding in half precision on real prompts: how often the text is that of plain decoding, and its speed.

    python -m benchmarks.half_precision [FOLDER] [--dtype bfloat16] [--limit 8] [--new-tokens 200] [--out FILE]

Runs the default model over short prompts of every trace file, greedily and sampled with one seed a prompt: plain
``generate``, lookup decoding with ordinary passes (fast) and with exact ones (bitwise), and transformers' own
prompt lookup in two settings. The methods take turns prompt by prompt. Prints a table for each file, then a JSON
line with the summary, and writes benchmarks/results/half_precision.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.common import EDIT_FILES, FILES, RESULTS, keep
from benchmarks.generations import Run, Summary, generate, summarise
from benchmarks.traces import add_folder, load_kind
from lookupdec.hf import LanguageModel, custom_generate, load
from lookupdec.hf.bitwise import one_token_arithmetic, prepare

SHORTEST, LONGEST = 150, 600  # tokens of the prompts
WIDTHS = (1, 4, 16, 32, 64, 128, 256)
SAMPLING: dict[str, Any] = {"do_sample": True, "temperature": 0.7, "top_p": 0.95, "top_k": 0}
MODES: dict[str, dict[str, Any]] = {"greedy": {"do_sample": False}, "sampled": SAMPLING}
PLAIN, FAST, BITWISE = "plain", "fast", "bitwise"
# The name, and what `generate` is told.
METHODS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    FAST: {"custom_generate": custom_generate},
    BITWISE: {"custom_generate": custom_generate},
    "transformers k=10": {"prompt_lookup_num_tokens": 10},
    "transformers n=3 k=60": {"prompt_lookup_num_tokens": 60, "max_matching_ngram_size": 3},
}


def short_prompts(folder: Path | None, file: str, limit: int) -> list[list[int]]:
    """Return the first prompts of a trace file, in the fixed order, that are neither tiny nor long."""
    prompts = [trace.prompt.tolist() for trace in load_kind(folder, file, 1000)]
    return [prompt for prompt in prompts if SHORTEST <= len(prompt) <= LONGEST][:limit]


def compare(
    models: dict[str, LanguageModel], prompts: Sequence[Sequence[int]], options: dict[str, Any]
) -> dict[str, list[Run]]:
    """Run every method on every prompt."""
    runs: dict[str, list[Run]] = {name: [] for name in METHODS}
    for seed, prompt in enumerate(prompts):
        expected: list[int] = []
        for name, told in METHODS.items():
            ids, passes, seconds = generate(models[name], prompt, seed, **options, **told)
            expected = ids if name == PLAIN else expected
            runs[name].append(Run(len(ids), passes, seconds, ids == expected))
    return runs


@torch.no_grad()
def pass_milliseconds(
    model: LanguageModel, prompt: Sequence[int], repeats: int = 5
) -> dict[str, dict[int, float]]:
    """Return the median milliseconds of passes by width after ``prompt``, ordinary and exact ones in turn."""
    transformers_model: Any = model.model
    ids = torch.tensor([list(prompt)])
    found: dict[str, dict[int, float]] = {FAST: {}, BITWISE: {}}
    for width in WIDTHS:
        output = transformers_model(ids, use_cache=True)
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        name = "cache" if "cache" in output else "past_key_values"
        times: dict[str, list[float]] = {FAST: [], BITWISE: []}
        for _ in range(repeats):
            for kind, measured in times.items():
                draft = ids[:, :1].expand(-1, width)
                began = perf_counter()
                if kind == BITWISE:
                    with one_token_arithmetic(model.model):
                        transformers_model(draft, use_cache=True, **{name: cache})
                else:
                    transformers_model(draft, use_cache=True, **{name: cache})
                measured.append(1000 * (perf_counter() - began))
                cache.crop(-width)
        for kind, measured in times.items():
            found[kind][width] = round(statistics.median(measured), 2)
    return found


def print_table(title: str, summaries: dict[str, Summary]) -> None:
    """Print one table for people."""
    print(f"\n{title}")
    print(
        f"{'method':24}{'identical':>12}{'tokens':>8}{'passes':>8}{'a pass':>8}{'tok/s':>8}"
        f"{'speed-up':>10}{'median':>8}"
    )
    for name, summary in summaries.items():
        a_pass = (summary.tokens - summary.prompts) / max(summary.passes, 1)
        print(
            f"{name:24}{f'{summary.identical} of {summary.prompts}':>12}{summary.tokens:>8}{summary.passes:>8}"
            f"{a_pass:>8.2f}{summary.tokens / summary.seconds:>8.1f}"
            f"{summary.speedup:>9.2f}x{summary.median_speedup:>7.2f}x"
        )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_folder(parser)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--limit", type=int, default=8, help="prompts of each file")
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--out", type=Path, default=RESULTS / "half_precision.json")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    exact = load(dtype=options.dtype, device="cpu", exact="fast")
    stock = load(dtype=options.dtype, device="cpu", exact="fast")
    began = perf_counter()
    report = prepare(exact.model)
    print(f"self-test, {perf_counter() - began:.1f} s: {report}")
    models = {name: exact if name == BITWISE else stock for name in METHODS}
    prompts = {file: short_prompts(options.folder, file, options.limit) for file in FILES}
    for name, told in METHODS.items():  # nothing is compiled or loaded for the first time later on
        generate(models[name], prompts[FILES[0]][0], 0, max_new_tokens=24, **told)

    results: dict[str, dict[str, dict[str, object]]] = {}
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for mode in options.modes:
        told = {"max_new_tokens": options.new_tokens, **MODES[mode]}
        runs = {file: compare(models, prompts[file], told) for file in FILES}
        groups = {**{file: (file,) for file in FILES}, "edit files": EDIT_FILES, "all files": FILES}
        results[mode] = {}
        for group, files in groups.items():
            joined = {name: [run for file in files for run in runs[file][name]] for name in METHODS}
            summaries = {name: summarise(joined[name], joined[PLAIN]) for name in METHODS}
            print_table(f"{options.dtype}, {mode}, {group}", summaries)
            results[mode][group] = {name: asdict(one) for name, one in summaries.items()}
            if len(files) > 1:
                summary.setdefault(mode, {})[group] = {
                    name: {"identical": one.identical, "of": one.prompts, "speedup": one.speedup}  # type: ignore[misc]
                    for name, one in summaries.items()
                }
    passes = pass_milliseconds(exact, prompts[FILES[0]][0])
    print(f"\nmilliseconds of a pass by width after {len(prompts[FILES[0]][0])} tokens: {passes}")
    kept = {
        "torch": torch.__version__, "threads": options.threads, "dtype": options.dtype,
        "new_tokens": options.new_tokens, "self_test": asdict(report), "pass_milliseconds": passes,
        "results": results,
    }  # fmt: skip
    keep(options.out, kept)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
