"""Exact lookup drafting for language models: copy what repeats, let the target check it in one pass."""
