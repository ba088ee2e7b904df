# SPDX-License-Identifier: Apache-2.0
"""The judge of copies (T12) finds every kind of wrong copy; the copies themselves are live tests."""

from __future__ import annotations

import pytest

from tests.harness.copies.copy_loop import difference

SOURCE = [b"0-%d" % number for number in range(6)]
WRONG = {
    "lost": (SOURCE[:2] + SOURCE[3:], "1 missing, 0 too many; the first difference is at 2"),
    "lost at the end": (SOURCE[:-1], "1 missing, 0 too many; the first difference is at 5"),
    "doubled": (SOURCE[:4] + SOURCE[2:], "0 missing, 2 too many; the first difference is at 4"),
    "reordered": ([*SOURCE[:3], SOURCE[4], SOURCE[3], SOURCE[5]], "0 missing, 0 too many; the first"),
    "of nobody": ([*SOURCE, b"aborted"], "0 missing, 1 too many; the first difference is at 6"),
    "empty": ([], "6 in, 0 out, 6 missing"),
}


@pytest.mark.parametrize(("target", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_copy_is_found_and_described(target: list[bytes], said: str) -> None:
    assert said in str(difference(SOURCE, target))


def test_an_exact_copy_is_right() -> None:
    assert difference(SOURCE, list(SOURCE)) is None
