"""At the end of a run whose method routes queries: fetch and keep what it takes to answer them."""

from __future__ import annotations

from fedsecure.errors import ReleaseLogError, RemoteProtocolError, StoreError, WireError
from fedsecure.method import Cancelled, RoutedMethod
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.link.broadcasts import check_announced, read_broadcast
from fedsecure_node.link.connect import Link
from fedsecure_node.plans.institution import PolicyUnusable, PolicyWatch
from fedsecure_node.progress import Reporter
from fedsecure_node.store.store import Store, now_ms
from fedsecure_node.work import BuildMethod, as_error

__all__ = ["ServingKeeper"]

#: How often fetching may fail before a run ends without answering queries.
TRIES = 5
_WHAT = "parameters to answer queries with"


class ServingKeeper:
    """Keeps the shared parameters of runs that completed."""

    def __init__(self, store: Store, reporter: Reporter, *, watch: PolicyWatch, build_method: BuildMethod) -> None:
        self._store = store
        self._reporter = reporter
        self._watch = watch
        self._build = build_method
        self._tries: dict[str, int] = {}
        self._told = ""

    def keep(self, ended: pb.Ended, link: Link) -> str | None:
        """Fetch, check and keep what a completed run is served with. A run counts as over only after this, so that a
        crash in between fetches again.

        Returns ``""`` once it is kept, or there is nothing to keep; the reason for which it cannot be; ``None`` while
        the policy cannot be read: ask again. Raises ``WireError`` when fetching failed, ``TRIES`` times at most.
        """
        if not ended.serving_digest or self._store.serving.find(ended.plan_digest) is not None:
            return ""
        try:
            size = self._fetch(ended, link)
        except PolicyUnusable as fault:
            if self._told != str(fault):
                self._told = str(fault)
                self._reporter.say("still", f"{fault}; the node holds still: {_WHAT} are not fetched")
            return None
        except (Cancelled, StoreError, ReleaseLogError):
            raise
        except Exception as error:
            tries = self._tries[ended.plan_digest] = self._tries.get(ended.plan_digest, 0) + 1
            if isinstance(error, WireError) and tries < TRIES:
                raise
            return f"answers no queries: {as_error(error)}"
        self._reporter.say(
            "kept", f"plan {ended.plan_digest[:12]}: {size} bytes kept to answer queries with", plan=ended.plan_digest
        )
        return ""

    def _fetch(self, ended: pb.Ended, link: Link) -> int:
        method = self._build(self._store.plans.get(ended.plan_digest).plan())
        if not isinstance(method, RoutedMethod):
            raise RemoteProtocolError(f"the coordinator offers {_WHAT}, but the plan's method routes none")
        policy = self._watch.read().policy
        schema = method.serving_schema()
        check_announced(ended.serving_bytes, schema, policy, _WHAT)
        try:
            data = link.client.download(ended.serving_digest, ended.serving_bytes)
        except RemoteProtocolError as error:  # the coordinator may have its trouble, too: the run is long over
            raise WireError(f"{_WHAT}: {error}", hint="it is tried again") from None
        read_broadcast(data, ended.serving_digest, schema, policy, _WHAT)
        self._store.serving.keep(ended.plan_digest, data, now_ms())
        return len(data)
