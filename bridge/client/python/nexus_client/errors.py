"""What goes wrong."""

from typing import Any, Dict, List, Optional, cast


class NexusError(Exception):
    """The base of all errors of this package."""


class ClientError(NexusError):
    """A call that failed.

    code is that of JSON-RPC (SPEC 6.2), None where no server answered; type is a
    word in capitals: the server's, or CONNECTION_FAILED, CLIENT_TIMEOUT, NO_KEY,
    SERVER_UNPROVED and SERVER_UNTRUSTED (the key was not sent), NOT_NEXUS, NO_AGENT or INVALID_PARAMS. details is one
    sentence, recovery_suggestions are sentences, data is all that the server said.
    request_id is that of a send or a task, to ask for its outcome by.
    """

    def __init__(
        self,
        message: str,
        *,
        code: Optional[int] = None,
        type: str = "",
        details: str = "",
        recovery_suggestions: Optional[List[str]] = None,
        data: Optional[Dict[str, Any]] = None,
        http_status: int = 0,
        retry_after: float = 0.0,
    ) -> None:
        text = message if not details or details in message else f"{message}: {details}"
        super().__init__(text)
        self.code = code
        self.type = type
        self.details = details
        self.recovery_suggestions = recovery_suggestions or []
        self.data = data or {}
        self.http_status = http_status
        self.retry_after = retry_after
        self.request_id = ""
        self.unsent = False  # nothing of the request was sent


def told(error: Any, http_status: int, retry_after: float) -> ClientError:
    """The error that a server tells."""
    given = error.get("data")
    data = cast(Dict[str, Any], given) if isinstance(given, dict) else {}
    return ClientError(
        str(error.get("message", "")),
        code=error.get("code"),
        type=str(data.get("type", "")),
        details=str(data.get("details", "")),
        recovery_suggestions=list(data.get("recovery_suggestions") or []),
        data=data,
        http_status=http_status,
        retry_after=retry_after or data.get("retry_after_s") or 0.0,
    )
