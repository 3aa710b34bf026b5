"""docs/conformance.md is up to date with the tests."""

from __future__ import annotations

from tests.conformance import table


def test_the_committed_page_is_the_one_that_the_tests_give() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run: python -m tests.conformance.table"


def test_every_reason_is_of_a_check_and_a_store_that_are_there() -> None:
    found = {
        name: fixture
        for module in (table.test_reading, table.test_writing, table.test_sessions, table.test_refusals)
        for name, fixture in table.checks(module)
    }
    assert set(table._DIFFERS) <= set(found)
    assert all(set(stores) <= set(table.STORES) for stores in table._DIFFERS.values())
    for fixture, reasons in table._NOT.items():
        assert not set(reasons) & set(table._RUNS_OVER[fixture])
        assert set(reasons) | set(table._RUNS_OVER[fixture]) == set(table.STORES)
