"""No file that is needed is ever chosen, whatever the names are written like; and orphans are found."""

import posixpath
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.maintenance.orphan_choice import (
    Equivalents,
    ListedFile,
    NeededFiles,
    OrphanRules,
    PrefixMismatchMode,
    choose_orphans,
    identity_of,
    is_hidden,
    is_inside,
)
from dml.maintenance.reachable_files import folders_of, is_below, is_overlapping, outermost

NOW = 1_000_000
PLAIN = Equivalents.of({}, {})


def listed(location, modified_ms=0, folder="s3://lake/db/t"):
    relative = location.removeprefix(f"{folder}/")
    assert relative != location
    return ListedFile(folder=folder, relative=relative, path=location, real_location=location, modified_ms=modified_ms)


def chosen(files, needed, equivalents=PLAIN, **rules):
    index = NeededFiles(equivalents)
    index.add(needed)
    choice = choose_orphans(files, index, OrphanRules(older_than_ms=NOW, equivalents=equivalents, **rules))
    return [file.location for file in choice.orphans], choice.conflicts


# ---- properties

names = st.text(alphabet="ab _.=%/#?*é0", min_size=1, max_size=12).filter(
    lambda name: not name.startswith("/") and posixpath.normpath(name) == name and ".." not in name
)


@st.composite
def spellings(draw, location):
    """Another way to write a location of `s3://lake/db/t` or `file:/db/t`."""
    scheme, path = location.split(":", 1) if ":" in location else ("", location)
    path = path.removeprefix("//lake")
    if draw(st.booleans()):
        path = quote(path)
    if draw(st.booleans()):
        path = path.replace("/t/", "//t/./")
    if scheme == "s3":
        return f"{draw(st.sampled_from(['s3', 's3a', 's3n', 'S3', 'S3A']))}://lake{path}"
    return draw(st.sampled_from([f"file:{path}", f"file://{path}", f"FILE:{path}", path]))


@st.composite
def tables(draw):
    """Files below a folder, and those of them that are needed, written in other ways."""
    folder = draw(st.sampled_from(["s3://lake/db/t", "file:/db/t", "/db/t"]))
    found = draw(st.lists(names, unique=True, max_size=12))
    files = [listed(f"{folder}/{name}", draw(st.integers(0, 2 * NOW)), folder) for name in found]
    needed = [file for file in files if draw(st.booleans())]
    spelt = [draw(spellings(file.location)) for file in needed]
    return files, needed, spelt


@given(tables(), st.sampled_from(PrefixMismatchMode))
def test_a_needed_file_is_never_chosen(table, mode):
    """However metadata spells its name, in every mode: schemes and authorities of the spellings are equal."""
    files, needed, spelt = table
    orphans, conflicts = chosen(files, spelt, prefix_mismatch=mode)
    assert not set(orphans) & {file.location for file in needed}
    assert conflicts == ()


@given(tables())
def test_a_file_that_is_not_old_is_never_chosen(table):
    """Also if nothing is needed."""
    files, _, _ = table
    young = {file.location for file in files if file.modified_ms >= NOW}
    assert not set(chosen(files, [])[0]) & young
    assert chosen([replace(file, modified_ms=None) for file in files], [])[0] == []


@given(tables())
def test_every_old_file_with_a_name_of_its_own_is_chosen(table):
    """The search finds: what is old, not hidden, and not called like something that is needed."""
    files, _, spelt = table
    paths = {identity_of(location, PLAIN).path for location in spelt}
    expected = [
        file.location
        for file in files
        if file.modified_ms < NOW
        and not is_hidden(file.relative, frozenset())
        and identity_of(file.location, PLAIN).path not in paths
    ]
    assert chosen(files, spelt)[0] == expected


@given(tables(), st.lists(names, max_size=3))
def test_nothing_in_the_folder_of_another_table_is_chosen(table, others):
    """By the plain text of the path."""
    files, _, _ = table
    folders = tuple(f"{files[0].folder}/{other}" for other in others) if files else ()
    for location in chosen(files, [], others=folders)[0]:
        assert not any(location.startswith(f"{folder}/") for folder in folders)


# ---- what the rules say


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("s3a://lake/db/t/a.parquet", "s3://lake/db/t/a.parquet"),
        ("s3n://LAKE/db/t/a.parquet", "s3://lake/db/t/a.parquet"),
        ("s3://lake/db/t/k=a%20b/x", "s3://lake/db/t/k=a b/x"),
        ("s3://lake/db/t/k=a b/x", "s3://lake/db/t/k=a%20b/x"),
        ("s3://lake/db/t/k=a%2520b/x", "s3://lake/db/t/k=a%20b/x"),
        ("s3://lake/db//t/x", "s3://lake/db/t/x"),
    ],
)
def test_other_spellings_of_a_needed_file(written, found):
    """One file with two names."""
    assert chosen([listed(found)], [written]) == ([], ())


@pytest.mark.parametrize("written", ["file:/t/a", "file:///t/a", "file://host/t/a", "/t/a", "//t/a"])
def test_local_names(written):
    """A location without scheme or host means any."""
    assert chosen([listed("file:///t/a", folder="file:///t")], [written]) == ([], ())
    assert chosen([listed("/t/a", folder="/t")], [written]) == ([], ())


