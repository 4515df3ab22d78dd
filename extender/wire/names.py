"""Kubernetes' grammar of names.

Why it exists: names of pods and nodes come from bodies, files, annotations and flags, and end up in paths of the API
server, in lock texts and in logs, so a name that no API server accepts is refused where it enters. It must not know
what has the name. Invariant: an empty answer means that the name is legal. Source:
k8s.io/apimachinery/pkg/util/validation (IsDNS1123Label, IsDNS1123Subdomain).
"""

import re

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch
#: API servers set UUIDs, kubelets hashes, and dumps may have anything: any visible characters without blanks.
_is_uid = re.compile(r"[!-~]+").fullmatch
#: Of all three at once; names that it does not match may be legal as well.
_are_short = re.compile(rf"{_LABEL} {_LABEL} [!-~]{{1,253}}").fullmatch
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253


def are_plain(namespace: str, name: str, uid: str) -> bool:
    """Whether these are certainly legal names of a namespace, an object in it and a UID; quick."""
    if len(name) > _LONGEST_LABEL or len(namespace) > _LONGEST_LABEL:
        return False
    return _are_short(f"{namespace} {name} {uid}") is not None


def why_no_subdomain(text: str) -> str:
    """Return why a text cannot name a pod, node or other object; "" if it can."""
    if len(text) <= _LONGEST_SUBDOMAIN and _is_subdomain(text):
        return ""
    form = "must be lower case letters, digits, '-' or '.', each part beginning and ending with a letter or digit"
    return _why_not(text, _LONGEST_SUBDOMAIN, form)


def why_no_label(text: str) -> str:
    """Return why a text cannot name a namespace; "" if it can."""
    if len(text) <= _LONGEST_LABEL and _is_label(text):
        return ""
    form = "must be lower case letters, digits or '-', beginning and ending with a letter or digit"
    return _why_not(text, _LONGEST_LABEL, form)


def why_no_uid(text: str) -> str:
    """Return why a text cannot be a UID; "" if it can. Kubernetes has no grammar for UIDs."""
    if len(text) <= _LONGEST_SUBDOMAIN and _is_uid(text):
        return ""
    return _why_not(text, _LONGEST_SUBDOMAIN, "must be visible ASCII characters")


def _why_not(text: str, longest: int, form: str) -> str:
    """Return why an illegal text is illegal. Every watched object comes here, so legal ones do not get this far."""
    if not text:
        return "must not be empty"
    return f"must have at most {longest} characters" if len(text) > longest else form
