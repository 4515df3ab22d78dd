"""What the API does not show, pinned so that a change is noticed."""

from accounting.lifecycle import InitStatus, inits_over


def test_under_on_failure_a_hidden_re_run_of_the_inits_looks_like_their_end() -> None:
    """The kubelet drops status updates in which a finished init of an OnFailure or Never pod runs again.

    So the API keeps showing the first run, and the pod counts as steady while its inits run a second time.
    """
    shown = [InitStatus(succeeded=True, started_at_ns=1, finished_at_ns=2), InitStatus(True, 2, 3)]
    really = [InitStatus(succeeded=False), InitStatus(True, 2, 3)]
    assert inits_over(shown)
    assert not inits_over(really)
