"""The plugin's options.

It must not do the work. Invariant: every option has a text.
"""

import argparse
import sys
from urllib.parse import urlsplit

from extender import __version__
from extender.kubectl.reaching import Service
from extender.printable import printable
from extender.reports import MARKS


class Parser(argparse.ArgumentParser):
    """A parser that reports bad options in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn, as this does
        """Print the error, and exit with status 2."""
        sys.stderr.write(printable(f"error: arguments: {message}") + "\n")
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """Return the parser; the command is in `command`."""
    whole = Parser(prog="kubectl gpu-extender", description="What holds fractions of GPUs, and why pods wait for them.")
    whole.add_argument("--version", action="version", version=f"gpu-extender {__version__}")
    commands = whole.add_subparsers(required=True, metavar="COMMAND", dest="command")
    top = commands.add_parser("top", help="what nodes or pods hold").add_subparsers(
        required=True, metavar="WHAT", dest="what"
    )
    nodes = top.add_parser("nodes", help="what is held on every node")
    nodes.add_argument("--model", help="only nodes with a card of this model")
    nodes.add_argument("--problem", choices=["any", *MARKS], help="only nodes with such a card; any: with a wrong one")
    _add_shared(nodes)
    pods = top.add_parser("pods", help="what every pod holds")
    pods.add_argument("--node", help="only pods on this node")
    _add_namespace(pods)
    _add_shared(pods)
    why = commands.add_parser("why", help="why a pod waits, and what would have to change")
    why.add_argument("pod", metavar="POD", help="name of a pod")
    _add_namespace(why, everywhere=False)
    _add_shared(why)
    what_if = commands.add_parser("what-if", help="where pods would go that do not exist yet")
    what_if.add_argument("-f", "--filename", required=True, help='Pods or workloads, YAML or JSON; "-": standard input')
    _add_shared(what_if)
    verify = commands.add_parser("verify", help="what is wrong; exit status 1 if something is")
    verify.add_argument("--problems", action="store_true", help="problems only, no cards")
    _add_shared(verify)
    usage = commands.add_parser("usage", help="what every namespace holds, and its quotas")
    usage.add_argument("--records", action="store_true", help="what pods and VMs have had so far, times seconds")
    _add_namespace(usage)
    _add_shared(usage)
    completion = commands.add_parser("completion", help="print a script that completes this command")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
    return whole


def _add_namespace(to: argparse.ArgumentParser, *, everywhere: bool = True) -> None:
    text = "by default " + ("all" if everywhere else "that of the kubeconfig's context")
    to.add_argument("-n", "--namespace", help=f"namespace; {text}")
    if everywhere:
        to.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces, the default")


def _add_shared(to: argparse.ArgumentParser) -> None:
    default = Service()
    formats = ["table", "wide", "json", "yaml"]
    to.add_argument("-o", "--output", choices=formats, default="table", help="format; default: table")
    to.add_argument("-w", "--watch", action="store_true", help="show it again whenever it has changed")
    group = to.add_argument_group("where the extender is")
    group.add_argument("--server", type=_server, metavar="URL", help="its address; default: through the API server")
    group.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG or ~/.kube/config")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    group.add_argument(
        "--service-namespace", metavar="NAME", default=default.namespace, help=f"default: {default.namespace}"
    )
    group.add_argument(
        "--service", metavar="NAME", default=default.name, help=f"name of its Service; default: {default.name}"
    )
    group.add_argument("--service-port", metavar="PORT", default=default.port, help=f"default: {default.port}")
    group.add_argument("--service-scheme", choices=["http", "https"], default="http", help="default: http")


def _server(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text or '(empty)'}: must be http://HOST:PORT or https://HOST:PORT")
    return text
