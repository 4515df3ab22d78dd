"""The plugin's commands.

It must not compute anything. Exit status as of `gpu-extender`: 0 answered; 1 verify found problems, or a pod of what-if
fits nowhere; 2 bad input or no answer, with one line on standard error.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import orjson
import yaml

from extender.convert import InputError, parse_manifests
from extender.kubectl import showing
from extender.kubectl.options import parser
from extender.kubectl.reaching import Extender, Service, by_address, by_service, default_kubeconfig, namespace_of
from extender.kubectl.showing import Paint
from extender.printable import printable

_WATCH_SECONDS = 2.0


class Shown(NamedTuple):
    """The result of a command: the answer as it came, its lines, and the exit status."""

    answer: Any
    lines: list[str]
    status: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.command == "completion":
            return _completion(arguments.shell)
        return _watched(arguments) if arguments.watch else _once(arguments)
    except InputError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def _once(arguments: argparse.Namespace) -> int:
    shown = _shown(arguments, _extender(arguments), Paint.of_terminal())
    sys.stdout.write(_text(shown, arguments.output))
    sys.stdout.flush()
    return shown.status


def _watched(arguments: argparse.Namespace) -> int:
    """Show the table again whenever it has changed, until interrupted."""
    extender, paint, before = _extender(arguments), Paint.of_terminal(), ""
    while True:
        text = _text(_shown(arguments, extender, paint), arguments.output)
        if text != before:
            sys.stdout.write(("\x1b[H\x1b[2J" if sys.stdout.isatty() else "") + text)
            sys.stdout.flush()
            before = text
        time.sleep(_WATCH_SECONDS)


def _text(shown: Shown, output: str) -> str:
    if output == "json":
        return orjson.dumps(shown.answer, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    if output == "yaml":
        return str(yaml.safe_dump(shown.answer, sort_keys=False, allow_unicode=True))
    return "".join(f"{line}\n" for line in shown.lines)


def _extender(arguments: argparse.Namespace) -> Extender:
    if arguments.server:
        return by_address(arguments.server)
    service = Service(arguments.service_namespace, arguments.service, arguments.service_port, arguments.service_scheme)
    return by_service(arguments.kubeconfig or default_kubeconfig(), arguments.context, service)


def _shown(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    name = f"{arguments.command} {arguments.what}" if arguments.command == "top" else arguments.command
    return _COMMANDS[name](arguments, extender, paint)


def _top_nodes(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    wanted = {"model": arguments.model, "problem": arguments.problem}
    found = extender.get("/api/v1/nodes", {key: value for key, value in wanted.items() if value})
    rows = [showing.node_row(each) for each in found]
    return Shown(found, _lines(showing.NODES, rows, paint, arguments, "No nodes found."))


def _top_pods(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    wanted = {"node": arguments.node, "namespace": _namespace(arguments)}
    found = extender.get("/api/v1/pods", {key: value for key, value in wanted.items() if value})
    rows = [showing.pod_row(each) for each in found]
    return Shown(found, _lines(showing.PODS, rows, paint, arguments, "No pods found."))


def _why(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    namespace = arguments.namespace or namespace_of(arguments.kubeconfig or default_kubeconfig(), arguments.context)
    found = extender.get(f"/api/v1/pods/{quote(namespace, safe='')}/{quote(arguments.pod, safe='')}/why")
    return Shown(found, list(showing.why_lines(found, paint)))


def _what_if(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    try:
        body = sys.stdin.buffer.read() if arguments.filename == "-" else Path(arguments.filename).read_bytes()
    except OSError as error:
        raise InputError("-f", arguments.filename, error.strerror or str(error)) from None
    # The extender accepts only JSON, so YAML is read here, where no other request waits.
    manifests = [each.value for each in parse_manifests(body, "-f", arguments.filename)]
    found = extender.post("/api/v1/what-if", msgspec.json.encode({"kind": "List", "items": manifests}))
    lines = [line for each in found for line in showing.why_lines(each, paint)]
    return Shown(found, lines, 0 if all(each["fits"] for each in found) else 1)


def _verify(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    # Without cards there is much less to send; a live cluster says where it differs from the API server as well.
    fields = "problems,differences,comparison"
    found = extender.get("/api/v1/verify", {"fields": fields} if arguments.problems else None)
    problems = [each | {"bad": True} for each in found["problems"]]
    lines: list[str] = []
    if not arguments.problems:
        lines += [*_lines(showing.CARDS, found["devices"], paint, arguments, "No cards."), ""]
        raw = [each | {"bad": each["overcommitted"]} for each in found.get("raw", ())]
        lines += [*_lines(showing.RAW, raw, paint, arguments, ""), ""] if raw else []
    lines += _lines(showing.PROBLEMS, problems, paint, arguments, "No problems.")
    return Shown(found, lines, 1 if problems else 0)


def _usage(arguments: argparse.Namespace, extender: Extender, paint: Paint) -> Shown:
    namespace = _namespace(arguments)
    query = {"namespace": namespace} if namespace else None
    if arguments.records:
        records = extender.get("/api/v1/usage/records", query)
        return Shown(records, _lines(showing.RECORDS, records, paint, arguments, "No records."))
    found = extender.get("/api/v1/usage", query)
    rows = [each | {"bad": any(quota["exceeded"] for quota in each["quotas"])} for each in found]
    return Shown(found, _lines(showing.USAGE, rows, paint, arguments, "Nobody holds cards."))


def _namespace(arguments: argparse.Namespace) -> str | None:
    return None if arguments.all_namespaces else arguments.namespace


def _lines(
    columns: Sequence[showing.Column], rows: list[Any], paint: Paint, arguments: argparse.Namespace, empty: str
) -> list[str]:
    return list(showing.table(columns, rows, paint, wide=arguments.output == "wide")) if rows else [empty]


def _completion(shell: str) -> int:
    import shtab  # noqa: PLC0415 - no other command needs it

    whole = parser()
    whole.prog = "kubectl-gpu_extender"
    sys.stdout.write(shtab.complete(whole, shell) + "\n")
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace, Extender, Paint], Shown]] = {
    "top nodes": _top_nodes,
    "top pods": _top_pods,
    "why": _why,
    "what-if": _what_if,
    "verify": _verify,
    "usage": _usage,
}
