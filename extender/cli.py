"""The command line: `gpu-extender serve | account | explain | simulate | verify | replay`.

It must not do the work; each command is a module of `commands`. Invariants: exit status 0 answered, 1 verify found
problems or explain found no node, 2 bad input with nothing on standard output and one line on standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from extender import __version__
from extender.admission.configurations import Target
from extender.admission.settings import AdmissionSettings, NearMiss, OtherScheduler, Privileged
from extender.commands import account, certs, explain, replay, scheduler_config, serve, simulate, verify, webhooks
from extender.commands.defaults import add_defaults, natural, path, settings_of, with_config
from extender.commands.sources import add_sources
from extender.commands.vendor_config import VendorConfig, read_vendor_config
from extender.config import ServerSettings
from extender.convert import InputError
from extender.logs import LEVELS
from extender.printable import printable
from extender.simulation.replay import POLICIES
from extender.wire.names import why_no_label, why_no_subdomain

_INT32_MAX = 2**31 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        config = VendorConfig() if arguments.vendor_config is None else read_vendor_config(arguments.vendor_config)
        for ignored in config.ignored:
            sys.stderr.write(printable(f"warning: --vendor-config: {arguments.vendor_config}: {ignored}") + "\n")
        status: int = arguments.run(with_config(arguments, config), settings_of(arguments, config))
    except InputError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return 2
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep the interpreter from complaining at exit.
        sys.stderr.close()
        return 0
    return status


class _Parser(argparse.ArgumentParser):
    """Refuses bad flags in the one line that every other bad input gets."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn, as this does
        sys.stderr.write(printable(f"error: arguments: {' '.join(sys.argv[1:]) or '(none)'}: {message}") + "\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpu-extender", description="kube-scheduler extender for shared GPUs")
    parser.add_argument("--version", action="version", version=f"gpu-extender {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text, add in (
        ("serve", "run the extender", _add_serve),
        ("account", "what a pod holds", _add_account),
        ("explain", "which nodes take a pod, and why not", _add_explain),
        ("simulate", "replay a workload and report packing", _add_simulate),
        ("verify", "recompute all usage and list what is wrong", _add_verify),
        ("webhooks", "print the webhook configurations", _add_webhooks),
        ("certs", "make or renew the webhook port's certificate", _add_certs),
        ("scheduler-config", "print kube-scheduler's configuration", _add_scheduler_config),
        ("replay", "feed a journal to a fresh cluster", _add_replay),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        add(command)
        # Behind the options of the command itself, which matter more.
        add_defaults(command)
    completion = commands.add_parser("completion", help="print a script that completes this command")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
    completion.set_defaults(run=lambda arguments, _settings: _completion(arguments.shell))
    add_defaults(completion)
    return parser


def _completion(shell: str) -> int:
    import shtab

    sys.stdout.write(shtab.complete(_parser(), shell) + "\n")
    return 0


def _add_serve(parser: argparse.ArgumentParser) -> None:
    server = ServerSettings()
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="FILE", help="cluster dump, repeatable; default: an example"
    )
    parser.add_argument("--bind-address", default=server.bind_address, help=f"default: {server.bind_address}")
    parser.add_argument("--port", type=_port, default=server.port, help=f"default: {server.port}; 0: any that is free")
    _add_logs(parser)
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="let requests replace and delete pods that came from --cluster files",
    )
    _add_live(parser)
    serve.add_metrics(parser)
    _add_webhooks_port(parser, server)
    _add_admission(parser)
    parser.set_defaults(run=serve.run)


def _add_live(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("live cluster")
    group.add_argument("--kubeconfig", type=path, metavar="FILE", help="follow the API server of this kubeconfig")
    group.add_argument("--in-cluster", action="store_true", help="follow the API server by the pod's service account")
    group.add_argument("--lock-mode", choices=["hami", "none"], default="hami", help="node lock for HAMi's plugin")
    group.add_argument("--http-timeout", type=_seconds, default=10.0, metavar="SECONDS", help="as in the stanza")
    group.add_argument(
        "--claims",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep room where pods that passed filter will probably go; default: on",
    )
    group.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while this replica holds the Lease; default: on",
    )
    group.add_argument("--follow-lease", action="store_true", help="lead when this host's kube-scheduler does")
    group.add_argument(
        "--lease-namespace", type=_namespace, default="kube-system", metavar="NAME", help="default: kube-system"
    )
    group.add_argument(
        "--lease-name", type=_name, metavar="NAME", help="default: gpu-extender; with --follow-lease: kube-scheduler"
    )
    group.add_argument("--lease-duration", type=_seconds, default=6.0, metavar="SECONDS", help="default: 6")
    group.add_argument(
        "--lease-retry", type=_seconds, default=2.0, metavar="SECONDS", help="between two renewals; default: 2"
    )
    group.add_argument(
        "--predecessor-lock",
        type=path,
        metavar="FILE",
        help="in the pod's own volume: shows that the process before has ended, so that nobody waits for its lease",
    )
    group.add_argument(
        "--shutdown-delay",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="not ready for so long before connections are closed; default: 0",
    )
    group.add_argument("--journal", metavar="FILE", help="append every call and event, for `replay`")
    _add_preemption(parser)


