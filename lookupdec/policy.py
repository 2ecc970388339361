"""What a draft is worth: the cost of a drafted token, the survival below which drafting stops, and what was learnt.

Knows no text. Why the stop rule looks as it does stands in docs/architecture.md ("How long a draft pays").
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from lookupdec import _copying as copying
from lookupdec import _drafting as drafting
from lookupdec import _survival as survival
from lookupdec.errors import FileError, InputError
from lookupdec.files import read_bytes, write_atomically

MIN_COST, MAX_COST = 1e-5, 10.0
# The share of the derived survival that is asked for, at a cost of 1 and less for each tenth of it: the longer
# drafts may get, the more their estimated survival is too low. Measured, see docs/log.md.
CAUTION, CAUTION_A_DECADE, MOST_CAUTION, LEAST_CAUTION = 1.25, 0.2, 0.97, 0.5
# No width is taken to be cheaper than this beyond the narrowest: measurements are not that good.
LEAST_RISE = 0.02
FORMAT = "lookupdec-survival-1"


@dataclass(frozen=True, slots=True)
class CostModel:
    """What one more drafted token costs, in forward passes of one token.

    Parameters
    ----------
    per_token
        0.03 and 0.003, a 7B model on a data-centre GPU, are what published figures are counted with; what a
        device takes is measured by ``lookupdec.hf``.
    widths
        The widths of passes where they are fixed, rising, each with its cost in passes of the narrowest one: a
        draft then fills the pass it pays for. ``per_token`` is then the slope to the cheapest.
    """

    per_token: float = 0.03
    widths: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.per_token, int | float) and MIN_COST <= self.per_token <= MAX_COST):
            raise InputError(f"per_token must lie in {MIN_COST} .. {MAX_COST}, got {self.per_token}")
        rising = all(one < other for (one, _), (other, _) in itertools.pairwise(self.widths))
        if not rising or any(width < 1 or not cost > 0 for width, cost in self.widths):
            raise InputError(f"widths must rise from 1 or more, with positive costs, got {self.widths}")

    @classmethod
    def from_passes(cls, seconds: Mapping[int, float]) -> Self:
        """Fit the cost to measured passes: seconds by width in tokens, width 1 among them.

        The slope through the one-token pass that fits the other widths best (least squares over the widths).

        Raises
        ------
        InputError
            Width 1 or any wider one is missing, or a duration is not positive.
        """
        widths = [width for width in seconds if width > 1]
        if 1 not in seconds or not widths or min(seconds.values()) <= 0:
            raise InputError(
                "measured passes must include width 1 and a wider one, all with positive seconds"
            )
        single = seconds[1]
        rise = sum((seconds[width] / single - 1.0) * (width - 1) for width in widths)
        slope = rise / sum((width - 1) ** 2 for width in widths)
        return cls(per_token=min(max(slope, MIN_COST), MAX_COST))

    @classmethod
    def from_widths(cls, seconds: Mapping[int, float]) -> Self:
        """Return the cost of passes of fixed widths: measured seconds by width.

        A pass that was measured faster than a narrower one counts as equally fast.

        Raises
        ------
        InputError
            There is no width, or a duration is not positive.
        """
        if not seconds or min(seconds.values()) <= 0:
            raise InputError("measured passes must include a width, all with positive seconds")
        narrowest, slowest, widths = seconds[min(seconds)], 0.0, []
        for width in sorted(seconds):
            slowest = max(slowest, seconds[width])
            widths.append((width, slowest / narrowest))
        # By the cheapest: a draft that is too long for what another width costs is cut.
        slopes = [max(cost - 1.0, LEAST_RISE) / (width - widths[0][0]) for width, cost in widths[1:]]
        slope = min(slopes, default=MIN_COST)
        return cls(per_token=min(max(slope, MIN_COST), MAX_COST), widths=tuple(widths))

    def width_for(self, count: int) -> int:
        """Return the width of a pass over ``count`` tokens, the widest for more than that."""
        return next((width for width, _ in self.widths if width >= count), self.widths[-1][0])

    def draft_length(self, survivals: survival.Float32Array) -> int:
        """Return how much of a draft to keep where widths are fixed.

        ``survivals`` [tokens] are the chances that a token and all before it come. A wider pass pays where the
        tokens that it is expected to win are worth more than it costs beyond the narrower one; a token is worth
        what it would cost in the best passes through text that goes on as it does there.
        """
        count = len(survivals)
        expected = np.concatenate(([0.0], np.cumsum(survivals, dtype=np.float64)))
        best = 0
        while (kept := self.widths[best][0] - 1) < count:
            worth = self._token_worth(_hazard_at(survivals, kept))
            gains = [
                worth * (expected[min(width - 1, count)] - expected[kept]) - (cost - self.widths[best][1])
                for width, cost in self.widths[best + 1 :]
            ]
            if not gains or max(gains) <= 0:
                return kept
            best += 1 + int(np.argmax(gains))
        return count

    def _token_worth(self, hazard: float) -> float:
        """Return the least cost a token in text where a copy ends with this chance at each."""
        return min(cost * hazard / (1.0 - (1.0 - hazard) ** width) for width, cost in self.widths)

    def stops(self) -> survival.Float32Array:
        """Return the survival to ask for, shape (STOP_BINS,), by the logarithm of hazard over cost."""
        bins = np.arange(drafting.STOP_BINS) + 0.5
        ratios = np.exp2(bins / drafting.STOP_BINS_PER_OCTAVE - drafting.STOP_OCTAVES_BELOW)
        caution = CAUTION + CAUTION_A_DECADE * math.log10(self.per_token)
        caution = min(max(caution, LEAST_CAUTION), MOST_CAUTION)
        return np.array([caution * math.exp(-best_exposure(ratio)) for ratio in ratios], np.float32)


def _hazard_at(survivals: survival.Float32Array, position: int) -> float:
    """Return the chance of a difference around a drafted token, smoothed over those before it."""
    start = max(0, position - 16)
    before = float(survivals[start - 1]) if start else 1.0
    smoothed, memory = -1.0, drafting.HAZARD_MEMORY
    for present in survivals[start : position + 1].tolist():
        hazard = 1.0 - present / before
        smoothed = hazard if smoothed < 0 else memory * smoothed + (1.0 - memory) * hazard
        before = present
    return min(max(smoothed, 1e-6), 1.0)


def best_exposure(hazard_over_cost: float) -> float:
    """Return x = hazard x length of the best draft: the positive root of e**x - 1 - x = hazard / cost.

    It minimises the cost of a copy that ends with a constant chance per token, (1 + cost x length) a pass.
    """
    exposure = math.sqrt(2 * hazard_over_cost) if hazard_over_cost < 1 else math.log1p(hazard_over_cost) + 0.5
    for _ in range(30):
        rise = math.expm1(exposure)
        exposure -= (rise - exposure - hazard_over_cost) / max(rise, 1e-12)
        exposure = max(exposure, 1e-6)
    return exposure


class SurvivalModel:
    """What a drafter has learnt about which tokens come, as ``_survival`` describes it.

    A new one starts from what was fitted on recorded edits of other repositories (``prior.npz``); what depends
    on the vocabulary starts empty.
    """

    def __init__(self, arrays: copying.Model) -> None:
        self.arrays = arrays

    @classmethod
    def new(cls) -> Self:
        """Return a model that has seen nothing but the prior."""
        return cls.from_prior(_prior())

    @classmethod
    def blank(cls) -> Self:
        """Return a model without any prior: every rate at one half."""
        tables = np.zeros(survival.TABLE_SIZE, np.float32)
        weights = np.full((survival.WEIGHT_ROWS, survival.ROW), 0.12, np.float32)
        weights[:, survival.N_INPUTS] = 0.0
        return cls(_with_rest(tables, np.zeros(survival.TABLE_SIZE, np.uint8), weights.ravel()))

    @classmethod
    def from_prior(cls, prior: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return a model that starts from what ``prior`` of another one gave."""
        tables = np.zeros(survival.TABLE_SIZE, np.float32)
        seen = np.zeros(survival.TABLE_SIZE, np.uint8)
        tables[: survival.SHAPE_SIZE] = prior["tables"]
        seen[: survival.SHAPE_SIZE] = prior["seen"]
        for start, stop, width in VOCABULARY_TABLES:
            tables[start:stop] = np.tile(prior["averages"][:width], (stop - start) // width)
            seen[start:stop] = 1
        tables[survival.TOKEN_PAIR :] = prior["averages"][survival.DEPTHS]
        return cls(_with_rest(tables, seen, prior["weights"].astype(np.float32)))

    def prior(self) -> dict[str, npt.NDArray[Any]]:
        """Return the part that does not depend on the vocabulary, rounded to what is worth keeping."""
        model = self.arrays
        averages = [
            _average_logit(model, slice(start + depth, stop, width))
            for start, stop, width in VOCABULARY_TABLES[:1]
            for depth in range(width)
        ]
        averages.append(_average_logit(model, slice(survival.TOKEN_PAIR, survival.TABLE_SIZE)))
        return {
            "tables": model.tables[: survival.SHAPE_SIZE].astype(np.float16),
            "seen": model.seen[: survival.SHAPE_SIZE],
            "weights": model.weights.astype(np.float16),
            "averages": np.array(averages, np.float32),
        }

    def save(self, path: str | Path) -> None:
        """Write the model to a file (NumPy's npz without pickle), whole or not at all. Raises ``FileError``."""
        header = np.frombuffer(json.dumps({"format": FORMAT}).encode(), np.uint8)
        packed = io.BytesIO()
        np.savez_compressed(packed, header=header, **self.arrays._asdict())
        write_atomically(Path(path), packed.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved model.

        Raises
        ------
        FileError
            The file is missing, damaged or of another version; it is left as it is.
        """
        packed = read_bytes(Path(path))
        try:
            with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
                if json.loads(stored["header"].tobytes()).get("format") != FORMAT:
                    raise FileError(f"{path} is not of the format {FORMAT}: learn anew without it")
                arrays = copying.Model(*(stored[name] for name in copying.Model._fields))
        except FileError:
            raise
        except Exception as error:  # whatever NumPy, zipfile and zlib make of bytes that are no such archive
            raise FileError(f"{path} is damaged or not a survival model: delete it and learn anew") from error
        layout = [(array.shape, array.dtype) for array in _arrays(arrays)]
        if layout != [(array.shape, array.dtype) for array in _arrays(cls.blank().arrays)]:
            raise FileError(f"{path} has arrays of other shapes than {FORMAT}: delete it and learn anew")
        if not all(np.isfinite(array).all() for array in _arrays(arrays)):
            raise FileError(f"{path} holds rates that are no numbers: delete it and learn anew")
        return cls(arrays)


def _arrays(model: copying.Model) -> list[npt.NDArray[Any]]:
    return list(model)


VOCABULARY_TABLES = (
    (survival.LAST_TOKEN, survival.NEXT_TOKEN, survival.DEPTHS),
    (survival.NEXT_TOKEN, survival.TOKEN_PAIR, survival.DEPTHS),
)


def _with_rest(
    tables: survival.Float32Array, seen: survival.UInt8Array, weights: survival.Float32Array
) -> copying.Model:
    ends = np.full(copying.N_ENDS * 3, -1, np.int32)
    return copying.Model(tables, seen, weights, ends, np.zeros(2, np.float32))


def _average_logit(model: copying.Model, cells: slice) -> float:
    weights = model.seen[cells].astype(np.float64)
    if not weights.any():
        return 0.0
    rate = float(np.average(1.0 / (1.0 + np.exp(-model.tables[cells].astype(np.float64))), weights=weights))
    return math.log(rate / (1.0 - rate))


@functools.cache
def _prior() -> dict[str, npt.NDArray[Any]]:
    """Return the packaged prior, read once."""
    with (files("lookupdec") / "prior.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
