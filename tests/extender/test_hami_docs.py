"""docs/hami.md says how each version's rows are read; each line names tests, and these exist."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "hami.md"
TESTS = Path(__file__).with_name("test_hami_rows.py")


def test_every_line_of_the_table_of_versions_names_tests_that_exist() -> None:
    _, _, rest = DOCS.read_text(encoding="utf-8").partition("| HAMi | rows of")
    lines = [line for line in rest.split("\n\n")[0].splitlines()[2:] if line]
    source = TESTS.read_text(encoding="utf-8")
    assert len(lines) == 5
    for line in lines:
        version, *_, tests = line.strip("|").split(" | ")
        names = re.findall(r"`([^`]+)`", tests)
        assert names, version
        for name in names:
            assert f'id="{name}"' in source, name
