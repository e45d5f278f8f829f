"""The thread that answers queries while the daemon's loop trains: says what is served, asks for a query, answers it.

It shares the daemon's connection, since a node that dials in twice looks like a node whose folder was copied, and the
daemon's store and log, which are made for several threads: one log in memory, so that no answer makes the loop read
the whole of it again, nor the other way round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fedsecure.crypto.certificates import last_ms
from fedsecure.crypto.keyfiles import read_public, read_secret
from fedsecure.crypto.statements import Signer
from fedsecure.errors import ConfigError, FedSecureError, PolicyError
from fedsecure.method import Cancelled
from fedsecure.prediction.keys import node_key_statement
from fedsecure.wire.credentials import TlsFiles
from fedsecure_node.link.connect import Link
from fedsecure_node.link.queries import QueryClient
from fedsecure_node.link.transfer import Backoff
from fedsecure_node.plans.institution import PolicyWatch
from fedsecure_node.progress import Reporter
from fedsecure_node.serving.answering import Answerer
from fedsecure_node.serving.models import Models
from fedsecure_node.store.store import now_ms

__all__ = ["QueryDesk"]

#: A statement about the key is good for so long, less than the day that analysts accept, or to the end of the node's
#: certificate, and made anew in time (milliseconds).
KEY_LIFE_MS = 23 * 3_600_000
RENEW_MS = 12 * 3_600_000
#: Longest wait of one long poll (milliseconds): a policy that allows somebody else is announced within it.
WAIT_MS = 5_000
#: How often it is looked whether there is anything to serve (seconds).
LOOK_S = 1.0
#: How long a stop waits for an answer in the making (seconds); after it, the process may end.
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class _Announced:
    """What the coordinator was last told, over which connection, signed under which certificate, and when."""

    link: Link
    digests: tuple[str, ...]
    certificate: bytes
    at_ms: int

    def holds(self, link: Link, digests: tuple[str, ...], certificate: bytes, now_ms: int) -> bool:
        """Whether there is nothing to tell: the statement about the key runs out at the earliest with the certificate,
        and a new certificate needs a new statement."""
        same = self.link is link and self.digests == digests and self.certificate == certificate
        return same and 0 <= now_ms - self.at_ms < KEY_LIFE_MS - RENEW_MS


class QueryDesk:
    """Starts with the daemon and ends with it."""

    def __init__(
        self,
        answerer: Answerer,
        models: Models,
        reporter: Reporter,
        *,
        node: str,
        federation: str,
        files: Callable[[], TlsFiles],
        watch: PolicyWatch,
    ) -> None:
        self._answerer = answerer
        self._models = models
        self._reporter = reporter
        self._node = node
        self._federation = federation
        self._files = files
        self._watch = watch
        self._stop = threading.Event()
        self._backoff = Backoff(self._stop)
        self._link: Link | None = None
        self._announced: _Announced | None = None
        self._fault: BaseException | None = None
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="queries", daemon=True)

    def start(self) -> None:
        """Begin; nothing happens before there is a connection."""
        self._thread.start()

    def use(self, link: Link | None) -> None:
        """The daemon's connection now; ``None`` when it broke."""
        self._link = link

    def check(self) -> None:
        """Raise what ended the thread, if anything did: a log or a store that cannot be written, which is the daemon's
        end, too."""
        if self._fault is not None:
            raise self._fault

    @property
    def failed(self) -> bool:
        """Whether ``check`` would raise."""
        return self._fault is not None

    def close(self) -> None:
        """Stop within seconds; a query in the making is still answered if that takes no longer."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            self._answerer.settle(everything=True)  # what a process that was killed had counted
            with suppress(Cancelled):
                while not self._stop.is_set():
                    self._turn()
            self._answerer.settle(everything=True)
        except BaseException as fault:
            self._fault = fault

    def _turn(self) -> None:
        self._answerer.settle()
        link, served = self._link, self._served()
        if link is None or not (served or self._is_known(link)):
            self._stop.wait(LOOK_S)
            return
        try:
            client = link.client.queries(self._stop)
            self._announce(client, link, served)
            query = (
                client.next_query(min(WAIT_MS, link.max_wait_ms), lambda: self._link is not link) if served else None
            )
        except Cancelled:
            raise
        except FedSecureError as error:
            self._lost(link, error)
            return
        self._backoff.reset()
        if query is None:
            return
        answer = self._answerer.answer(query, link)
        if answer is None:
            return
        try:
            client.answer(answer)
        except Cancelled:
            raise
        except FedSecureError as error:
            self._once(f"an answer was not taken: {error}")

    def _lost(self, link: Link, error: FedSecureError) -> None:
        """Say what went wrong with the coordinator, and try again after a while. The daemon's loop says it as well when
        it is the line, and makes a new connection."""
        self._announced = None
        if self._link is link and not self._stop.is_set():
            self._once(f"no queries are answered now: {error}")
        self._backoff.wait()

    def _served(self) -> tuple[str, ...]:
        """Runs that are answered for under the policy as it is now; none while there is no usable one."""
        try:
            return tuple(self._models.served(self._watch.read().policy))
        except (ConfigError, PolicyError):
            return ()

    def _is_known(self, link: Link) -> bool:
        """Whether the coordinator still believes that this node serves something."""
        return self._announced is not None and self._announced.link is link and bool(self._announced.digests)

    def _announce(self, client: QueryClient, link: Link, served: tuple[str, ...]) -> None:
        """Tell the coordinator what is served, when that, the connection or the node's certificate changed, or the
        key's statement is to be renewed."""
        now, files = now_ms() + link.clock_ms, self._files()
        known, certificate = self._announced, read_public(files.cert, "certificate")
        if known and known.holds(link, served, certificate, now):
            return
        signer = Signer(read_secret(files.key, "TLS key"), certificate)
        until = min(now + KEY_LIFE_MS, last_ms(certificate))
        client.serve(served, node_key_statement(signer, self._federation, self._node, self._answerer.public_key, until))
        if known is None or known.digests != served:
            runs = ", ".join(digest[:12] for digest in served)
            self._reporter.say(
                "serving", f"queries are answered about: {runs}" if runs else "no queries are answered any more"
            )
        self._announced = _Announced(link, served, certificate, now)
        self._told = ""

    def _once(self, text: str) -> None:
        if self._told != text:
            self._told = text
            self._reporter.say("queries", text)
