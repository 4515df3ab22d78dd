"""Writing to objects that tell of holds where these are.

Why it exists: what was decided must be found again by the next process, and by whoever starts the VM. It must not
decide. Invariants: a write names the UID and the version of the object that it was made for; nothing leaves that this
replica may not write any more; one object that refuses does not stop the others.
"""

import json
from http import HTTPStatus

import msgspec

from accounting.holders import Hold
from extender.cluster import Cluster
from extender.cluster.hold_sets import Name
from extender.config import HoldSource
from extender.convert import place_of
from extender.kube.client import MERGE_PATCH, Answer, Fenced, KubeClient
from extender.kube.paths import Resource, api_path, group_path
from extender.kube.reflector import Change, Sink
from extender.live.leading import Leadership
from extender.live.watching import HoldSink
from extender.logs import logger


class HoldWriter:
    """Writes for one cluster."""

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        source: HoldSource,
        sinks: tuple[HoldSink, Sink],
        leadership: Leadership,
        request_seconds: float = 5.0,
    ) -> None:
        """`sinks`: the one that knows versions, and the one that is told of what was written."""
        self.writes = 0
        self._client = client
        self._cluster = cluster
        self._source = source
        self._versions, self._told = sinks
        self._leadership = leadership
        self._request_seconds = request_seconds
        self._resource = Resource(group_path(source.group, source.version), source.plural)

    async def write_all(self) -> bool:
        """Write what is not written yet; returns whether all of it is."""
        all_written = True
        for name in self._cluster.hold_sets.unwritten():
            # Meanwhile it may have been decided anew.
            hold = self._cluster.hold_sets.decided(name)
            if hold is not None and self._leadership.may_write(self._request_seconds):
                all_written &= await self._write(name, hold)
        return all_written

    async def _write(self, name: Name, hold: Hold) -> bool:
        uid, version = self._versions.versions.get(name, ("", ""))
        body = place_of(hold, self._source)
        body.setdefault("metadata", {}).update({"uid": uid, "resourceVersion": version})
        subresource = "status" if self._source.writes_status else None
        path = api_path(self._resource, name[1], namespace=name[0], subresource=subresource)
        answer = await self._client.request(
            "PATCH",
            path,
            body=Fenced(json.dumps(body).encode(), lambda: self._leadership.may_write(0)),
            content_type=MERGE_PATCH,
            timeout_seconds=self._request_seconds,
        )
        if isinstance(answer, Answer) and answer.ok:
            self.writes += 1
            self._told.change(Change.PUT, msgspec.Raw(answer.body))
            return True
        if answer.status != HTTPStatus.CONFLICT:
            # A conflict ends by itself: the watch brings what is newer. 404 may also mean: no status subresource.
            logger().warning("hold cannot be written", hold="/".join(name), why=f"{answer.status} {answer.message}")
        return False
