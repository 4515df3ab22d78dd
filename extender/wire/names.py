"""Kubernetes' grammar of names.

Why it exists: names of pods and nodes come from bodies, files, annotations and flags, and end up in paths of the API
server, in lock texts and in logs, so a name that no API server accepts is refused where it enters. It must not know
what has the name. Invariant: an empty answer means that the name is legal. Source:
k8s.io/apimachinery/pkg/util/validation (IsDNS1123Label, IsDNS1123Subdomain).
"""

import re
from collections.abc import Callable

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch
#: API servers set UUIDs, kubelets hashes, and dumps may have anything: any visible characters without blanks.
_is_uid = re.compile(r"[!-~]+").fullmatch
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253


def why_no_subdomain(text: str) -> str:
    """Return why a text cannot name a pod, node or other object; "" if it can."""
    form = "must be lower case letters, digits, '-' or '.', each part beginning and ending with a letter or digit"
    return _why_not(text, _is_subdomain, _LONGEST_SUBDOMAIN, form)


def why_no_label(text: str) -> str:
    """Return why a text cannot name a namespace; "" if it can."""
    form = "must be lower case letters, digits or '-', beginning and ending with a letter or digit"
    return _why_not(text, _is_label, _LONGEST_LABEL, form)


def why_no_uid(text: str) -> str:
    """Return why a text cannot be a UID; "" if it can. Kubernetes has no grammar for UIDs."""
    return _why_not(text, _is_uid, _LONGEST_SUBDOMAIN, "must be visible ASCII characters")


def _why_not(text: str, matches: Callable[[str], re.Match[str] | None], longest: int, form: str) -> str:
    if not text:
        return "must not be empty"
    if len(text) > longest:
        return f"must have at most {longest} characters"
    return "" if matches(text) is not None else form