def _add_preemption(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("preemption on a live cluster")
    group.add_argument(
        "--preemption",
        choices=["verb", "evict"],
        default="verb",
        help="verb: only say whom kube-scheduler should evict; evict: where it never asks, evict; default: verb",
    )
    group.add_argument(
        "--preemption-timeout",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="after which a preemption that has not helped is given up; default: 300",
    )
    group.add_argument(
        "--preemption-evictions-per-minute",
        type=natural,
        default=30,
        metavar="N",
        help="at most so many evictions in any minute; default: 30",
    )
    group.add_argument(
        "--preemption-stop-file",
        type=path,
        metavar="FILE",
        help="nobody is evicted while this file exists",
    )


def _add_webhooks_port(parser: argparse.ArgumentParser, server: ServerSettings) -> None:
    group = parser.add_argument_group("webhook port, served by TLS if there is a certificate; clients of all ports")
    group.add_argument("--tls-cert-file", type=path, metavar="FILE", help="PEM; read again when it changes")
    group.add_argument("--tls-private-key-file", type=path, metavar="FILE", help="PEM")
    group.add_argument(
        "--webhook-bind-address",
        default=server.webhook_bind_address,
        help=f"default: {server.webhook_bind_address}",
    )
    group.add_argument(
        "--webhook-port", type=_port, default=server.webhook_port, help=f"default: {server.webhook_port}"
    )
    group.add_argument(
        "--webhook-client-ca", type=path, metavar="FILE", help="PEM; let in API servers with a certificate of it only"
    )
    group.add_argument(
        "--verbs-client-ca", type=path, metavar="FILE", help="PEM; verbs by TLS, for clients with a certificate of it"
    )
    group.add_argument(
        "--api-bind-address", default=server.api_bind_address, help="where the port of the lists listens"
    )
    group.add_argument(
        "--api-port",
        type=_port,
        metavar="PORT",
        help="a port for the page, /api/v1 and /metrics alone; off loopback by TLS, for holders of a bearer token",
    )


def _add_admission(parser: argparse.ArgumentParser) -> None:
    defaults = AdmissionSettings()
    group = parser.add_argument_group("admission")
    group.add_argument(
        "--scheduler-name",
        type=_name,
        default=defaults.scheduler_name,
        metavar="NAME",
        help="given to pods with a share",
    )
    group.add_argument(
        "--other-schedulers",
        choices=[each.value for each in OtherScheduler],
        default=defaults.other_scheduler.value,
        help="what becomes of pods with a share that name another scheduler",
    )
    group.add_argument(
        "--replace-default-scheduler",
        action=argparse.BooleanOptionalAction,
        default=defaults.replace_default_scheduler,
        help="take default-scheduler for no scheduler",
    )
    group.add_argument(
        "--default-gpu-count",
        type=natural,
        metavar="N",
        help=f"cards of a container that asks for memory or cores only; default {defaults.default_count}, 0: denied",
    )
    group.add_argument(
        "--privileged",
        choices=[each.value for each in Privileged],
        default=defaults.privileged.value,
        help="pods with a share and a privileged container; exclusive: only whole cards",
    )
    group.add_argument(
        "--near-miss",
        choices=[each.value for each in NearMiss],
        default=defaults.near_miss.value,
        help="what becomes of names that nearly are a resource's",
    )
    group.add_argument(
        "--runtime-class-name", default=defaults.runtime_class, metavar="NAME", help="given to pods with a share"
    )
    _add_trusted_account(group)


def _add_account(parser: argparse.ArgumentParser) -> None:
    _add_pods(parser)
    parser.set_defaults(run=account.run)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("pod", nargs="?", metavar="POD", help="name of a pod of the cluster")
    which.add_argument(
        "-f", "--filename", metavar="FILE", help='Pods, or workloads with a pod template; "-" for standard input'
    )
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAME", help="of the pod that is named; default: default"
    )
    add_sources(parser)
    _add_output(parser)
    parser.set_defaults(run=explain.run)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("--problems", action="store_true", help="problems only, no cards")
    _add_output(parser)
    parser.set_defaults(run=verify.run)


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.description = simulate.__doc__
    parser.add_argument("--trace-dir", type=path, metavar="DIR", help="openb CSV files: nodes and pods")
    parser.add_argument("--trace", default="default", metavar="NAME", help="of openb_pod_list_NAME.csv")
    parser.add_argument("--cluster", action="append", metavar="FILE", help="cluster dump, repeatable: nodes, and pods")
    parser.add_argument("-f", "--filename", metavar="FILE", help="Pod manifests in place of the dump's or trace's pods")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="repeatable")
    parser.add_argument("--seed", action="append", type=natural, metavar="N", help="repeatable; default: 42")
    parser.add_argument("--demand", type=_positive, default=130, metavar="PERCENT", help="of all cards; default: 130")
    parser.add_argument("--plot", type=path, metavar="BASE", help="write BASE.svg and BASE.png")
    _add_output(parser)
    parser.set_defaults(run=simulate.run_command)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journal_file", metavar="FILE", help="written by serve --journal")
    _add_output(parser)
    parser.set_defaults(run=replay.run)


