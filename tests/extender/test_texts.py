"""What `kubectl describe pod` shows of a refused node."""

import re

import pytest

from accounting.status import CODES, Code
from extender.verbs.texts import TEXT, WIRE_TEXTS


@pytest.mark.parametrize("code", CODES)
def test_a_text_says_what_is_in_the_way_and_what_to_do(code: Code) -> None:
    cause, semicolon, remedy = TEXT[code].partition("; ")
    assert (cause != "", semicolon, remedy != "") == (True, "; ", True)
    # kube-scheduler joins texts by commas and counts equal ones; a percent sign garbles its event.
    assert not re.search(r"[%,.\d]", TEXT[code])


def test_texts_are_distinct_and_all_of_them_nearly_fit_into_one_event() -> None:
    assert len(set(TEXT.values())) == len(CODES)
    assert max(map(len, WIRE_TEXTS)) <= 120
    # An event has 1,024 bytes; only a contrived cluster has more than eight causes at a time.
    assert sum(sorted(map(len, WIRE_TEXTS))[-8:]) < 1024
