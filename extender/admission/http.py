"""The webhooks over HTTP: bodies in, AdmissionReviews out.

Why it exists: the API server reads the body of a 200; after any other status it applies the webhook's failurePolicy. It
must not decide. Invariants: a body that is not an AdmissionReview gets 400 and a line of text; a review is always
answered under its uid, with a denial if its object does not decode or a check fails by a bug.
"""

import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from extender.admission.decision import Decision, Finding, Why, denied
from extender.admission.service import Admission, Outcome
from extender.logs import logger
from extender.wire import admission_v1 as wire

Observe = Callable[[float], None]
_Judge = Callable[[wire.Request], Decision]
_MALFORMED = "MalformedReview"
_BUG = "InternalError"


def webhook_routes(
    admission: Admission, observe: Callable[[str, str], Observe], read: Callable[[web.Request], Awaitable[bytes]]
) -> list[web.RouteDef]:
    """Return the routes.

    `observe`: returns, for a webhook and a result, the function that records an answer's seconds. `read`: returns the
    body of a request.
    """
    return [
        web.post("/mutate", _handler("mutate", admission, admission.mutate, observe, read)),
        web.post("/validate", _handler("validate", admission, admission.validate, observe, read)),
    ]


def _handler(
    name: str,
    admission: Admission,
    judge: _Judge,
    observe: Callable[[str, str], Observe],
    read: Callable[[web.Request], Awaitable[bytes]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    observe_ok, observe_error = observe(name, "ok"), observe(name, "error")

    async def handle(request: web.Request) -> web.Response:
        body = await read(request)
        started = time.perf_counter()
        try:
            review = wire.decode_review(body)
        except wire.ReviewError as error:
            observe_error(time.perf_counter() - started)
            admission.counts[Outcome(name, "malformed", _MALFORMED, dry_run=False)] += 1
            logger().warning("review cannot be answered", webhook=name, why=str(error))
            return web.Response(text=f"{error}\n", status=400)
        answer, ok = answered(name, admission, judge, review)
        (observe_ok if ok else observe_error)(time.perf_counter() - started)
        return web.Response(body=answer, content_type="application/json")

    return handle


def answered(name: str, admission: Admission, judge: _Judge, review: wire.Request) -> tuple[bytes, bool]:
    """Return the answer to a review, and whether no bug occurred."""
    uid, is_bug = str(review.uid), False
    try:
        decision = judge(review)
    except wire.ObjectError as error:
        decision = denied([Finding(Why.UNREADABLE_OBJECT, str(error))])
    except Exception:  # noqa: BLE001 - the API server waits, and what was not judged must not pass
        logger().exception("webhook failed", webhook=name)
        decision, is_bug = denied([Finding(Why.UNREADABLE_OBJECT, f"internal error in {name}")]), True
    verdict = "allowed" if decision.allowed else "denied"
    why = _BUG if is_bug else decision.why.value
    admission.counts[Outcome(name, verdict, why, bool(review.dryRun))] += 1
    if decision.allowed:
        return wire.encode_allowed(uid, decision.patch, decision.warnings), True
    _log(name, review, decision)
    code, reason = (500, "InternalError") if is_bug else decision.status
    return wire.encode_denied(uid, code, reason, decision.message, decision.warnings), not is_bug


def _log(name: str, review: wire.Request, decision: Decision) -> None:
    logger().info(
        "request denied",
        webhook=name,
        namespace=review.namespace,
        name=review.name or "(generated)",
        user=review.user,
        why=decision.why.value,
        message=decision.message,
    )
