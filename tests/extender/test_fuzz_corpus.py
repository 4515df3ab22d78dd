"""The fuzzer's findings are read again: the texts that reached lines of their own, and those that showed bugs.

It must not fuzz; `make fuzz` does. Invariant: each kind of text has some, seeds included.
"""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.fuzz.targets import CORPUS, TARGETS


@pytest.fixture(autouse=True)
def no_bug_is_logged() -> Iterator[None]:
    with capture_logs() as logs:
        yield
    assert [entry for entry in logs if entry.get("exc_info")] == []


@pytest.mark.parametrize("name", TARGETS)
def test_texts_from_outside_are_read_or_refused(name: str) -> None:
    texts = [*TARGETS[name].seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
    assert texts
    for text in texts:
        TARGETS[name].run(text)


def test_each_corpus_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)
