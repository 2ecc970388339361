"""Real edits and summaries with the default model, end to end: lookup decoding against plain and prompt lookup.

    python -m benchmarks.edits [--traces datasets/edits.jsonl] [--dtype float32] [--limit 6] [--new-tokens 200]

Every prompt is answered greedily by each method in turn, prefill included: plain ``generate``, transformers' prompt
lookup in two settings, and lookup decoding as ``lookupdec.edit`` runs it (the text under edit as reference, one
rolling cache). Then the time to the first token of a first and of a second instruction on one file of about 2,000
tokens, with kept prefixes. Prints a table, then a JSON line, and writes benchmarks/results/edits_<dtype>.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch

from benchmarks.common import FILES, RESULTS, ROOT, keep
from benchmarks.generations import Run, Summary, generate, summarise
from lookupdec.cache import RollingCache
from lookupdec.draft import CopyDrafter
from lookupdec.hf import LanguageModel, PrefixCache, Settings, load
from lookupdec.hf import generate as lookup_generate
from lookupdec.replay import Trace, load_traces

PLAIN, LOOKUP = "plain", "lookupdec"
PEERS = {
    "transformers k=10": {"prompt_lookup_num_tokens": 10},
    "transformers n=3 k=60": {"prompt_lookup_num_tokens": 60, "max_matching_ngram_size": 3},
}
METHODS = (PLAIN, *PEERS, LOOKUP)
LONG_TEXT = 1950  # tokens
LONGEST_PROMPT = 1200  # tokens: the small model's sensible range


def measure(
    model: LanguageModel, stock: LanguageModel, traces: Sequence[Trace], new_tokens: int
) -> dict[str, list[Run]]:
    """Answer every prompt with every method."""
    drafter = CopyDrafter(RollingCache())
    runs: dict[str, list[Run]] = {name: [] for name in METHODS}
    for trace in traces:
        prompt = trace.prompt.tolist()
        told = {"max_new_tokens": new_tokens, "do_sample": False}
        expected, passes, seconds = generate(stock, prompt, 0, **told)
        runs[PLAIN].append(Run(len(expected), passes, seconds, identical=True))
        for name, options in PEERS.items():
            ids, passes, seconds = generate(stock, prompt, 0, **told, **options)
            runs[name].append(Run(len(ids), passes, seconds, ids == expected))
        result = lookup_generate(
            model, prompt, Settings(max_new_tokens=new_tokens), drafter=drafter, reference=trace.reference
        )
        ids = list(result.ids)
        runs[LOOKUP].append(Run(len(ids), result.stats.passes, result.stats.seconds, ids == expected))
    return runs


def first_tokens(model: LanguageModel, texts: Sequence[str]) -> dict[str, float]:
    """Return the seconds to the first token of a first and of a second instruction on one text, medians."""
    prefixes = PrefixCache()
    seconds: dict[str, list[float]] = {"first": [], "second": []}
    tokens: list[int] = []
    for text in texts:
        for name, instruction in (("first", "Fix the typos."), ("second", "Add a comment at the top.")):
            asked = [{"role": "user", "content": f"```\n{text}\n```\n\n{instruction}"}]
            result = lookup_generate(model, asked, Settings(max_new_tokens=1), prefixes=prefixes)
            seconds[name].append(result.stats.prefill_seconds)
        tokens.append(result.stats.prompt_tokens)
    first, second = (median(seconds[name]) for name in ("first", "second"))
    return {"prompt_tokens": median(tokens), "first": first, "second": second, "ratio": first / second}


def long_texts(path: Path, model: LanguageModel, count: int) -> list[str]:
    """Return texts of about ``LONG_TEXT`` tokens, made of the inputs of edits one after the other."""
    inputs = iter(json.loads(line)["input"] for line in path.read_text("utf-8").splitlines())
    texts: list[str] = []
    while len(texts) < count:
        ids: list[int] = []
        while len(ids) < LONG_TEXT:
            ids += model.encode_text(next(inputs))
        texts.append(str(model.tokenizer.decode(ids[:LONG_TEXT])))
    return texts


def print_table(title: str, summaries: dict[str, Summary]) -> None:
    """Print one kind of text: tokens per second, tokens per pass, speed-up, identical answers."""
    print(f"\n{title}")
    for name, summary in summaries.items():
        a_pass = (summary.tokens - summary.prompts) / max(summary.passes, 1)
        print(
            f"  {name:24}{summary.tokens / summary.seconds:7.1f} tok/s{a_pass:7.2f} tokens a pass"
            f"{summary.speedup:7.2f}x{summary.identical:5} of {summary.prompts} identical"
        )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=ROOT / "datasets" / "edits.jsonl")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--limit", type=int, default=6, help="prompts of each kind")
    parser.add_argument("--new-tokens", type=int, default=200)
    options = parser.parse_args()
    stock = load(dtype=options.dtype, device="cpu", exact="fast")
    model = load(dtype=options.dtype, device="cpu")
    traces = [t for t in load_traces(options.traces, 10_000) if len(t.prompt) <= LONGEST_PROMPT]
    kinds = {kind: [t for t in traces if t.id.startswith(kind)][: options.limit] for kind in FILES}
    measure(model, stock, traces[:1], 16)  # nothing is compiled or loaded for the first time later on
    results = {}
    for kind, chosen in kinds.items():
        runs = measure(model, stock, chosen, options.new_tokens)
        summaries = {name: summarise(runs[name], runs[PLAIN]) for name in METHODS}
        print_table(f"{kind}, {len(chosen)} prompts", summaries)
        results[kind] = {name: asdict(summary) for name, summary in summaries.items()}
    kept_prefix = first_tokens(model, long_texts(options.traces, model, 5))
    print(
        f"\nfirst token after {kept_prefix['first']:.2f} s, of a second instruction on the same text "
        f"after {kept_prefix['second']:.3f} s: {kept_prefix['ratio']:.1f} times sooner"
    )
    kept = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "dtype": options.dtype,
        "new_tokens": options.new_tokens,
        "results": results,
        "kept_prefix": kept_prefix,
    }
    keep(RESULTS / f"edits_{options.dtype}.json", kept)
    print(json.dumps({kind: {n: s["speedup"] for n, s in of.items()} for kind, of in results.items()}))


if __name__ == "__main__":
    main()