def _add_webhooks(parser: argparse.ArgumentParser) -> None:
    target = Target()
    parser.add_argument("--namespace", type=_namespace, default=target.namespace, help="the extender's own")
    parser.add_argument("--service", type=_name, default=target.service, metavar="NAME", help="of the webhook port")
    parser.add_argument("--url", type=_https, metavar="URL", help="https://HOST:PORT, instead of the service")
    ca = parser.add_mutually_exclusive_group()
    ca.add_argument("--ca-file", type=path, metavar="FILE", help="PEM, written into caBundle")
    ca.add_argument("--cert-manager", type=_name, metavar="CERTIFICATE", help="let cert-manager write caBundle")
    _add_trusted_account(parser)
    parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml", help="format; default: yaml")
    parser.set_defaults(run=webhooks.run)


def _add_scheduler_config(parser: argparse.ArgumentParser) -> None:
    parser.description = scheduler_config.__doc__
    parser.add_argument(
        "--scheduler-name",
        type=_name,
        default=AdmissionSettings().scheduler_name,
        metavar="NAME",
        help="of the profile",
    )
    parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml", help="format; default: yaml")
    parser.set_defaults(run=scheduler_config.run)


def _add_certs(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--directory", type=path, metavar="DIR", help="write tls.crt, tls.key and ca.crt there")
    where.add_argument("--secret", metavar="NAMESPACE/NAME", help="write them into this Secret")
    parser.add_argument(
        "--host", action="append", type=_host, metavar="HOST", help="DNS name or IP address of the webhooks, repeatable"
    )
    parser.add_argument(
        "--webhook-configuration",
        action="append",
        type=_name,
        metavar="NAME",
        help="write caBundle into the webhook configurations of this name, repeatable; default: gpu-extender",
    )
    parser.add_argument("--kubeconfig", type=path, metavar="FILE", help="of the API server that holds them")
    parser.add_argument("--in-cluster", action="store_true", help="reach it as the pod's service account")
    parser.add_argument("--days", type=_days, default=365, help="how long a certificate lasts")
    parser.add_argument(
        "--renew-before-days", type=natural, default=120, metavar="DAYS", help="renew what ends sooner; default: 120"
    )
    _add_logs(parser)
    _add_output(parser)
    parser.set_defaults(run=certs.run)


def _add_trusted_account(parser: argparse._ActionsContainer) -> None:
    accounts = ", ".join(sorted(AdmissionSettings().trusted_accounts))
    text = f"may write the scheduler's annotations, repeatable; default: {accounts}"
    parser.add_argument("--trusted-account", action="append", type=_account, metavar="USER", help=text)


def _add_pods(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE", help='Pods, or workloads; "-" for standard input'
    )
    _add_output(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help="of the lines on standard error")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="the least that is logged")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="format; default: text")


def _name(text: str) -> str:
    if why_no_subdomain(text):
        message = f"{text or '(empty)'}: must be a DNS subdomain, such as gpu-scheduler"
        raise argparse.ArgumentTypeError(message)
    return text


def _namespace(text: str) -> str:
    why = why_no_label(text)
    if why:
        raise argparse.ArgumentTypeError(f"{text or '(empty)'}: {why}")
    return text


def _account(text: str) -> str:
    # Accounts become part of an expression, where a quote would end the text.
    if not text or any(character in "'\\" or not character.isprintable() for character in text):
        message = f"{text or '(empty)'}: must be a user's name without quotes and backslashes"
        raise argparse.ArgumentTypeError(message)
    return text


def _host(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return _name(text.lower())


def _https(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
        message = f"{text or '(empty)'}: must be https://HOST:PORT"
        raise argparse.ArgumentTypeError(message)
    return text


def _days(text: str) -> int:
    days = natural(text)
    if not 1 <= days <= 36_500:  # noqa: PLR2004 - a century
        message = f"{text}: must be days from 1 to 36500"
        raise argparse.ArgumentTypeError(message)
    return days


def _positive(text: str) -> int:
    number = natural(text)
    if not 0 < number <= 1000:  # noqa: PLR2004 - ten times all cards
        message = f"{text}: must be from 1 to 1000"
        raise argparse.ArgumentTypeError(message)
    return number


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
    port = natural(text)
    if port > 65_535:  # noqa: PLR2004 - the last TCP port
        message = f"{text}: must be a port from 0 to 65535"
        raise argparse.ArgumentTypeError(message)
    return port
