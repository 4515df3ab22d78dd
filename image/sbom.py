"""Adds Debian's packages to the SBOM of the locked dependencies, and puts it into the image's root file system.

It exists because an image has more in it than Python packages. It must not need more than a bare Python: it runs in
the image's first stage. Invariants: a package is listed exactly if a file of it is left; the same input gives the same
text.

    python3 image/sbom.py TARGET FILES SBOM

FILES is a folder with a list of files for each package, named NAME_VERSION_ARCHITECTURE; SBOM is CycloneDX in JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

_PLACE = "usr/share/gpu-extender/sbom.cdx.json"


def component(name: str, version: str, architecture: str) -> dict[str, Any]:
    """Return a package as a component."""
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def is_left(target: Path, files: str) -> bool:
    """Whether one of these files is still there; folders count for nothing."""
    paths = (target / each.removeprefix("./") for each in files.splitlines() if not each.endswith("/"))
    return any(path.is_symlink() or path.is_file() for path in paths)


def main(target: Path, files: Path, given: Path) -> None:
    """Write the SBOM into the target."""
    bom = json.loads(given.read_text())
    packages = [each for each in sorted(files.iterdir()) if is_left(target, each.read_text())]
    found = [component(*each.name.split("_")) for each in packages]
    bom["components"] += found
    bom["dependencies"] += [{"ref": each["bom-ref"]} for each in found]
    place = target / _PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(bom, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
