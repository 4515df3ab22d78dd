"""The words and weights of a pod's policies, and which cards it accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.holdings import DeviceUse
from accounting.policy import (
    CardKey,
    CardPolicy,
    NodePolicy,
    Policies,
    Weights,
    card_keys,
    parse_card_policy,
    parse_node_policy,
    parse_weights,
)
from accounting.selection import Selection, parse_bool, parse_list, parse_types, type_tokens
from accounting.status import Code, Invalid
from tests.accounting.case_builders import Cluster, card, chosen, holder, memory, node, pod
from tests.builders import make_pod

HIGH_LOAD, LOW_LOAD, HIGH_NUMA = CardKey.HIGH_LOAD, CardKey.LOW_LOAD, CardKey.HIGH_NUMA
LOW_NUMA, FEW_SLOTS, HIGH_INDEX = CardKey.LOW_NUMA, CardKey.FEW_SLOTS, CardKey.HIGH_INDEX
FIELD = "annotations[hami.io/device-scoring-weights]"


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, policy",
    [
        ("spread", NodePolicy.SPREAD),
        (" spread ", NodePolicy.SPREAD),
        ("binpack", NodePolicy.BINPACK),
        ("Spread", NodePolicy.BINPACK),
        ("", NodePolicy.BINPACK),
        ("anything", NodePolicy.BINPACK),
    ],
)
def test_a_node_policy(text: str, policy: NodePolicy) -> None:
    assert parse_node_policy(text) is policy


@pytest.mark.parametrize(
    "text, policy",
    [
        ("binpack", CardPolicy((HIGH_LOAD,))),
        ("spread", CardPolicy((LOW_LOAD,))),
        (" spread ", CardPolicy((LOW_LOAD,))),
        ("", CardPolicy((LOW_LOAD,))),
        ("unknown", CardPolicy((LOW_LOAD,))),
        ("Binpack", CardPolicy((LOW_LOAD,))),
        ("topology-aware", CardPolicy((LOW_LOAD,), linked=True)),
        ("mutex", CardPolicy((FEW_SLOTS,), mutex=True)),
        ("numa", CardPolicy((HIGH_NUMA,), chained=True)),
        ("binpack,numa", CardPolicy((HIGH_LOAD, HIGH_NUMA), chained=True)),
        (" numa , spread ", CardPolicy((HIGH_NUMA, LOW_LOAD), chained=True)),
        ("mutex,binpack", CardPolicy((HIGH_LOAD,), mutex=True, chained=True)),
        ("mutex,topology-aware", CardPolicy((LOW_LOAD,), mutex=True, chained=True, linked=True)),
        ("unknown,binpack", CardPolicy((HIGH_LOAD,), chained=True)),
        (",", CardPolicy((LOW_LOAD,), chained=True)),
    ],
)
def test_a_card_policy(text: str, policy: CardPolicy) -> None:
    assert parse_card_policy(text) == policy


@pytest.mark.parametrize(
    "text, free, bound",
    [
        ("binpack", (HIGH_LOAD,), (LOW_NUMA, HIGH_LOAD)),
        ("spread", (LOW_LOAD,), (HIGH_NUMA, LOW_LOAD)),
        ("mutex", (FEW_SLOTS,), (FEW_SLOTS,)),
        ("numa", (HIGH_NUMA, HIGH_INDEX), (HIGH_NUMA, HIGH_INDEX)),
        ("binpack,spread", (HIGH_LOAD, LOW_LOAD, HIGH_INDEX), (HIGH_NUMA, HIGH_LOAD, LOW_LOAD, HIGH_INDEX)),
        ("binpack,numa", (HIGH_LOAD, HIGH_NUMA, HIGH_INDEX), (HIGH_NUMA, HIGH_LOAD, HIGH_INDEX)),
        ("numa,binpack", (HIGH_NUMA, HIGH_LOAD, HIGH_INDEX), (HIGH_NUMA, HIGH_LOAD, HIGH_INDEX)),
    ],
)
def test_the_keys_of_a_policy_alone_and_under_numa_bind(
    text: str, free: tuple[CardKey, ...], bound: tuple[CardKey, ...]
) -> None:
    assert card_keys(parse_card_policy(text), numa_bind=False) == free
    assert card_keys(parse_card_policy(text), numa_bind=True) == bound


def test_the_mutex_policy_asks_for_an_unused_card_and_keeps_nobody_out_later() -> None:
    notes = {"hami.io/gpu-scheduler-policy": "mutex"}
    cluster = Cluster(node("n", card("A")))
    alone = pod(memory("app", 10), name="alone", annotations=notes)
    cluster.bind(alone, "n")
    assert cluster.refusal(pod(memory("app", 10), name="plain"), "n") is None
    assert cluster.refusal(pod(memory("app", 10), name="second", annotations=notes), "n") is Code.EXCLUSIVE_CONFLICT


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, weights",
    [
        ("slot=1,core=1,memory=1", Weights()),
        ("slot=1,core=2,memory=3", Weights(1, 2, 3)),
        ("memory=3,slot=0,core=0", Weights(0, 0, 3)),
        (" slot = 1 , core= 1,memory =3 ", Weights(1, 1, 3)),
        ("slot=+1,core=01,memory=-0", Weights(1, 1, 0)),
        ("slot=2147483647,core=0,memory=0", Weights(2**31 - 1, 0, 0)),
    ],
)
def test_weights(text: str, weights: Weights) -> None:
    assert parse_weights(text, FIELD) == weights


SHAPE = "must hold slot=, core= and memory=, each once"
ALL_THREE = "must hold slot=, core= and memory=, at least one of them positive"


@pytest.mark.parametrize(
    "text, why",
    [
        ("", SHAPE),
        ("slot", SHAPE),
        ("slot=1,core=1,memory=1,", SHAPE),
        ("slot=1,core=1,memory=1,slot=1", SHAPE),
        ("slot=1,core=1,disk=1", SHAPE),
        ("Slot=1,core=1,memory=1", SHAPE),
        ("slot=1", ALL_THREE),
        ("slot=1,core=1", ALL_THREE),
        ("slot=0,core=0,memory=0", ALL_THREE),
        ("slot=,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=x,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=1.5,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=+-1,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=--1,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=1 0,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=1=1,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=\u0661,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=\u00b2,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=" + "9" * 5000 + ",core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=1,core=-1,memory=3", '"core" weight must not be negative'),
        ("slot=1,core=2147483648,memory=3", '"core" weight must not exceed 2147483647'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_weights_that_cannot_be_used(text: str, why: str) -> None:
    assert parse_weights(text, FIELD) == Invalid(FIELD, text, why)


@given(st.text(max_size=40) | st.text("slotcoremy=,0123456789+- ", max_size=40))
def test_any_other_text_is_refused_and_never_breaks(text: str) -> None:
    weights = parse_weights(text, FIELD)
    if isinstance(weights, Weights):
        assert min(weights.slot, weights.core, weights.memory) >= 0
        assert max(weights.slot, weights.core, weights.memory) > 0


def test_the_heaviest_weights_still_order_the_cards() -> None:
    heaviest = Weights(2**31 - 1, 2**31 - 1, 2**31 - 1)
    full, empty = card("full"), card("empty", index=1)
    cluster = Cluster(node("n", full, empty), pods=[holder("n", [DeviceUse("full", 9, 23_999, 99)])])
    for policy, best in (("binpack", "full"), ("spread", "empty")):
        asked = make_pod("p", [memory("app", 1)], policies=Policies(card=parse_card_policy(policy), weights=heaviest))
        assert chosen(cluster.place(asked, "n")) == [[best]]


# -- lists and booleans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, entries",
    [
        ("", ()),
        (" ", ()),
        (",", ()),
        ("a", ("a",)),
        (" a , b ", ("a", "b")),
        ("a,,b,", ("a", "b")),
        ("a b", ("a b",)),
    ],
)
def test_a_comma_list(text: str, entries: tuple[str, ...]) -> None:
    assert parse_list(text) == entries


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_a_true_boolean(text: str) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_a_false_boolean(text: str) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["", " true", "yes", "no", "on", "tRUE", "2", "01"])
def test_what_is_no_boolean(text: str) -> None:
    assert parse_bool(text) is None


# -- what a pod accepts ------------------------------------------------------------------------------------------------


def test_without_lists_every_card_is_accepted() -> None:
    anything = Selection()
    assert anything.accepts_uuid("GPU-a")
    assert anything.accepts_type("")
    assert anything.accepts_mode("hami-core")
    assert not anything.limits_types
    assert not anything.limits_uuids


@pytest.mark.parametrize(
    "use, nouse, accepted",
    [
        ({"GPU-a"}, (), {"GPU-a"}),
        ((), {"GPU-a"}, {"GPU-b", "gpu-a"}),
        ({"GPU-a", "GPU-b"}, {"GPU-a"}, {"GPU-b"}),
        ({"GPU-a"}, {"GPU-a"}, set()),
        ({"elsewhere"}, (), set()),
    ],
)
def test_uuids_match_whole_and_avoiding_wins(use: set[str], nouse: set[str], accepted: set[str]) -> None:
    selection = Selection(use_uuids=frozenset(use), nouse_uuids=frozenset(nouse))
    assert selection.limits_uuids
    assert {uuid for uuid in ("GPU-a", "GPU-b", "gpu-a") if selection.accepts_uuid(uuid)} == accepted


@pytest.mark.parametrize(
    "modes, mode, accepted",
    [
        ("", "hami-core", True),
        ("", "mps", True),
        ("", "", True),
        ("hami-core", "hami-core", True),
        ("hami-core", "mps", False),
        ("hami-core", "", True),
        ("mps,hami-core", "hami-core", True),
        ("hami", "hami-core", False),
        # Cards that the hardware divides take nothing, whatever the pod says.
        ("", "mig", False),
        ("mig", "mig", False),
        ("mig,hami-core", "hami-core", True),
    ],
)
def test_a_mode_is_looked_for_in_the_pods_text(modes: str, mode: str, *, accepted: bool) -> None:
    assert Selection(modes=modes).accepts_mode(mode) == accepted
    cluster = Cluster(node("n", card("A", mode=mode)))
    asked = pod(memory("app", 1), annotations={"nvidia.com/vgpu-mode": modes})
    assert cluster.refusal(asked, "n") is (None if accepted else Code.MODE_MISMATCH)


def test_a_model_splits_into_tokens() -> None:
    assert type_tokens("NVIDIA A100-SXM4-80GB") == ("nvidia", "a100", "sxm4", "80gb")
    assert type_tokens("NVIDIA-Tesla V100-PCIE-32GB") == ("nvidia", "tesla", "v100", "pcie", "32gb")
    assert type_tokens(" - ") == ()


def test_an_entry_without_tokens_matches_no_model_and_lifts_no_limit() -> None:
    assert parse_types("A100, ,***") == (("a100",), ())
    assert Selection(use_types=parse_types("***")).limits_types
    assert not Selection(use_types=parse_types("***")).accepts_type("NVIDIA A100")
    assert Selection(nouse_types=parse_types("***")).accepts_type("NVIDIA A100")
