"""Where every program of this distribution begins: it looks whose packages these are, and runs the command.

It exists because a foreign package of our name must be refused before anything of it is imported. It must not import a
command at its top. Invariant: what is refused has said why in one line, and nothing else has happened.
"""

import sys

from extender.installation import why_not_ours


def main() -> int:
    """Run `gpu-extender`; returns the exit status."""
    if _is_refused():
        return 2
    from extender.cli import main as command  # noqa: PLC0415 - see above

    return command()


def kubectl() -> int:
    """Run `kubectl gpu-extender`; returns the exit status."""
    if _is_refused():
        return 2
    from extender.kubectl import main as command  # noqa: PLC0415 - see above

    return command()


def _is_refused() -> bool:
    why = why_not_ours()
    if why:
        sys.stderr.write(f"error: {why}\n")
    return bool(why)
