"""Budgets and bounds that several parts of the package agree on."""

PAST_BYTES = 64 << 20
"""Budget for past outputs to copy from."""

PREFIX_BYTES = 512 << 20
"""Budget for the keys and values of kept prefixes."""

SEEDS = 2**63
"""Seeds lie below this."""
