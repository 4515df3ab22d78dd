"""Completion of the plugin by kubectl itself.

Why it exists: for `kubectl gpu-extender <TAB>` kubectl runs `kubectl_complete-gpu_extender` with the words so far and
reads one candidate per line. It must not ask the extender. Invariant: the last line is the directive, 4: no file names.
Source: kubectl's pkg/cmd/plugin/plugin_completion.go.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from extender.kubectl.options import parser

_NO_FILES = ":4"


def complete(argv: Sequence[str] | None = None) -> int:
    """Print the candidates for the next word."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    found = sorted(set(_candidates(parser(), words)))
    sys.stdout.write("\n".join([*found, _NO_FILES]) + "\n")
    return 0


def _candidates(of: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    *before, last = words
    for word in before:
        following = _commands(of).get(word)
        of = following or of
    choices = list(_commands(of)) or [value for each in of._actions for value in each.choices or ()]  # noqa: SLF001
    options = [text for each in of._actions for text in each.option_strings]  # noqa: SLF001
    yield from (each for each in (options if last.startswith("-") else choices) if each.startswith(last))


def _commands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in of._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}
