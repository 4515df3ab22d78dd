"""The command line: the commands.

It must not do the work; each command is a module of `commands`, which also has its options. Only the module of the
command that is asked for is loaded: `account` must not wait for the Kubernetes client. Invariant: exit status 0 means
answered, 1 that verify found problems or explain found no node, 2 bad input, with nothing on standard output and one
line on standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from extender import __version__
from extender.commands import defaults
from extender.commands.defaults import settings_of, with_config
from extender.commands.vendor_config import VendorConfig, read_vendor_config
from extender.convert import InputError
from extender.printable import printable


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given[0] if given else "").parse_args(given)
    try:
        config = VendorConfig() if arguments.vendor_config is None else read_vendor_config(arguments.vendor_config)
        for ignored in config.ignored:
            sys.stderr.write(printable(f"warning: --vendor-config: {arguments.vendor_config}: {ignored}") + "\n")
        status: int = arguments.run(with_config(arguments, config), settings_of(arguments, config))
    except InputError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return 2
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; keep the interpreter from complaining at exit.
        sys.stderr.close()
        return 0
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that reports bad flags in one line, like every other bad input."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn, as this does
        sys.stderr.write(printable(f"error: arguments: {' '.join(sys.argv[1:]) or '(none)'}: {message}") + "\n")
        raise SystemExit(2)


#: Name, text, and what is shown of the options that most commands share.
_COMMANDS = (
    ("serve", "run the extender", defaults.ALL),
    ("account", "what a pod holds", defaults.REQUESTS | defaults.RESOURCE_NAMES),
    ("explain", "which nodes take a pod, and why not", defaults.ALL),
    ("simulate", "replay a workload and report packing", defaults.ALL - defaults.POLICIES),
    (
        "verify",
        "recompute all usage and list what is wrong",
        defaults.REQUESTS | defaults.RESOURCE_NAMES | defaults.NODES,
    ),
    ("webhooks", "print the webhook configurations", defaults.RESOURCE_NAMES),
    ("certs", "make or renew the webhook port's certificate", frozenset[str]()),
    ("scheduler-config", "print kube-scheduler's configuration", defaults.RESOURCE_NAMES),
    ("replay", "feed a journal to a fresh cluster", defaults.ALL - defaults.EXPECTED_WORKLOAD),
)
_MODULES = {"serve": "serve_options", "scheduler-config": "scheduler_config"}


def _parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line. `only`: the command whose options are needed; None: all of them."""
    parser = _Parser(prog="gpu-extender", description="kube-scheduler extender for shared GPUs")
    parser.add_argument("--version", action="version", version=f"gpu-extender {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text, shown in _COMMANDS:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if only in (None, name):
            import_module(f"extender.commands.{_MODULES.get(name, name)}").add_options(command)
            # Behind the options of the command itself, which matter more.
            defaults.add_defaults(command, shown)
    completion = commands.add_parser("completion", help="print a script that completes this command")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
    completion.set_defaults(run=lambda arguments, _settings: _completion(arguments.shell))
    defaults.add_defaults(completion, frozenset())
    return parser


def _completion(shell: str) -> int:
    import shtab

    sys.stdout.write(shtab.complete(_parser(), shell) + "\n")
    return 0
