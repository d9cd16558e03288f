"""Philox-4x32 with 7 rounds on numpy: what `symbols.Random` means, apart from every kernel.

Source: Salmon et al. 2011, doi:10.1145/2063384.2063405; checked against its published answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any  # a numpy array of uint64 that holds 32-bit words

ROUNDS = 7
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # what the halves of the key grow by in each round
LOW = np.uint64(0xFFFFFFFF)


def philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, ...]:
    """Four random words for each counter of four words; all broadcast against each other."""
    a, b, c, d = (_word(word) for word in counter)
    low, high = (_word(word) for word in key)
    for _ in range(ROUNDS):
        first, second = (x * np.uint64(m) for x, m in zip((a, c), MULTIPLIERS, strict=True))
        a, b = _upper(second) ^ b ^ low, second & LOW
        c, d = _upper(first) ^ d ^ high, first & LOW
        low, high = (_word(x + np.uint64(w)) for x, w in zip((low, high), WEYL, strict=True))
    return a, b, c, d


def random_number(seed: Array, b: Array, h: Array, q_idx: Array, kv_idx: Array) -> Any:
    """symbols.Random: the word of a pair of positions, as a signed number."""
    kv_idx = np.asarray(kv_idx, np.int64)
    seed = np.asarray(seed).astype(np.int64)  # of 64 bits: one from 2**63 on wraps
    words = np.broadcast_arrays(*philox((kv_idx // 4, q_idx, h, b), (seed, seed >> 32)))
    word = np.choose(np.broadcast_to(kv_idx % 4, words[0].shape), words)
    return word.astype(np.uint32).view(np.int32).astype(np.int64)


def _word(value: Array) -> Array:
    """The last 32 bits of an integer."""
    return np.asarray(value).astype(np.int64).view(np.uint64) & LOW


def _upper(product: Array) -> Array:
    return product >> np.uint64(32)
