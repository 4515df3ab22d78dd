"""The command line: `gpu-extender serve | account | explain | verify`.

It must not do the work; each command is a module of `commands`. Invariants: exit status 0 answered, 1 verify found
problems or explain found no node, 2 bad input with nothing on standard output and one line on standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from accounting.policy import Policies, parse_card_policy, parse_node_policy
from accounting.vendor import NVIDIA
from extender import __version__
from extender.commands import account, explain, replay, serve, verify
from extender.config import ServerSettings, Settings
from extender.manifests import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments, _settings(arguments))
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep the interpreter from complaining at exit.
        sys.stderr.close()
        return 0
    return status


class _Parser(argparse.ArgumentParser):
    """Refuses bad flags in the one line that every other bad input gets."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn, as this does
        sys.stderr.write(f"error: arguments: {' '.join(sys.argv[1:]) or '(none)'}: {message}\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpu-extender", description="kube-scheduler extender for shared GPUs")
    parser.add_argument("--version", action="version", version=f"gpu-extender {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    defaults = _Parser(add_help=False)
    _add_defaults(defaults)
    _add_serve(commands.add_parser("serve", parents=[defaults], help="run the extender", description=serve.__doc__))
    _add_account(commands.add_parser("account", parents=[defaults], help="what a pod holds"))
    _add_explain(commands.add_parser("explain", parents=[defaults], help="which nodes take a pod, and why not"))
    _add_verify(commands.add_parser("verify", parents=[defaults], help="recompute all usage and list what is wrong"))
    _add_replay(commands.add_parser("replay", parents=[defaults], help="feed a journal to a fresh cluster"))
    return parser


def _add_defaults(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("defaults, as in HAMi's scheduler and device configuration")
    group.add_argument("--node-scheduler-policy", default="binpack", choices=["binpack", "spread"])
    group.add_argument("--gpu-scheduler-policy", default="spread", metavar="POLICY", help="word or comma list")
    group.add_argument("--memory-factor", type=_natural, default=1, metavar="N", help="MiB per unit of gpumem")
    group.add_argument("--default-memory", type=_natural, default=0, metavar="MIB", help="0: the whole card")
    group.add_argument("--default-cores", type=_natural, default=0, metavar="PERCENT")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    server = ServerSettings()
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="FILE", help="cluster dump, repeatable; default: an example"
    )
    parser.add_argument("--bind-address", default=server.bind_address)
    parser.add_argument("--port", type=_port, default=server.port)
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    _add_live(parser)
    parser.set_defaults(run=serve.run)


def _add_live(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("live cluster")
    group.add_argument("--kubeconfig", type=_path, metavar="FILE", help="follow the API server of this kubeconfig")
    group.add_argument("--in-cluster", action="store_true", help="follow the API server by the pod's service account")
    group.add_argument("--lock-mode", choices=["hami", "none"], default="hami", help="node lock for HAMi's plugin")
    group.add_argument("--http-timeout", type=_seconds, default=10.0, metavar="SECONDS", help="as in the stanza")
    group.add_argument("--claims", action=argparse.BooleanOptionalAction, default=True)
    group.add_argument("--leader-elect", action=argparse.BooleanOptionalAction, default=True)
    group.add_argument("--follow-lease", action="store_true", help="lead when this host's kube-scheduler does")
    group.add_argument("--lease-namespace", default="kube-system")
    group.add_argument("--lease-name", help="default: gpu-extender; with --follow-lease: kube-scheduler")
    group.add_argument("--lease-duration", type=_seconds, default=15.0, metavar="SECONDS")
    group.add_argument("--lease-retry", type=_seconds, default=2.0, metavar="SECONDS")
    group.add_argument("--shutdown-delay", type=_seconds, default=0.0, metavar="SECONDS")
    group.add_argument("--journal", metavar="FILE", help="append every call and event, for `replay`")


def _add_account(parser: argparse.ArgumentParser) -> None:
    _add_pods(parser)
    parser.set_defaults(run=account.run)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_pods(parser)
    _add_cluster(parser)
    parser.set_defaults(run=explain.run)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--cluster", action="append", metavar="FILE", help="cluster dump, repeatable")
    group.add_argument("--kubeconfig", type=_path, metavar="FILE", help="list from the API server of this kubeconfig")
    _add_output(parser)
    parser.set_defaults(run=verify.run)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journal_file", metavar="FILE", help="written by serve --journal")
    _add_output(parser)
    parser.set_defaults(run=replay.run)


def _add_pods(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--filename", required=True, metavar="FILE", help='Pod manifests, "-" for standard input')
    _add_output(parser)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", action="append", required=True, metavar="FILE", help="cluster dump, repeatable")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")


def _settings(arguments: argparse.Namespace) -> Settings:
    vendor = replace(
        NVIDIA,
        memory_factor=arguments.memory_factor,
        default_memory_mib=arguments.default_memory,
        default_cores=arguments.default_cores,
    )
    policies = Policies(
        parse_node_policy(arguments.node_scheduler_policy), parse_card_policy(arguments.gpu_scheduler_policy)
    )
    return Settings(vendor, policies)


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        message = f"{text}: must be a whole number"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _path(text: str) -> str:
    if not text:
        message = "(empty): must be a file"
        raise argparse.ArgumentTypeError(message)
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 86_400:  # noqa: PLR2004 - a day; also refuses NaN
        message = f"{text}: must be seconds from 0 to a day"
        raise argparse.ArgumentTypeError(message)
    return value


def _port(text: str) -> int:
    port = _natural(text)
    if port > 65_535:  # noqa: PLR2004 - the last TCP port
        message = f"{text}: must be a port from 0 to 65535"
        raise argparse.ArgumentTypeError(message)
    return port
