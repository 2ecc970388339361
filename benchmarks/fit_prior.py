"""Fit the prior of the survival model on recorded edits and write it to lookupdec/prior.npz.

    python -m benchmarks.fit_prior FOLDER

FOLDER holds trace files (JSONL). All are replayed twice at the cost of a GPU, where drafts are longest: with the text
under edit as reference and without, past outputs of a file kept. Beginnings of outputs are replayed after prompts that
end with a token which stands nowhere else, too: not every prompt ends as chat templates do. The prior leaves out what
depends on the vocabulary.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from lookupdec.cache import RollingCache
from lookupdec.draft import CopyDrafter
from lookupdec.policy import CostModel, SurvivalModel
from lookupdec.replay import Trace, load_traces, replay

PRIOR = Path(__file__).parents[1] / "lookupdec" / "prior.npz"
BEGINNING = 48  # tokens
NOT_EXPECTED_BACK = ("summarize",)  # a reference is text that is expected to come back
COST = CostModel(per_token=0.003)


def fit(files: Mapping[str, list[Trace]]) -> SurvivalModel:
    """Replay each list of traces in all ways and return what was learnt.

    The lists take turns: rates follow the newest observations, and no kind of text should come last.
    """
    model = SurvivalModel.blank()
    everything = [(name, trace) for name, traces in files.items() for trace in traces]
    random.Random(0).shuffle(everything)
    unseen = np.random.default_rng(0)
    for with_reference in (True, False):
        drafters = {name: CopyDrafter(RollingCache(256 << 20), cost=COST, model=model) for name in files}
        beginner = CopyDrafter(cost=COST, model=model)
        for name, trace in everything:
            if not with_reference:
                replay(drafters[name], [trace])
            elif name not in NOT_EXPECTED_BACK:
                replay(drafters[name], [trace], with_reference=True)
                replay(beginner, [beginning(trace, unseen)], with_reference=True)
    return model


def beginning(trace: Trace, unseen: np.random.Generator) -> Trace:
    """Return a trace's beginning, after a prompt that ends with a token of its own."""
    end = unseen.integers(2**20, 2**30, dtype=np.int32)
    return replace(trace, prompt=np.append(trace.prompt, end), output=trace.output[:BEGINNING])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first traces of every file")
    parser.add_argument("--out", type=Path, default=PRIOR)
    arguments = parser.parse_args()
    files = {
        path.stem: load_traces(path, 10_000)[arguments.skip :]
        for path in sorted(arguments.folder.glob("*.jsonl"))
        if path.stem != "prompt_only"
    }
    model = fit(files)
    np.savez_compressed(arguments.out, allow_pickle=False, **model.prior())
    print(
        f"{arguments.out}: {arguments.out.stat().st_size:,} bytes from {sum(map(len, files.values()))} traces"
    )


if __name__ == "__main__":
    main()
