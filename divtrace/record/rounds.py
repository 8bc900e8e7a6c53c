"""Rounds and attempts of requests, for engines that do not number them."""

from __future__ import annotations


class RequestRounds:
    """Where one request stands on this rank."""

    __slots__ = ("attempt", "chunk", "round")

    def __init__(self) -> None:
        self.attempt = 0
        """Retractions so far."""
        self.round = 0
        """The pass that the next step works on; 0 is the prefill."""
        self.chunk = 0
        """The part of a chunked prefill that comes next."""


class Rounds:
    """All live requests of this rank."""

    def __init__(self) -> None:
        self._requests: dict[str, RequestRounds] = {}

    def of(self, request: str) -> RequestRounds:
        """Where a request stands; a new one at its prefill."""
        found = self._requests.get(request)
        if found is None:
            found = self._requests[request] = RequestRounds()
        return found

    def retracted(self, request: str) -> None:
        """The request lost its cache and starts anew; nothing happens to one that is not known."""
        found = self._requests.get(request)
        if found is not None:
            found.attempt += 1
            found.round = 0
            found.chunk = 0

    def finished(self, request: str) -> RequestRounds | None:
        """Forgets a request; where it stood, None if it was not known."""
        return self._requests.pop(request, None)
