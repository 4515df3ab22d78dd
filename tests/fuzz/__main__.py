"""Gives readers of outside texts what a fuzzer makes up, guided by the lines that each text reaches.

It exists because a text from outside may hold what nobody thinks of. It must not know what is read; see
`tests.fuzz.targets`. Invariant: only a bug ends a run early, and its text is left in a file; texts that reach new lines
are kept in tests/data/fuzz, reduced to the fewest that reach all of them.

    python -m tests.fuzz [--seconds 450] [TARGET...]      each that long, one after another python -m tests.fuzz --one
    TARGET LIBFUZZER_OPTION...  one of them, as libFuzzer wants it
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: Longer texts are slow, and reach nothing that shorter ones do not.
_MOST_BYTES = 4096
_TIMEOUT_SECONDS = 20
#: Beside the fuzzer a register that is read leaves 6 KiB behind; without it, none.
_MIBIBYTES = 4096


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--one"]:
        _fuzz(given[1], given[2:])
        return 0
    from tests.fuzz.targets import TARGETS

    parser = _parser(list(TARGETS))
    options = parser.parse_args(given)
    if set(options.targets) - set(TARGETS):
        parser.error(f"TARGET: {', '.join(options.targets)}: must be of {', '.join(TARGETS)}")
    report = {name: _run(name, options.seconds) for name in options.targets or TARGETS}
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    found = [name for name, figures in report.items() if figures["failure"]]
    sys.stdout.write(f"failed: {', '.join(found)}\n" if found else "nothing was found\n")
    return 1 if found else 0


def _run(name: str, seconds: int) -> dict[str, object]:
    """Fuzz one target, starting from the texts of earlier runs, and keep what is new."""
    from tests.fuzz.raising import raise_what_is_logged
    from tests.fuzz.reducing import reduced
    from tests.fuzz.targets import CORPUS, TARGETS

    raise_what_is_logged()
    kept = CORPUS / name
    with tempfile.TemporaryDirectory(prefix=f"gpu-extender-fuzz-{name}-") as folder:
        corpus, failures = Path(folder) / "corpus", Path(folder) / "failures"
        corpus.mkdir()
        failures.mkdir()
        for data in [*TARGETS[name].seeds(), *(path.read_bytes() for path in sorted(kept.glob("*")))]:
            _keep(corpus, data)
        limits = [f"-timeout={_TIMEOUT_SECONDS}", f"-rss_limit_mb={_MIBIBYTES}", f"-max_len={_MOST_BYTES}"]
        where = f"-artifact_prefix={failures}/"
        done = _libfuzzer(name, [str(corpus), f"-max_total_time={seconds}", "-print_final_stats=1", where, *limits])
        figures = _figures(done.stderr)
        if done.returncode:
            figures["failure"] = done.stdout[-3000:] + done.stderr[-3000:]
            sys.stdout.write(str(figures["failure"]))
            for path in failures.iterdir():
                shutil.copy(path, Path(tempfile.gettempdir()) / f"{name}-{path.name}")
                sys.stdout.write(f"{Path(tempfile.gettempdir()) / f'{name}-{path.name}'}: {path.read_bytes()!r}\n")
            return figures
        found = [path.read_bytes() for path in corpus.iterdir()]
    chosen = reduced(found, TARGETS[name].run, TARGETS[name].seeds())
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for data in chosen:
        _keep(kept, data)
    sys.stdout.write(f"{name}: {figures['texts']} texts, {len(chosen)} kept\n")
    sys.stdout.flush()
    return figures


def _keep(folder: Path, data: bytes) -> None:
    (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def _libfuzzer(name: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)


def _figures(said: str) -> dict[str, object]:
    """Return what libFuzzer counted."""
    stats = {
        words[0].removeprefix("stat::").rstrip(":"): int(words[1])
        for line in said.splitlines()
        if line.startswith("stat::") and len(words := line.split()) > 1 and words[1].isdigit()
    }
    reached = [line for line in said.splitlines() if " cov: " in line]
    cov = reached[-1].partition(" cov: ")[2].split()[0] if reached else "0"
    return {
        "texts": stats.get("number_of_executed_units", 0),
        "new": stats.get("new_units_added", 0),
        "edges": int(cov),
        "slowest_seconds": stats.get("slowest_unit_time_sec", 0),
        "failure": "",
    }


def _fuzz(name: str, options: list[str]) -> None:
    """Fuzz in this process; it does not return."""
    import atheris

    with atheris.instrument_imports(include=["accounting", "extender"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.mutation import mutated
    from tests.fuzz.raising import raise_what_is_logged

    raise_what_is_logged()
    target = TARGETS[name]

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        return mutated(data, most, seed, atheris.Mutate)

    atheris.Setup([sys.argv[0], *options], target.run, **({"custom_mutator": mutator} if target.is_json else {}))
    atheris.Fuzz()


def _parser(targets: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets))
    parser.add_argument("--seconds", type=int, default=60, help="for each target (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
