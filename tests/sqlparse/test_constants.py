"""The walk through constants, as conditions and as DEFAULT use it."""

import pytest

from dml.ddl.literals import UnfitError, value_of
from dml.plan.literals import Constant, TimeZone, constant
from dml.sqlparse.dialect import parse_expression


def certain(text: str) -> Constant | None:
    """What a condition has for a constant."""
    strings = (text.lstrip("-"),) if text.endswith("'") and "X'" not in text else ()
    tree = parse_expression(text, strings)
    assert tree is not None
    return constant(tree, TimeZone.of("UTC"))


@pytest.mark.parametrize(
    "text", ["1", "-1", "- (-3)", "1.50", "1e3", "-2.5", "TRUE", "(FALSE)", "'it\\'s'", "X'1F'", "5L", "2S", "NULL"]
)
def test_a_constant_that_is_certain_is_the_same_value_in_a_default(text: str) -> None:
    found, written = certain(text), value_of(text)
    assert found is not None
    assert (found.value, type(found.value)) == (written, type(written))


@pytest.mark.parametrize("text", ["a", "1 + 1", "-'x'", "-TRUE", "upper(a)", "a IS NULL"])
def test_what_is_no_constant_is_none_in_either(text: str) -> None:
    assert certain(text) is None
    with pytest.raises(UnfitError):
        value_of(text)
