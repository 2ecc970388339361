"""Tools in requests: this service calls none, and says so to whom insists. Knows no HTTP framework."""

from __future__ import annotations

_FORCING = ("required", "any")


def forces_tool(choice: object) -> bool:
    """Whether a ``tool_choice`` leaves no other answer than a tool call, as OpenAI and Mistral spell it."""
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        if choice.get("type") == "allowed_tools":
            choice = allowed.get("mode") if isinstance(allowed, dict) else choice.get("mode")
            return choice in _FORCING
        return choice.get("type") not in ("auto", "none")
    return choice in _FORCING
