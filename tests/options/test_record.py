"""Records of options: fields, checks, copies."""

import inspect
from typing import Annotated, Any, Literal

import pytest

from jtgpu.errors import ArgumentError
from jtgpu.options.compute import Compute
from jtgpu.options.learning import EM, Keys
from jtgpu.options.record import REQUIRED, Opt, Record, fields_of


class Base(Record, title="Base"):
    n: Annotated[int, Opt("Rows.", "-n, --rows N", least=1)] = 3
    how: Annotated[Literal["fast", "slow"], Opt("How.")] = "fast"


class Whole(Base):
    file: Annotated[str, Opt("A file.", "FILE")]
    share: Annotated[float | None, Opt("A share.", above=0)] = None
    loud: Annotated[bool, Opt("Loud.")] = False


def test_fields_are_those_of_bases_first() -> None:
    fields = fields_of(Whole)
    assert [*fields] == ["n", "how", "file", "share", "loud"]
    assert (fields["n"].owner, fields["file"].owner) == (Base, Whole)
    assert fields["how"].choices == ("fast", "slow")
    assert fields["file"].default is REQUIRED
    assert (Base.title, Whole.title) == ("Base", "")


def test_a_record_is_compared_printed_and_replaced() -> None:
    one = Whole(file="a", n=4)
    assert repr(one) == "Whole(n=4, file='a')"
    assert one == Whole(n=4, file="a") != one.replaced(n=5)
    assert hash(one) == hash(Whole(n=4, file="a"))
    with pytest.raises(AttributeError, match="replaced"):
        one.n = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": 0}, "n must be an integer of at least 1, not 0"),
        ({"n": "3"}, "n must be an integer"),
        ({"how": "fats"}, "did you mean 'fast'"),
        ({"share": 0.0}, "share must be a number above 0"),
        ({"loud": 1}, "loud must be True or False"),
        ({"rows": 3}, "has no argument 'rows'"),
    ],
)
def test_wrong_values_are_errors(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Whole(**({"file": "a"} | wrong))


def test_what_is_required_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"Whole\(\) needs file"):
        Whole()  # type: ignore[call-arg]


def test_the_documentation_of_a_record_lists_its_fields() -> None:
    text = inspect.getdoc(EM) or ""
    assert text.startswith("How EM runs.\n\nParameters\n----------\nstart : {'auto', 'given', ")
    assert "\nrestarts : int, default 1\n    Number of starts; the best result counts.\n" in text
    assert "\nstepwise : float, default None\n" in text
    assert str(inspect.signature(Keys)) == "(*, id=None, time=None, on_gap='error')"


def test_options_that_are_not_used_are_errors() -> None:
    with pytest.raises(ArgumentError, match="dtype= is not offered with fit"):
        Compute.of(Compute(dtype="float32"), "backend threads", "fit")
    assert Compute.of("gpu", "backend", "fit") == Compute(backend="gpu")
    with pytest.raises(ArgumentError, match=r"compute must be a jtgpu\.Compute, or the name of a backend"):
        Compute.of(3, "backend", "fit")  # type: ignore[arg-type]


def test_a_field_without_opt_is_no_option() -> None:
    class Read(Base):
        codes: Any = None

    assert "codes" not in fields_of(Read)
    assert Read(codes={}, n=5) == Read(n=5).replaced(codes={})
    assert repr(Read(codes={})) == "Read(codes={})"


def test_some_choices_of_a_field() -> None:
    assert fields_of(Compute)["backend"].only("auto", "cpu").choices == ("auto", "cpu")
    assert "another network" in (inspect.getdoc(EM) or "")
    assert "network" in fields_of(EM)["start"].opt.help
    assert "another" not in fields_of(EM)["start"].opt.help
