"""Who may listen and who may call, without gRPC: files of secrets, tokens, and addresses that others can reach."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
import string

from refluid import flags
from refluid.errors import PlaintextError, SecurityError
from refluid.log import Log

SHORTEST_TOKEN = 16  # characters; a drawn one has 43
TOKEN, TOKEN_FILE = "FLAGS_rpc_token", "FLAGS_rpc_token_file"
_VISIBLE = frozenset(string.ascii_letters + string.digits + string.punctuation)  # what a header can carry
_read: dict[str, tuple[tuple[int, ...], bytes]] = {}
_in_use: dict[str, tuple[str, ...]] = {}  # by the name of the file: the tokens that it had last
_problems: dict[str, str] = {}  # what was logged about it


def read_file(flag: str) -> bytes | None:
    """The content of the file that a flag names, read again when it changes; None if the flag is not set."""
    path = flags.read_flag(flag)
    if not path:
        return None
    try:
        found = os.stat(path)
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        known = _read.get(path)
        if known is None or known[0] != stamp:
            with open(path, "rb") as file:
                known = _read[path] = stamp, file.read()
    except OSError as error:
        raise SecurityError(f"{flag}: cannot read {path}: {error.strerror}") from error
    return known[1]


def tokens() -> tuple[str, ...]:
    """The tokens that are accepted, the one that is sent first; empty if calls need none.

    While their file is empty or away, they are those that it had before.

    Raises:
      SecurityError: there are none, or one is no good.
    """
    given, path = flags.read_flag(TOKEN), flags.read_flag(TOKEN_FILE)
    if given and path:
        raise SecurityError(f"{TOKEN} and {TOKEN_FILE} are both set; a job has one token")
    if not path:
        return _checked((given,) if given else ())
    try:
        found = _in_use[path] = _tokens_of_file(path)
    except SecurityError as error:  # as while it is written anew
        if path not in _in_use:
            raise
        if _problems.get(path) != str(error):
            _problems[path] = str(error)
            Log(role="token").warning("keeping the token in use", reason=str(error))
        return _in_use[path]
    _problems.pop(path, None)
    return found


def _tokens_of_file(path: str) -> tuple[str, ...]:
    content = read_file(TOKEN_FILE) or b""
    found = tuple(line.strip() for line in content.decode("ascii", "replace").splitlines() if line.strip())
    if not found:
        raise SecurityError(f"{TOKEN_FILE}: {path} has no token")
    return _checked(found)


def _checked(found: tuple[str, ...]) -> tuple[str, ...]:
    for token in found:
        if len(token) < SHORTEST_TOKEN or not _VISIBLE.issuperset(token):
            raise SecurityError(
                f"a token of {len(token)} characters is no good: expected at least {SHORTEST_TOKEN} visible ASCII "
                "characters, as of `openssl rand -hex 32`"
            )
    return found


def is_token(given: str | bytes | None) -> bool:
    """Whether a call that brings this may go on; compares in a time that says nothing about the token."""
    accepted = tokens()
    if not accepted:
        return True
    text = given.encode("utf-8", "replace") if isinstance(given, str) else given or b""
    return any(hmac.compare_digest(token.encode(), text) for token in accepted)


def prove(role: str, nonce: str) -> str:
    """Shows that this process knows the token, without telling it to whoever listens in."""
    return _proof(tokens()[0], role, nonce)


def is_proof(given: object, role: str, nonce: str) -> bool:
    """Whether another process has shown that it knows the token."""
    text = given.encode("utf-8", "replace") if isinstance(given, str) else b""
    return any(hmac.compare_digest(_proof(token, role, nonce).encode(), text) for token in tokens())


def _proof(token: str, role: str, nonce: str) -> str:
    return hmac.new(token.encode(), f"{role}:{nonce}".encode(), hashlib.sha256).hexdigest()


def check_plaintext(endpoint: str, tls_helps: bool = True) -> None:
    """Refuses to listen in plaintext at an address that others can reach, unless the flags allow it by name.

    Raises:
      PlaintextError: it is such an address.
    """
    host = endpoint.rpartition(":")[0].strip("[]")
    if not flags.read_flag("FLAGS_rpc_allow_plaintext") and not is_loopback(host):
        raise PlaintextError(endpoint, tls_helps)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {address[4][0] for address in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)
