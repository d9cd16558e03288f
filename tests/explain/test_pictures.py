from __future__ import annotations

from collections.abc import Callable

import pytest

from attnc.explain.pictures import difference_text, draw, picture_text
from attnc.explain.situation import BadSize, NeedsParam, UnknownParam, situation_of
from tests.explain.specs import spec


def picture(mask: str, q_len: int = 6, kv_len: int = 6, more: str = ""):
    made = spec(f"mask: {mask}\n{more}")
    return draw(made, situation_of(made, 1, q_len, kv_len))


def test_six_by_six(golden: Callable[[str], None]) -> None:
    golden(picture_text(picture("causal & sliding_window(3)"), 2, 2))


def test_more_keys_than_queries_is_bottom_right(golden: Callable[[str], None]) -> None:
    golden(picture_text(picture("causal", 4, 9)))


def test_rows_that_see_nothing_are_named() -> None:
    drawn = picture("causal", 5, 2)
    assert drawn.visible == (0, 0, 0, 1, 2)
    assert picture_text(drawn).count("sees nothing") == 3


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        ("causal", (1, 2, 3, 4, 5, 6)),
        ("causal(top_left)", (1, 2, 3, 4, 5, 6)),
        ("window(1, 1)", (2, 3, 3, 3, 3, 2)),
        ("sliding_window(1)", (1, 1, 1, 1, 1, 1)),
        ("causal | prefix(3)", (3, 3, 3, 4, 5, 6)),
        ("global_tokens(1)", (6, 1, 1, 1, 1, 1)),
        ("dilated(2, 2)", (2, 2, 3, 3, 2, 2)),
        ("(kv_idx + q_idx) % 5 != 0", (4, 5, 5, 5, 5, 4)),
        ("(kv_idx // 3) == (q_idx // 3)", (3, 3, 3, 3, 3, 3)),
        ("log(kv_idx) < 0", (1, 1, 1, 1, 1, 1)),
        ("exp(1000 * kv_idx) * log(kv_idx - 2) > 0", (2, 2, 2, 2, 2, 2)),
        ("kv_idx * 0.5 <= q_idx / 3", (1, 1, 2, 3, 3, 4)),
        ("where(q_idx < 2, kv_idx, 0) == 0", (1, 1, 6, 6, 6, 6)),
    ],
)
def test_counts_by_hand(mask: str, visible: tuple[int, ...]) -> None:
    assert picture(mask).visible == visible


def test_a_tensor_is_drawn_with_an_example_that_is_named() -> None:
    more = "tensors:\n  ids: {shape: [batch, kv_len], dtype: int32}\n"
    drawn = picture("documents(ids)", more=more)
    assert drawn.visible == (2, 2, 2, 2, 2, 2)
    assert "ids: 0, 1 and 2 on the three thirds of its last axis" in picture_text(drawn)


def test_tile_classes_count_only_what_exists() -> None:
    drawn = picture("causal", 5, 5)
    assert drawn.tiles(4, 4) == [["mixed", "empty"], ["full", "full"]]


def test_no_keys_at_all() -> None:
    drawn = picture("causal", 3, 0)
    assert drawn.visible == (0, 0, 0)
    assert "0 of 0 pairs visible" in picture_text(drawn)


def test_difference_of_two_masks() -> None:
    text = difference_text(picture("causal"), picture("causal & sliding_window(4)"))
    assert "    5 --####" in text
    assert "3 of 36 pairs differ" in text
    assert "0 of 36 pairs differ" in difference_text(
        picture("causal"), picture("causal & sliding_window(6)")
    )


PARAM = "params:\n  w: {type: int}\nmask: sliding_window(w)\ncheck: [{q_len: 4, kv_len: 4, w: 2}]\n"


def test_params_come_from_the_command_then_the_spec() -> None:
    made = spec(PARAM)
    assert situation_of(made).params == {"w": 2}
    assert situation_of(made, params={"w": 3}).params == {"w": 3}


def test_wrong_params_and_sizes_are_refused_by_name() -> None:
    made = spec(PARAM)
    with pytest.raises(UnknownParam, match="the spec has no param 'v'"):
        situation_of(made, params={"v": 3})
    with pytest.raises(BadSize, match="q_len must be a whole number"):
        situation_of(made, q_len=-1)
    with pytest.raises(NeedsParam, match="param 'w' has no default"):
        from dataclasses import replace

        situation_of(replace(made, check=()))
