"""Whether the packages that run are those of this distribution, and nobody else's of the same name.

It exists because `accounting` and `extender` are ordinary words, and pip lets two distributions own one folder: the one
that is installed later overwrites files of the other, and either's removal takes files of both. A wheel runs nothing
when it is installed, so the first start is where it can be refused. It must not import
what it judges: whose code that is, is the question. Invariant: an installation that is whole is never refused.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_OWN: Final = "gpu_extender-"
_PACKAGES: Final = ("accounting", "extender")


def why_not_ours() -> str:
    """Return what is wrong with the packages that were found; empty if nothing is."""
    own = Path(__file__).resolve().parent
    spec = find_spec("accounting")
    found = Path((spec and spec.origin) or "nowhere").resolve().parent
    if found != own.parent / "accounting":
        return f"package accounting: {found}: is another project's; ours is beside {own}"
    for other in _others(own.parent):
        return f"distribution {other}: {own.parent}: has a package of our name here; install one of the two elsewhere"
    return ""


def _others(site: Path) -> Iterator[str]:
    """Yield the other distributions in this folder that own files of our packages."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        name = record.parent.name.removesuffix(".dist-info")
        if not name.startswith(_OWN) and _owns(record):
            yield name


def _owns(record: Path) -> bool:
    try:
        text = b"\n" + record.read_bytes()
    except OSError:
        return False
    return any(f"\n{package}/".encode() in text for package in _PACKAGES)
