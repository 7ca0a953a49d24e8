"""TLS and the token of a job, for gRPC: the one place that makes channels and ports secure.

Everything is set by flags, from the environment or by the script:

    FLAGS_rpc_tls_certificate, FLAGS_rpc_tls_key   files (PEM) of this process
    FLAGS_rpc_tls_authority                        the file of the authority that signs those of the others
    FLAGS_rpc_tls_name                             the name in servers' certificates, if it is not that of their host
    FLAGS_rpc_token, FLAGS_rpc_token_file          what every call must bring
    FLAGS_rpc_allow_plaintext                      listen without TLS at addresses that others can reach

Files are read again when they change: servers look with every handshake and call, clients with every call. A token file
may have several lines; the first one is sent and all are accepted, so that tokens can be replaced in a running job.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from refluid import access, flags
from refluid.errors import SecurityError
from refluid.log import Log

TOKEN_KEY = "refluid-token"  # of a call's metadata

_CERTIFICATE, _KEY, _AUTHORITY = (f"FLAGS_rpc_tls_{part}" for part in ("certificate", "key", "authority"))

# Parts of gRPC's texts by which a failed handshake is told from a server that is not there. The last one is what a
# caller sees whose certificate, or lack of one, the server does not like.
_HANDSHAKE = ("handshake", "SSL_ERROR", "CERTIFICATE_VERIFY", "erification", "eer name", ": Socket closed")


def call_metadata() -> tuple[tuple[str, str], ...]:
    """What every call carries."""
    found = access.tokens()
    return ((TOKEN_KEY, found[0]),) if found else ()


class TokenCheck(grpc.ServerInterceptor):
    """Turns away every call without the job's token, before anything of it is read: calls once, streams when they open.

    Args:
      refused: is told of each: the caller's address and the method.
    """

    def __init__(self, who: str, refused: Callable[[str, str], None]):
        remedy = f"set {access.TOKEN} or {access.TOKEN_FILE} for all of its processes alike"
        self._text = f"{who}: this call has no token of the job; {remedy}"
        self._refused = refused

    def intercept_service(self, continuation: Callable[..., Any], handler_call_details: Any) -> Any:
        given = next((value for key, value in handler_call_details.invocation_metadata if key == TOKEN_KEY), None)
        if access.is_token(given):
            return continuation(handler_call_details)
        method: str = handler_call_details.method

        def refuse(_: Any, context: grpc.ServicerContext) -> Any:
            self._refused(context.peer(), method)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, self._text)

        return grpc.stream_stream_rpc_method_handler(refuse)  # the form that waits for no message


# TLS


@dataclass(frozen=True)
class Certificates:
    """The contents of the files: of this process, and of the authority that signs those of the others."""

    certificate: bytes | None
    key: bytes | None
    authority: bytes | None

    @classmethod
    def read(cls) -> Certificates | None:
        """Those of the flags; None without TLS."""
        certificate, key, authority = map(access.read_file, (_CERTIFICATE, _KEY, _AUTHORITY))
        if (certificate is None) != (key is None):
            missing = _KEY if key is None else _CERTIFICATE
            raise SecurityError(f"{missing} is not set: a certificate and its key belong together")
        return None if certificate is None and authority is None else cls(certificate, key, authority)


_in_use: dict[tuple[str, ...], Certificates] = {}  # by the names of the files: those that fitted together last
_unfit: dict[tuple[str, ...], Certificates] = {}  # newer ones that do not
_problems: dict[tuple[str, ...], str] = {}  # what was logged about them


def certificates_in_use() -> Certificates | None:
    """Those of the flags; None without TLS. While new files do not fit together, the ones before stay in use.

    Several files are not replaced at one moment, and what is no certificate makes gRPC end the process.

    Raises:
      SecurityError: they cannot be used, and there were none before.
    """
    files = tuple(map(flags.read_flag, (_CERTIFICATE, _KEY, _AUTHORITY)))
    used = _in_use.get(files)
    try:
        found = Certificates.read()
        if found is None or found == used:
            return found
        if used is None or found != _unfit.get(files):
            _check(found, files)
            _in_use[files] = found
            _problems.pop(files, None)
            return found
    except SecurityError as error:
        if used is None:
            raise
        if _problems.get(files) != str(error):
            _problems[files] = str(error)
            Log(role="tls").warning("keeping the certificates in use", reason=str(error))
    return used


def _check(found: Certificates, files: tuple[str, ...]) -> None:
    try:
        if found.certificate is not None:
            check_pair()
        if found.authority is not None:
            _check_authority(found.authority, files[2])
    except SecurityError:
        _unfit[files] = found
        raise
    if Certificates.read() != found:  # what was checked is what was read before
        raise SecurityError(f"{', '.join(filter(None, files))} are just being replaced")


def check_pair() -> None:
    """Makes sure that the certificate and the key of the flags fit together.

    Raises:
      SecurityError: they do not, or are no PEM files.
    """
    paths = flags.read_flag(_CERTIFICATE), flags.read_flag(_KEY)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*paths)
    except (OSError, ValueError) as error:
        raise SecurityError(f"certificate {paths[0]} and key {paths[1]} cannot be used: {error}") from error


def _check_authority(content: bytes, path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii"))
    except (OSError, ValueError) as error:
        raise SecurityError(f"authority {path} cannot be used: {error}") from error


def open_channel(endpoint: str, options: Sequence[tuple[str, Any]]) -> tuple[grpc.Channel, Certificates | None]:
    """A channel to an endpoint, with TLS if the flags ask for it, and the certificates that it uses."""
    found = certificates_in_use()
    if found is None:
        return grpc.insecure_channel(endpoint, options=options), None
    credentials = grpc.ssl_channel_credentials(found.authority, found.key, found.certificate)
    name = flags.read_flag("FLAGS_rpc_tls_name")
    named = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.secure_channel(endpoint, credentials, options=[*options, *named]), found


def add_port(server: grpc.Server, endpoint: str, log: Log) -> int:
    """Lets a server listen at an endpoint; returns the port, or 0 if it cannot.

    Raises:
      PlaintextError: others could reach it, and there is no TLS.
      SecurityError: the files of the flags cannot be used.
    """
    found = certificates_in_use()
    if found is None or found.certificate is None:
        access.check_plaintext(endpoint)
        return server.add_insecure_port(endpoint)
    renewal = _Renewal(found, log)
    fetch: Any = renewal  # None for what is in use, which the stubs do not know
    credentials = grpc.dynamic_ssl_server_credentials(
        renewal.current(), fetch, require_client_authentication=found.authority is not None
    )
    return server.add_secure_port(endpoint, credentials)


class _Renewal:
    """Gives gRPC the certificates of a server for every handshake: those of the files, as soon as they fit together."""

    def __init__(self, used: Certificates, log: Log):
        self._used, self._log = used, log

    def current(self) -> grpc.ServerCertificateConfiguration:
        pairs: Any = [(self._used.key, self._used.certificate)]
        return grpc.ssl_server_certificate_configuration(pairs, self._used.authority)

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        found = certificates_in_use()
        if found is None or found.certificate is None or found == self._used:
            return None
        self._used = found
        self._log.info("using new certificates")
        return self.current()


def failed_handshake(error: grpc.RpcError) -> str | None:
    """What to say of a server that is there but cannot be talked to; None if that is not why a call has failed."""
    details = error.details() or ""
    connects = details.startswith("failed to connect")
    if (
        error.code() is not grpc.StatusCode.UNAVAILABLE
        or not connects
        or not any(map(details.__contains__, _HANDSHAKE))
    ):
        return None
    return f"no secure connection, see {_AUTHORITY}, {_CERTIFICATE} and FLAGS_rpc_tls_name: {details.splitlines()[0]}"
