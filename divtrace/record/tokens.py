"""Privacy of token ids: plain, replaced by keyed hashes, or left out.

Token ids are the prompt and the answer. A keyed hash keeps what divtrace needs, equality between ranks, and hides the
rest from whoever lacks the key. The key is shared by all ranks of a run and never written; the meta carries a
fingerprint of it, so that ranks with different keys are not compared on tokens.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from divtrace.record.settings import Settings

TOKEN_FIELDS = ("draft_root", "draft_tokens", "target_tokens", "bonus", "out_tokens")
LEAST_KEY_BYTES = 16
_MOST_REMEMBERED = 1 << 20


def is_token_key(name: str) -> bool:
    """Whether a key of `extra` holds token ids, by its name: `control.sampled_tokens`, `info.input_ids`."""
    last = name.rpartition(".")[2]
    return last.endswith(("_tokens", "_token", "_ids", "_id", "bonus")) or last in ("tokens", "token", "ids")


class TokenPrivacy:
    """Rewrites the token ids of events as the settings demand."""

    def __init__(self, mode: str, key: bytes | None = None) -> None:
        self.mode = mode
        self.problem: str | None = None
        if mode == "hash" and (key is None or len(key) < LEAST_KEY_BYTES):
            self.problem = (
                f"DIVTRACE_TOKENS=hash needs one key of at least {LEAST_KEY_BYTES} bytes, the same on all ranks, in "
                "DIVTRACE_TOKENS_KEY or DIVTRACE_TOKENS_KEY_FILE; token ids are left out"
            )
            self.mode = "off"
        self._key = key or b""
        self._known: dict[int, int] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> TokenPrivacy:
        """The privacy that the settings ask for; a key file that cannot be read counts as no key."""
        key = settings.token_key.encode() if settings.token_key else None
        if key is None and settings.token_key_file and settings.token_mode == "hash":
            try:
                with open(settings.token_key_file, "rb") as file:
                    key = file.read().strip()
            except OSError:
                key = None
        return cls(settings.token_mode, key)

    def meta(self) -> dict[str, str] | None:
        """What the meta record says: the mode, and the fingerprint of the key; None for plain token ids."""
        if self.mode == "plain":
            return None
        if self.mode == "off":
            return {"mode": "off"}
        return {"mode": "hash", "key": _digest(self._key, b"divtrace fingerprint", b"fingerprint", 8).hex()}

    def hashed(self, token: int) -> int:
        """The hash of one token id, from 0 to 2^63 - 1; negative numbers mark padding and stay."""
        if token < 0:
            return token
        known = self._known.get(token)
        if known is None:
            text = b"%d" % token
            known = int.from_bytes(_digest(self._key, text, b"token", 8), "big") >> 1
            if len(self._known) < _MOST_REMEMBERED:
                self._known[token] = known
        return known

    def apply(self, event: dict[str, Any]) -> None:
        """Rewrites one event in place. Lists are replaced, never changed: they may be the caller's."""
        if self.mode == "plain":
            return
        for name in TOKEN_FIELDS:
            if name in event:
                self._rewrite(event, name)
        extra = event.get("extra")
        if isinstance(extra, dict):
            event["extra"] = self._apply_by_name(extra)

    def _apply_by_name(self, values: dict[Any, Any]) -> dict[Any, Any]:
        rewritten = dict(values)
        for name, value in values.items():
            if is_token_key(str(name)):
                self._rewrite(rewritten, name)
            elif isinstance(value, dict):
                rewritten[name] = self._apply_by_name(value)
        return rewritten

    def _rewrite(self, holder: dict[Any, Any], name: Any) -> None:
        if self.mode == "off":
            del holder[name]
            return
        value = holder[name]
        if type(value) is int:
            holder[name] = self.hashed(value)
        elif isinstance(value, (list, tuple)) and all(type(token) is int for token in value):
            holder[name] = [self.hashed(token) for token in value]
        elif value is not None:
            # What is no token id after all cannot be hashed, and could be the prompt in another form.
            del holder[name]


def _digest(key: bytes, text: bytes, purpose: bytes, size: int) -> bytes:
    from hashlib import blake2b

    # A key may be longer than the 64 bytes that BLAKE2b takes.
    return blake2b(text, digest_size=size, key=blake2b(key).digest(), person=purpose).digest()
