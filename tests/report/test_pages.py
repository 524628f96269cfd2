"""Each finding and each cause has a page, and the pages of `docs/` are the same ones."""

import pytest

from doctor.core.checks import CHECKS
from doctor.edition.load import load_matrix
from doctor.report.escape import UNSAFE
from doctor.report.pages import identifiers, page_of

MATRIX = load_matrix()


@pytest.mark.parametrize("identifier", dict.fromkeys(identifiers(MATRIX)))
def test_each_id_has_a_page(identifier):
    page = page_of(identifier, MATRIX)
    assert page.startswith(f"# {identifier}\n\n")
    assert len(page.splitlines()) > 3
    assert "None" not in page.split()
    assert not UNSAFE.search(page)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_a_check_says_what_it_means(check):
    """The docstring of the check is its page: at least a sentence."""
    assert len((check.run.__doc__ or "").split()) >= 5


@pytest.mark.parametrize("row", MATRIX.edition.causes, ids=lambda row: row.id)
def test_a_cause_says_what_to_do(row):
    page = page_of(row.id, MATRIX)
    assert "Sources:" in page
    assert row.remedy is None or f"Remedy: {row.remedy.summary}." in page


def test_nobody_elses_id_has_a_page():
    assert page_of("driver.no_such_thing", MATRIX) == ""
