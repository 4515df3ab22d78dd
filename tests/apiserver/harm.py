"""Does to a request what the rules say: delays, refusals, broken connections, answers out of order.

It exists apart from the server so that a request without a rule pays nothing. It must not know API calls. Invariant:
after a fault `before`, nothing is done unless the request goes on; a fault `after` comes when everything is done.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.apiserver.faults import Rule
from tests.apiserver.streaming import reset

_REORDER_WAIT_SECONDS = 2.0
_REORDER_STEP_SECONDS = 0.01


class Harm:
    """Carries out rules. It keeps the answers that wait to be reordered."""

    def __init__(self) -> None:
        self._held: defaultdict[int, list[asyncio.Event]] = defaultdict(list)

    async def around(
        self, request: web.BaseRequest, rules: list[Rule], work: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Do the work with its faults before and after."""
        early = await self.before(request, rules)
        if early is not None:
            return early
        response = await work()
        for rule in rules:
            if rule.after or rule.fault == "reorder":
                response = await self._suffer(request, rule) or response
        return response

    async def before(self, request: web.BaseRequest, rules: list[Rule]) -> web.StreamResponse | None:
        """Carry out the faults before the work; returns an answer if the work is not to be done."""
        for rule in rules:
            if not rule.after and rule.fault != "reorder":
                early = await self._suffer(request, rule)
                if early is not None:
                    return early
        return None

    async def _suffer(self, request: web.BaseRequest, rule: Rule) -> web.StreamResponse | None:
        if rule.fault == "latency":
            await asyncio.sleep(rule.seconds)
        elif rule.fault == "hang":
            await asyncio.Event().wait()
        elif rule.fault == "reorder":
            await self._hold(rule)
        elif rule.fault == "reset":
            reset(request)
            return web.Response(status=500)
        elif rule.fault == "status":
            error = rule.error()
            headers = {"Content-Type": "application/json"} | error.headers()
            return web.Response(status=error.code, body=error.body(), headers=headers)
        return None

    async def _hold(self, rule: Rule) -> None:
        mine, held = asyncio.Event(), self._held[rule.id]
        held.append(mine)
        if len(held) >= rule.size:
            del self._held[rule.id]
            loop = asyncio.get_running_loop()
            for position, event in enumerate(reversed(held)):
                loop.call_later(position * _REORDER_STEP_SECONDS, event.set)
        try:
            await asyncio.wait_for(mine.wait(), _REORDER_WAIT_SECONDS)
        except TimeoutError:
            # Too few came; the wait ends.
            if mine in held:
                held.remove(mine)
