"""Does what image/Containerfile says, without a container engine.

It exists because an image that nobody built is a guess, and engines are not everywhere. It must know no step by
itself. Invariants: every instruction is carried out or refused; what the first stage runs has the capabilities that
engines give a build, and no others; paths of a stage stay below its folder. The base image is this machine: the
packages that the stage installs must be here.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_INSTALLS: Final = re.compile(r"apt-get install (?:--\S+ )*(?P<names>[^&|;]+)$")
#: What docker, podman and buildah leave a RUN of root. Not CAP_SYS_ADMIN: nothing can be mounted.
_CAPABILITIES: Final = (
    "audit_write,chown,dac_override,fowner,fsetid,kill,mknod,net_bind_service,net_raw,setfcap,setgid,setpcap,setuid,"
    "sys_chroot"
)


class Unsupported(Exception):
    """An instruction that cannot be carried out here, and why."""


class Image(NamedTuple):
    """What the last stage gives."""

    root: Path
    environment: dict[str, str]
    user: str
    entrypoint: list[str]


def missing_programs(path: Path) -> list[str]:
    """Debian packages that its first stage installs and this machine lacks."""
    names = [name for _, text in _instructions(path) for name in _installed(text)]
    said = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Status}\n", *names], capture_output=True, check=False)
    here = {line.split()[0] for line in said.stdout.decode().splitlines() if line.endswith(" installed")}
    # Python may come from elsewhere.
    return [name for name in names if name not in here and not name.startswith("python3")]


def build(path: Path, context: Path, work: Path) -> Image:
    """Carry out a Containerfile of two stages. Raises Unsupported, CalledProcessError."""
    stage = work / "stage"
    image = Image(work / "image", {}, "", [])
    scratch = False
    for word, text in _instructions(path):
        if word == "FROM":
            scratch = text == "scratch"
        elif word == "COPY" and text.startswith("--from=build "):
            source, target = text.split()[1:]
            assert target == "/", text
            (stage / source.lstrip("/")).rename(image.root)
        elif word == "COPY":
            _copy(context, stage, *text.split())
        elif word == "RUN":
            _run(text, stage)
        elif word == "ENV" and scratch:
            parts = (each.partition("=") for each in text.split())
            image.environment.update({name: value for name, _, value in parts})
        elif word == "USER" and scratch:
            image = image._replace(user=text)
        elif word == "ENTRYPOINT" and scratch:
            image = image._replace(entrypoint=re.findall(r'"([^"]*)"', text))
        elif word not in ("ARG", "WORKDIR", "EXPOSE", "CMD"):
            raise Unsupported(f"{path.name}: {word} {text}")
    return image


def _instructions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield word and text; lines that go on are one."""
    for line in re.sub(r"\s*\\\n\s*", " ", path.read_text()).splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, text = line.partition(" ")
            yield word, text


def _installed(text: str) -> list[str]:
    found = _INSTALLS.search(text)
    return found["names"].split() if found else []


def _copy(context: Path, stage: Path, *paths: str) -> None:
    """Copy files of the context into a folder of the stage."""
    *sources, target = paths
    assert target.endswith("/"), target
    folder = stage / target.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in sources:
        found = list(context.glob(pattern))
        assert found, pattern
        for each in found:
            shutil.copy2(each, folder)


def _run(text: str, stage: Path) -> None:
    """Run a command whose absolute paths are the stage's. What installs packages is left out: they are here."""
    if _installed(text):
        return
    command = re.sub(r"(^| )/", rf"\1{stage}/", text)
    subprocess.run(["setpriv", f"--bounding-set=-all,{_plus()}", "sh", "-euc", command], check=True)


def _plus() -> str:
    return ",".join(f"+{each}" for each in _CAPABILITIES.split(","))
