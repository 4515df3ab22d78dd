"""The options of `serve`, on which all parts of the program depend.

It must not do the work; that is `serve.run`. Invariant: each option has a text, and its default is that of its setting.
"""

import argparse

from extender.admission.settings import AdmissionSettings, NearMiss, OtherScheduler, Privileged
from extender.commands import serve, usage
from extender.commands.arguments import (
    add_launcher_account,
    add_logs,
    add_trusted_account,
    namespace,
    natural,
    object_name,
    path,
    port,
    seconds,
)
from extender.config import ServerSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    server = ServerSettings()
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="FILE", help="cluster dump, repeatable; default: an example"
    )
    parser.add_argument("--bind-address", default=server.bind_address, help=f"default: {server.bind_address}")
    parser.add_argument("--port", type=port, default=server.port, help=f"default: {server.port}; 0: any that is free")
    add_logs(parser)
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="let requests replace and delete pods that came from --cluster files",
    )
    _add_live(parser)
    serve.add_metrics(parser)
    usage.add_usage(parser)
    _add_webhooks_port(parser, server)
    _add_admission(parser)
    parser.set_defaults(run=serve.run)


def _add_live(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("live cluster")
    group.add_argument("--kubeconfig", type=path, metavar="FILE", help="follow the API server of this kubeconfig")
    group.add_argument("--in-cluster", action="store_true", help="follow the API server by the pod's service account")
    group.add_argument("--lock-mode", choices=["hami", "none"], default="hami", help="node lock for HAMi's plugin")
    group.add_argument("--http-timeout", type=seconds, default=10.0, metavar="SECONDS", help="as in the stanza")
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
        "--lease-namespace", type=namespace, default="kube-system", metavar="NAME", help="default: kube-system"
    )
    group.add_argument(
        "--lease-name",
        type=object_name,
        metavar="NAME",
        help="default: gpu-extender; with --follow-lease: kube-scheduler",
    )
    group.add_argument("--lease-duration", type=seconds, default=6.0, metavar="SECONDS", help="default: 6")
    group.add_argument(
        "--lease-retry", type=seconds, default=2.0, metavar="SECONDS", help="between two renewals; default: 2"
    )
    group.add_argument(
        "--leader-label",
        action="store_true",
        help="label this pod gpu-extender.io/role=leader while it leads, for a Service of the verbs",
    )
    group.add_argument(
        "--predecessor-lock",
        type=path,
        metavar="FILE",
        help="in the pod's own volume: shows that the process before has ended, so that nobody waits for its lease",
    )
    group.add_argument(
        "--shutdown-delay",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="not ready for so long before connections are closed; default: 0",
    )
    group.add_argument(
        "--taint-held-cards",
        action="store_true",
        help="keep DRA off cards that pods with annotations hold, by a DeviceTaintRule for each (Kubernetes 1.37)",
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
        type=seconds,
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
    group.add_argument("--webhook-port", type=port, default=server.webhook_port, help=f"default: {server.webhook_port}")
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
        type=port,
        metavar="PORT",
        help="a port for the page, /api/v1 and /metrics alone; off loopback by TLS, for holders of a bearer token",
    )


def _add_admission(parser: argparse.ArgumentParser) -> None:
    defaults = AdmissionSettings()
    group = parser.add_argument_group("admission")
    group.add_argument(
        "--scheduler-name",
        type=object_name,
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
    add_trusted_account(group)
    add_launcher_account(group)
