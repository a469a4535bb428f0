"""EXPLAIN shows what it says as SQL."""

import pytest

pytestmark = pytest.mark.spark


def explained(lake, sql):
    ((text,),) = lake.session.sql(f"EXPLAIN {sql}").collect()
    return text


def test_filters_are_shown_as_conditions(lake):
    name = lake.create("id BIGINT, s STRING, d DOUBLE", "PARTITIONED BY (bucket(4, id))")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a', 1.0)")
    condition = "id > 1 AND s LIKE 'p%' AND d >= 2"
    text = explained(lake, f"DELETE FROM {name} WHERE {condition}")
    shown = "((id > 1 AND startswith(s, 'p')) AND (d >= 2.0 OR isnan(d)))"
    assert f"conflict detection filter: {shown}" in text
    assert f"filter: {shown}\n" in text
    assert "Reference(" not in text
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE {shown}") == [(0,)]


def test_names_are_quoted_where_sql_requires_it(lake):
    """In a filter that can be pasted into a statement."""
    name = lake.create("`a.b` INT, `order` INT, s STRUCT<`x y`: INT>")
    lake.session.sql(f"INSERT INTO {name} VALUES (2, 2, named_struct('x y', 2))")
    shown = "((`a.b` > 1 AND `order` > 1) AND s.`x y` > 1)"
    condition = "`a.b` > 1 AND `order` > 1 AND s.`x y` > 1"
    text = explained(lake, f"UPDATE {name} SET `a.b` = 3 WHERE {condition}")
    assert f"conflict detection filter: {shown}" in text
    assert f"filter: {shown}\n" in text
    assert "columns read: `a.b`, `order`, s" in text
    assert f", filter {shown})" in explained(lake, f"SELECT s FROM {name} WHERE {condition}")
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE {shown}") == [(1,)]


def test_the_partitioning_of_an_insert_is_shown_as_it_is_declared(lake):
    name = lake.create("id BIGINT, day DATE", "PARTITIONED BY (bucket(4, id), months(day))")
    assert "partitioned by: bucket(4, id), months(day)" in explained(lake, f"INSERT INTO {name} VALUES (1, NULL)")
    name = lake.create("id BIGINT")
    assert "partitioned by: nothing" in explained(lake, f"INSERT INTO {name} VALUES (1)")
