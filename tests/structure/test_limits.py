"""The constants of `dml/limits.py` are explained, used, and read in a way that lets tests replace them."""

import ast
import re

from dml import limits
from tests.structure.parsed import ROOT, nodes, trees

MODULE = ROOT / "dml" / "limits.py"
MEASURED = re.compile(r"[Dd]ecisions? (\d{3})(?: and (\d{3}))?")
WALK = re.compile(r"[Ww]alks? (`[\w-]+`(?:(?:, | and )`[\w-]+`)*)")


def sources():
    """Every other module of the package with its syntax tree."""
    return ((path, tree) for path, tree in trees() if path != "dml/limits.py")


def test_each_has_a_text():
    body = ast.parse(MODULE.read_text("utf-8")).body
    names = {node.target.id: place for place, node in enumerate(body) if isinstance(node, ast.AnnAssign)}
    assert sorted(names) == sorted(limits.__all__)
    assert len(names) > 100
    silent = [
        name
        for name, place in names.items()
        if not (
            isinstance(text := body[place + 1], ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        )
    ]
    assert silent == []


def test_decisions_and_walks_that_are_named_exist():
    text = MODULE.read_text("utf-8")
    decisions = {number for found in MEASURED.findall(text) for number in found if number}
    assert len(decisions) > 10
    assert {number for number in decisions if not list((ROOT / "docs" / "decisions").glob(f"{number}-*.md"))} == set()
    walks = {
        name
        for found in WALK.findall(" ".join(text.replace("# ", "").split()))
        for name in re.findall(r"`(.*?)`", found)
    }
    assert len(walks) > 5
    known = re.findall(r'^    "([\w-]+)": Walk\(', (ROOT / "benchmarks" / "walks.py").read_text("utf-8"), re.MULTILINE)
    assert walks - set(known) == set()


def test_each_is_used_and_none_is_bound_to_another_module():
    """A name that is imported from the module keeps its value when a test replaces it there."""
    used = set()
    for path, tree in sources():
        for node in nodes(tree):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "dml.limits"), path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "limits":
                used.add(node.attr)
    assert set(limits.__all__) - used == set()


def test_waits_and_threads_are_nowhere_else():
    """Their names tell them from numbers that a format sets."""
    strays = [
        f"{path}:{node.lineno}"
        for path, tree in sources()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
        and re.search(r"(SECONDS|_MS|THREADS|RETRIES)\b", ast.unparse(node).partition("=")[0])
    ]
    assert strays == []
