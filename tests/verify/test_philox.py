"""Our numpy Philox gives the published answers of Random123, and what symbols.Random says."""

from __future__ import annotations

import numpy as np
import pytest

from attnc.verify.philox import philox, random_number

# counter, key -> four words; from the file kat_vectors of Random123 (D. E. Shaw Research)
ANSWERS = (
    "00000000 00000000 00000000 00000000 00000000 00000000 5f6fb709 0d893f64 4f121f81 4f730a48",
    "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 5207ddc2 45165e59 4d8ee751 8c52f662",
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 4dfccaba 190a87f0 c47362ba b6b5242a",
)


@pytest.mark.parametrize("answer", ANSWERS)
def test_philox_gives_the_published_words(answer: str) -> None:
    words = [int(word, 16) for word in answer.split()]
    assert [int(word) for word in philox(words[:4], words[4:6])] == words[6:]


def test_a_number_is_the_word_of_its_place() -> None:
    seed, b, h, q_idx, kv_idx = (1 << 63) - 5, 3, 7, 11, np.arange(9)
    numbers = random_number(seed, b, h, q_idx, kv_idx)
    for j in range(9):
        words = philox((j // 4, q_idx, h, b), (seed & 0xFFFFFFFF, seed >> 32))
        assert numbers[j] % 2**32 == int(words[j % 4])
    assert np.array_equal(random_number(2**64 - 5, b, h, q_idx, kv_idx),
                          random_number(-5, b, h, q_idx, kv_idx))  # fmt: skip
    assert numbers.min() >= -(2**31) and numbers.max() < 2**31