def test_another_authority_is_a_conflict_unless_it_is_told():
    """The file is never an orphan by mistake; only DELETE lets it go."""
    file, needed = [listed("s3://lake/db/t/a")], ["s3://other/db/t/a"]
    orphans, conflicts = chosen(file, needed)
    assert orphans == []
    assert [(found.listed, found.scheme, found.authority) for found in conflicts] == [
        ("s3://lake/db/t/a", "s3", "other")
    ]
    assert chosen(file, needed, prefix_mismatch=PrefixMismatchMode.IGNORE) == ([], ())
    assert chosen(file, needed, prefix_mismatch=PrefixMismatchMode.DELETE) == (["s3://lake/db/t/a"], ())
    assert chosen(file, needed, Equivalents.of({}, {"other, third": "lake"})) == ([], ())
    assert chosen(file, ["gs://lake/db/t/a"], Equivalents.of({"gs": "s3"}, {})) == ([], ())


def test_a_file_is_needed_if_one_of_its_names_fits():
    """A path that metadata has with two authorities."""
    assert chosen([listed("s3://lake/db/t/a")], ["s3://other/db/t/a", "s3a://lake/db/t/a"]) == ([], ())


def test_the_name_with_links_resolved_counts_too():
    """Metadata may have either."""
    file = replace(listed("/link/t/a", folder="/link/t"), real_location="/disk/t/a")
    assert chosen([file], ["file:///disk/t/a"])[0] == []
    assert chosen([file], ["file:///link/t/a"])[0] == []
    assert chosen([file], ["file:///else/t/a"])[0] == ["/link/t/a"]


@pytest.mark.parametrize(
    ("relative", "hidden"),
    [
        ("data/a.parquet", False),
        ("data/_temporary/a.parquet", True),
        ("data/.a.parquet.crc", True),
        ("_SUCCESS", True),
        ("data/_day=2026-01-31/a.parquet", False),
        ("data/_day/a.parquet", True),
        ("data/_dayly=1/a.parquet", True),
        ("data/_day=1/_tmp/a.parquet", True),
    ],
)
def test_hidden_files_are_none_of_the_tables(relative, hidden):
    """But partitions may have any name."""
    assert is_hidden(relative, frozenset({"_day"})) is hidden


def test_each_rule_that_keeps_a_file_is_a_reason():
    """One word for each rule, so that a user sees which option to change."""
    file, outside = listed("s3://lake/db/t/data/a"), ["s3://other/db/t/data/a"]

    def reason(found, needed=(), **rules):
        index = NeededFiles(PLAIN)
        index.add(needed)
        choice = choose_orphans([found], index, OrphanRules(older_than_ms=NOW, equivalents=PLAIN, **rules))
        assert choice.orphans == choice.conflicts == ()
        return choice.kept[0][1] if choice.kept else choice.needed

    assert reason(file, [file.location]) == 1
    assert "outside of 's3://lake/db/t/x'" in reason(file, within="s3://lake/db/t/x")
    assert "another table is in 's3://lake/db/t/data'" in reason(file, others=("s3://lake/db/t/data",))
    assert "a Hadoop catalog finds" in reason(listed("s3://lake/db/t/metadata/version-hint.text"))
    assert "starts with _ or ." in reason(listed("s3://lake/db/t/_tmp/a"))
    assert "not list when it was written" in reason(replace(file, modified_ms=None))
    assert "not written before 1970-01-01 00:16:40" in reason(replace(file, modified_ms=NOW))
    assert "names its path in 's3://other'" in reason(file, outside, prefix_mismatch=PrefixMismatchMode.IGNORE)


def test_the_version_hint_and_files_elsewhere_stay():
    """Whatever the age."""
    files = [listed(f"s3://lake/db/t/{name}") for name in ("metadata/version-hint.text", "data/a", "data2/b")]
    assert chosen(files, [])[0] == ["s3://lake/db/t/data/a", "s3://lake/db/t/data2/b"]
    assert chosen(files, [], within="s3a://lake/db/t/data/")[0] == ["s3://lake/db/t/data/a"]
    assert chosen(files, [], others=("s3://lake/db/t/data",))[0] == ["s3://lake/db/t/data2/b"]


# ---- folders


def test_folders_of_a_table():
    """The location, and what properties say."""
    properties = {"write.data.path": "s3://lake/data/", "write.metadata.path": "s3://lake/db/t/metadata"}
    folders = folders_of("s3://lake/db/t/", properties)
    assert folders == ("s3://lake/db/t", "s3://lake/data", "s3://lake/db/t/metadata")
    assert outermost(folders, PLAIN) == ("s3://lake/db/t", "s3://lake/data")
    assert outermost(("s3://lake/db/t", "s3a://lake/db"), PLAIN) == ("s3a://lake/db",)
    assert outermost(("s3://lake/t", "s3://other/t"), PLAIN) == ("s3://lake/t", "s3://other/t")


def test_inside_is_told_by_whole_names():
    """`t2` is not below `t`, and `a%2F..` is one name."""
    assert is_inside("s3://b/t/x", "s3://b/t/", PLAIN)
    assert not is_inside("s3://b/t2", "s3://b/t", PLAIN)
    assert not is_inside("s3://other/t/x", "s3://b/t", PLAIN)
    assert is_inside("s3://b/t/p=..%2F..%2Fx", "s3://b/t", PLAIN)
    assert is_below("s3://b/t/n", "s3://b/t", PLAIN)
    assert not is_below("s3://b/t", "s3://b/t", PLAIN)
    assert is_overlapping("s3://b", "s3://b/t", PLAIN)
    assert is_inside("file:/a", "/", PLAIN)
