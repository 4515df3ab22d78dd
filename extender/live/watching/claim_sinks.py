"""From watched ResourceClaims and ResourceSlices to what they hold.

It must not do I/O. Invariant: one object that does not decode changes nothing, and what is known of it stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from extender.cluster import ResourceClaims
from extender.convert import convert_claim, convert_slice
from extender.kube.reflector import Change, Taken
from extender.live.watching.naming import is_misnamed, name_of
from extender.logs import logger
from extender.wire import resource_v1
from extender.wire.shallow import read_with


class ResourceClaimSink:
    """ResourceClaims by UID."""

    def __init__(self, claims: ResourceClaims) -> None:
        self.versions: dict[str, str] = {}
        """By UID, of every claim."""
        self._claims = claims
        self._gone: list[set[str]] = []
        self._decoder = msgspec.json.Decoder(resource_v1.ResourceClaim)

    @contextmanager
    def deletions_noted(self) -> Iterator[set[str]]:
        """Collect the UIDs of claims that are deleted while the block runs."""
        gone = set[str]()
        self._gone.append(gone)
        try:
            yield gone
        finally:
            self._gone = [each for each in self._gone if each is not gone]

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one claim."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            uid = name_of(raw).uid
            logger().error("resourceclaim does not decode", uid=uid, why=str(error))
            if uid and change is Change.DELETED:
                self._remove(uid)
            return Taken(uid)
        meta = wire.metadata
        if meta is None or not meta.uid:
            logger().error("resourceclaim without a UID")
            return Taken(None)
        if is_misnamed("resourceclaim", meta):
            return Taken(meta.uid, meta.resourceVersion)
        if change is Change.DELETED:
            self._remove(meta.uid)
        else:
            self.versions[meta.uid] = meta.resourceVersion or ""
            self._claims.put(convert_claim(wire))
        return Taken(meta.uid, meta.resourceVersion)

    def replaced(self, identities: set[str]) -> None:
        """Give up every claim that a list did not name."""
        for uid in sorted((self._claims.uids() | self.versions.keys()) - identities):
            self._remove(uid)

    def _remove(self, uid: str) -> None:
        self.versions.pop(uid, None)
        for gone in self._gone:
            gone.add(uid)
        self._claims.remove(uid)


class ResourceSliceSink:
    """ResourceSlices by name."""

    def __init__(self, claims: ResourceClaims) -> None:
        self._claims = claims
        self._decoder = msgspec.json.Decoder(resource_v1.ResourceSlice)

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one slice."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            name = name_of(raw).name
            logger().error("resourceslice does not decode", slice=name, why=str(error))
            if name and change is Change.DELETED:
                self._claims.remove_slice(name)
            return Taken(name)
        meta = wire.metadata
        if meta is None or not meta.name:
            logger().error("resourceslice without a name")
            return Taken(None)
        if change is Change.DELETED:
            self._claims.remove_slice(meta.name)
        else:
            self._claims.put_slice(convert_slice(wire))
        return Taken(meta.name, meta.resourceVersion)

    def replaced(self, identities: set[str]) -> None:
        """Give up every slice that a list did not name; from now on they are known."""
        for name in sorted(self._claims.slice_names() - identities):
            self._claims.remove_slice(name)
        self._claims.know_slices()
