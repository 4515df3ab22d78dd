"""Values and options of the command line that several commands share.

Why it exists: the same value must be checked in the same way, with the same message, wherever it is given. It must not
know any command. Invariant: a bad value raises `argparse.ArgumentTypeError` whose text names the value and why.
"""

import argparse
from ipaddress import ip_address
from urllib.parse import urlsplit

from extender.admission.configurations import Target
from extender.admission.settings import AdmissionSettings
from extender.logs import LEVELS
from extender.wire.names import why_no_label, why_no_subdomain

_INT32_MAX = 2**31 - 1

# -- options ----------------------------------------------------------------------------------------------------------


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add the address of the webhooks for the API server."""
    parser.add_argument(
        "--service", type=object_name, default=Target().service, metavar="NAME", help="of the webhook port"
    )
    parser.add_argument("--url", type=https_url, metavar="URL", help="https://HOST:PORT, instead of the service")


def add_launcher_account(parser: argparse._ActionsContainer) -> None:
    """Add the accounts that create the pods of VMs."""
    accounts = ", ".join(sorted(AdmissionSettings().launcher_accounts))
    text = f"creates the pods of VMs, whose budgets filter judges, repeatable; default: {accounts}"
    parser.add_argument("--launcher-account", action="append", type=account_name, metavar="USER", help=text)


def add_trusted_account(parser: argparse._ActionsContainer) -> None:
    """Add the accounts that may write the scheduler's annotations."""
    accounts = ", ".join(sorted(AdmissionSettings().trusted_accounts))
    text = f"may write the scheduler's annotations, repeatable; default: {accounts}"
    parser.add_argument("--trusted-account", action="append", type=account_name, metavar="USER", help=text)


def add_pods(parser: argparse.ArgumentParser) -> None:
    """Add a file of pods, and the format of the output."""
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE", help='Pods, or workloads; "-" for standard input'
    )
    add_output(parser)


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the format and level of logs."""
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help="of the lines on standard error")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="the least that is logged")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the format of the output."""
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="format; default: text")


# -- values -----------------------------------------------------------------------------------------------------------


def natural(text: str) -> int:
    """Read a whole number."""
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > len(str(_INT32_MAX)) or int(digits) > _INT32_MAX:
        message = f"{text or '(empty)'}: must be a whole number up to {_INT32_MAX}"
        raise argparse.ArgumentTypeError(message)
    return int(digits)


def path(text: str) -> str:
    """Read the name of a file."""
    if not text:
        message = "(empty): must be a file"
        raise argparse.ArgumentTypeError(message)
    return text


def object_name(text: str) -> str:
    """Read the name of an object: a DNS subdomain."""
    if why_no_subdomain(text):
        message = f"{text or '(empty)'}: must be a DNS subdomain, such as gpu-scheduler"
        raise argparse.ArgumentTypeError(message)
    return text


def namespace(text: str) -> str:
    """Read the name of a namespace."""
    why = why_no_label(text)
    if why:
        raise argparse.ArgumentTypeError(f"{text or '(empty)'}: {why}")
    return text


def account_name(text: str) -> str:
    """Read the name of a user of the API server."""
    # Accounts become part of an expression, where a quote would end the string.
    if not text or any(character in "'\\" or not character.isprintable() for character in text):
        message = f"{text or '(empty)'}: must be a user's name without quotes and backslashes"
        raise argparse.ArgumentTypeError(message)
    return text


def host(text: str) -> str:
    """Read a DNS name or an IP address."""
    try:
        return str(ip_address(text))
    except ValueError:
        return object_name(text.lower())


def https_url(text: str) -> str:
    """Read a URL of the form https://HOST:PORT."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
        message = f"{text or '(empty)'}: must be https://HOST:PORT"
        raise argparse.ArgumentTypeError(message)
    return text


def days(text: str) -> int:
    """Read a number of days, from 1 to 36,500."""
    number = natural(text)
    if not 1 <= number <= 36_500:  # noqa: PLR2004 - a century
        message = f"{text}: must be days from 1 to 36500"
        raise argparse.ArgumentTypeError(message)
    return number


def percent(text: str) -> int:
    """Read a percentage from 1 to 1,000."""
    number = natural(text)
    if not 0 < number <= 1000:  # noqa: PLR2004 - ten times all cards
        message = f"{text}: must be from 1 to 1000"
        raise argparse.ArgumentTypeError(message)
    return number


def seconds(text: str) -> float:
    """Read seconds, from 0 to less than a day."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 86_400:  # noqa: PLR2004 - a day; also refuses NaN
        message = f"{text}: must be seconds from 0 to a day"
        raise argparse.ArgumentTypeError(message)
    return value


def port(text: str) -> int:
    """Read a port, from 0 to 65,535."""
    number = natural(text)
    if number > 65_535:  # noqa: PLR2004 - the last TCP port
        message = f"{text}: must be a port from 0 to 65535"
        raise argparse.ArgumentTypeError(message)
    return number
