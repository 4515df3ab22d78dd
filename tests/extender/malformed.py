"""Bodies made up from a seed, for every verb and webhook, and a check of the answers.

It exists so that the tests and the long run send the same kinds. It must not know how a verb reads. Invariant: a body
follows from its seed and its verb.
"""

import json
from collections.abc import Iterator
from random import Random

from tests.extender.objects import pod
from tests.extender.serving import Answer, asked, binding
from tests.fuzz.mutation import changed, damaged
from tests.fuzz.of_bodies import body_seeds, review_seeds

VERBS = ("filter", "prioritize", "bind", "preempt", "filter-dryrun", "mutate", "validate")
_KEYS = {
    "filter": {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"},
    "filter-dryrun": {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"},
    "bind": {"Error"},
    "preempt": {"NodeNameToMetaVictims"},
    "mutate": {"apiVersion", "kind", "response"},
    "validate": {"apiVersion", "kind", "response"},
}
_BROKEN_SHARE = 0.3


def bodies(verb: str, seed: int, number: int) -> Iterator[bytes]:
    """Yield that many bodies for a verb; some are JSON with odd values, some are not JSON."""
    chance, known = Random(f"{verb} {seed}"), _known(verb)
    for _ in range(number):
        body = chance.choice(known)
        yield damaged(body, chance) if chance.random() < _BROKEN_SHARE else changed(json.loads(body), chance)


def _known(verb: str) -> list[bytes]:
    """Return valid bodies."""
    if verb in ("mutate", "validate"):
        return [data[1:] for data in review_seeds()]
    place = VERBS.index(verb)
    found = [data[1:] for data in body_seeds() if data[0] == place]
    return [*found, json.dumps(binding(pod(), "n1") if verb == "bind" else asked(pod(), "n1", "n2")).encode()]


def wrong(verb: str, answer: Answer) -> str:
    """Return what is wrong with an answer; "" if nothing is."""
    reviewed = verb in ("mutate", "validate")
    if answer.status == 400 and reviewed:
        return ""
    if answer.status != 200:
        return f"status {answer.status}"
    said = answer.json()
    if verb == "prioritize":
        right = isinstance(said, list) and all(each.keys() == {"Host", "Score"} for each in said)
        return "" if right else "no list of hosts"
    if not isinstance(said, dict) or said.keys() != _KEYS[verb]:
        return f"other keys: {said}"
    error = said["response"].get("status", {}).get("message", "") if reviewed else said.get("Error") or ""
    return f"{error}" if "internal error" in error or (not reviewed and "%" in error) else ""
