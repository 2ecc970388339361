"""What Prometheus may ask. Knows counts and seconds, no text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from editor_api.engine import Engine, FinishReason, Piece

POSITIONS = 32
"""Draft positions that are counted one by one."""

_OK = 200
_LATENCIES = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class _EngineGauges(Collector):
    """How busy the engine is at the moment of asking."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[GaugeMetricFamily]:
        capacity = self._engine.capacity
        yield GaugeMetricFamily("lookupdec_num_requests_running", "Requests taking turns.", capacity.running)
        yield GaugeMetricFamily("lookupdec_num_requests_waiting", "Requests in the queue.", capacity.waiting)
        yield GaugeMetricFamily("lookupdec_cache_bytes", "Bytes of past outputs.", capacity.cache_bytes)
        yield GaugeMetricFamily("lookupdec_prefix_bytes", "Bytes of kept prefixes.", capacity.prefix_bytes)
        yield GaugeMetricFamily("lookupdec_ready", "1 once the model is loaded.", capacity.state == "ready")


class Metrics:
    """The metrics of one service."""

    def __init__(self, engine: Engine) -> None:
        registry = self._registry = CollectorRegistry()
        registry.register(_EngineGauges(engine))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lookupdec_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"lookupdec_{name}_seconds", text, buckets=_LATENCIES, registry=registry)

        self._drafts = counter("spec_decode_num_drafts", "Drafts that were checked.")
        self._drafted = counter("spec_decode_num_draft_tokens", "Tokens drafted.")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Drafted tokens accepted.")
        self._accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens by place in the draft.", "position"
        )
        self._drafted_from = counter(
            "draft_tokens", "Tokens drafted, by what they were copied from.", "source"
        )
        self._accepted_from = counter("accepted_tokens", "Drafted tokens accepted, by source.", "source")
        self._passes = counter("passes", "Forward passes, each request's prefill included.")
        self._prompt = counter("prompt_tokens", "Prompt tokens.")
        self._cached = counter("cached_prompt_tokens", "Prompt tokens that an earlier request had read.")
        self._generated = counter("generation_tokens", "Tokens generated.")
        self._finished = counter("request_success", "Generations that ended.", "finished_reason")
        self._requests = counter("http_requests", "HTTP requests.", "path", "status")
        self._first_token = seconds("time_to_first_token", "From submission to the first token.")
        self._latency = seconds(
            "e2e_request_latency", "From a request to the end of the answer that was generated."
        )

    def saw_piece(self, piece: Piece) -> None:
        """Count one pass."""
        step = piece.step
        self._passes.inc()
        self._generated.inc(len(step.tokens))
        if step.drafted:
            self._drafts.inc()
            self._drafted.inc(step.drafted)
            self._accepted.inc(step.accepted)
            for position in range(min(step.accepted, POSITIONS)):
                self._accepted_at.labels(position).inc()
        for position, source in enumerate(step.sources):
            self._drafted_from.labels(source).inc()
            if position < step.accepted:
                self._accepted_from.labels(source).inc()
        if piece.finish_reason:
            self.saw_end(piece.finish_reason)

    def saw_end(self, finish_reason: FinishReason) -> None:
        """Count a generation that came to its end."""
        self._finished.labels(finish_reason).inc()

    def saw_start(self, prompt_tokens: int, cached_tokens: int, seconds: float) -> None:
        """Count a request's first token, ``seconds`` after it was submitted."""
        self._prompt.inc(prompt_tokens)
        self._cached.inc(cached_tokens)
        self._first_token.observe(seconds)

    def saw_request(self, scope: Any, status: int, seconds: float) -> None:
        """Count an HTTP request."""
        route = scope.get("route")
        path = getattr(route, "path", "other")  # paths that are no route's could be any number
        self._requests.labels(path, status).inc()
        if scope["state"].get("generates") and status == _OK:
            self._latency.observe(seconds)

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self._registry)
