"""Numbers in bulk: every decimal comes out as `float` would have it, bit for bit, and what is none is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jtgpu.formats import text as module
from jtgpu.formats.text import bulk, count_tokens, floats, token_offsets
from tests.support.examples import examples

digits = st.text("0123456789", min_size=1, max_size=24)
plain = st.builds("{}{}".format, digits, st.one_of(st.just(""), digits.map(".{}".format), st.just(".")))
exponents = st.one_of(st.just(""), st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]),
                                             st.integers(0, 400)))  # fmt: skip
decimals = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "", "", "-", "+"]), plain, exponents),
    digits.map(".{}".format),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(0, 1).map(repr),
    st.floats(0, 1).map("{:.6f}".format),
    st.integers(0, 10**6).map(lambda n: f"0.{n}"),
    st.sampled_from(["0", "1", "0.5", "0.25", "1.0", "00", "0.0", "5.", ".5", "9007199254740993", "0.1e0"]),
)
blanks = st.text(" \t\r\n\f\v", min_size=1, max_size=3)


def same(found: NDArray[np.float64] | None, expected: list[float]) -> bool:
    """Equal bits: -0.0 is not 0.0."""
    return found is not None and found.tobytes() == np.array(expected, np.float64).tobytes()


@examples(400)
@given(st.lists(decimals, max_size=60), blanks, st.integers(1, 40))
def test_every_decimal_is_what_float_makes_of_it(words: list[str], blank: str, part: int) -> None:
    """Also where the text is taken in many small parts."""
    expected = [float(w) for w in words]
    text = blank.join(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART", part)
        assert same(bulk(text, 0, len(text)), expected)
        assert count_tokens(text) == len(words)
        text = f"x{blank}{text}{blank}y"
        assert same(bulk(text, 1, len(text) - 1), expected)
    assert same(bulk(text, 1, len(text) - 1), expected)
    assert same(floats(text, 1, len(text) - 1), expected)


@given(st.lists(decimals, min_size=1, max_size=30), st.sampled_from([",", ", ", " ,", ")(", ") (", "(,)"]))
def test_further_characters_separate_as_blanks_do(words: list[str], between: str) -> None:
    text = between.join(words)
    expected = [float(w) for w in words]
    assert same(bulk(text, 0, len(text), ",()"), expected)
    assert same(floats(text, blanks=",()"), expected)
    assert count_tokens(text, blanks=",()") == len(words)


def test_short_numbers_one_by_one() -> None:
    """All the plain numbers of up to four characters, and many longer ones: those that NumPy puts together."""
    rng = np.random.default_rng(0)
    words = [str(i) for i in range(10_000)] + [f"{i / 100:.2f}" for i in range(1000)]
    words += [f"{i // 10}.{i % 10:d}" for i in range(100)]
    for length in range(3, 15):
        words += [f"{x:.{length}f}" for x in rng.random(2000)]
        words += [str(int(x)) for x in rng.integers(0, 10 ** min(length, 18), 500)]
    rng.shuffle(words)
    text = " ".join(words)
    assert same(bulk(text, 0, len(text)), [float(w) for w in words])


@pytest.mark.parametrize(
    "word",
    ["x", "nan", "inf", "1_0", "1e", "e5", ".", "-", "+-1", "1.2.3", "1..2", "--1", "1-", "0x10", "\u0661", "1,",
     "\x00", "1\x1c2", "\xa0", "1.e", "5-3", "..", "+.", "1e5.0"],
)  # fmt: skip
@pytest.mark.parametrize("others", [["0.5"] * 5, ["1e-5"] * 5, []])
def test_what_is_no_number_is_refused(word: str, others: list[str]) -> None:
    text = " ".join([*others, word, *others])
    assert bulk(text, 0, len(text)) is None
    assert floats(text) is None
    longer = f"{'0.125 ' * 2000}{text}"
    assert floats(longer) is None


def test_nothing_is_no_number() -> None:
    for text in ("", " ", "\n\t "):
        assert same(bulk(text, 0, len(text)), [])
        assert same(floats(text), [])


def test_offsets_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ab  c\nd efg   h "
    for part in (1, 3, 1000):
        monkeypatch.setattr(module, "PART", part)
        found = token_offsets(text, np.arange(7))
        assert found.tolist() == [0, 4, 6, 8, 14, 16, 16]
        assert token_offsets(text, np.array([0, 2]), 5).tolist() == [6, 14]
        assert token_offsets(text, np.zeros(0, np.int64)).size == 0
