"""The accept rule: one for greedy decoding and for sampling. Knows no logits and no KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def accept(
    draft: Sequence[int], choices: Iterable[int], is_last: Callable[[int], bool]
) -> tuple[tuple[int, ...], int, bool]:
    """Take the target's own choices in order while they equal the draft, up to the first that differs.

    ``choices`` is read lazily: a choice is asked for only when everything before it was emitted, so that a
    sampled draw or a stateful logits processor happens exactly once per emitted token, as in plain decoding.
    A copied draft is a certain guess (its distribution has one point), so this equals speculative sampling
    with a one-hot draft distribution: Leviathan et al. 2023, arXiv 2211.17192.

    Returns (emitted ids, how many of them were drafted, whether ``is_last`` ended the output).
    """
    emitted: list[int] = []
    accepted = 0
    for position, choice in enumerate(choices):
        emitted.append(choice)
        matches = position < len(draft) and choice == draft[position]
        accepted += matches
        if is_last(choice):
            return tuple(emitted), accepted, True
        if not matches:
            break
    return tuple(emitted), accepted, False
