"""Results as JSON and as tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from lookupdec.stats import Stats

if TYPE_CHECKING:
    from lookupdec.edit.results import EditResult


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt decoded plainly and by lookup; ``identical`` is about the answers word for word."""

    plain: Stats
    lookup: Stats
    identical: bool

    @property
    def speedup(self) -> float:
        """How many times faster lookup decoding was, prefill included."""
        return self.plain.seconds / self.lookup.seconds

    def table(self) -> Table:
        """Return the figures side by side."""
        table = Table(box=box.SIMPLE)
        table.add_column("")
        for title in ("tokens", "forward passes", "seconds", "tok/s", "speed-up", "identical"):
            table.add_column(title, justify="right")
        table.add_row("plain", *_figures(self.plain), "1.0x", "")
        table.add_row(
            "lookup", *_figures(self.lookup), f"{self.speedup:.1f}x", "yes" if self.identical else "no"
        )
        return table

    def as_json(self) -> dict[str, Any]:
        """Return the figures for a machine."""
        return {
            "plain": stats_as_json(self.plain),
            "lookup": stats_as_json(self.lookup),
            "speedup": round(self.speedup, 3),
            "identical": self.identical,
        }


def result_as_json(result: EditResult, model: str, path: str) -> dict[str, Any]:
    """Return all of a result for a machine; edits as the Language Server Protocol writes them."""
    return {
        "path": path,
        "model": model,
        "changed": result.changed,
        "complete": result.complete,
        "warnings": list(result.warnings),
        "text": result.text,
        "edits": [edit.as_lsp() for edit in result.edits],
        "diff": result.diff,
        "base_sha256": result.base_sha256,
        "parts": result.parts,
        "usage": asdict(result.usage),
        "stats": stats_as_json(result.stats),
    }


def stats_as_json(stats: Stats) -> dict[str, Any]:
    """Return counts, seconds and what follows from them."""
    return asdict(stats) | {
        "seconds": stats.seconds,
        "tokens_per_pass": stats.tokens_per_pass,
        "tokens_per_second": stats.tokens_per_second,
        "acceptance_rate": stats.acceptance_rate,
    }


def _figures(stats: Stats) -> tuple[str, str, str, str]:
    return (
        f"{stats.tokens:,}",
        f"{stats.passes:,}",
        f"{stats.seconds:.2f}",
        f"{stats.tokens_per_second:.1f}",
    )
