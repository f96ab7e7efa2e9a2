"""Where a server is, and which agent is called there."""

import re
import urllib.parse
from typing import Any, NamedTuple, Optional, cast

from .errors import ClientError

_AGENT = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,62}")  # SPEC 6.3: no two dots in a row


class Target(NamedTuple):
    """Where a server is, and whom there a client talks to."""

    host: str
    port: int
    agent: Optional[str]

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def target(url: str, agent_id: Optional[str]) -> Target:
    """Read a URL as http://127.0.0.1:8765 or http://127.0.0.1:8765/agent/worker-1."""
    u = urllib.parse.urlsplit(url)
    if u.scheme != "http" or u.hostname not in ("127.0.0.1", "localhost", "::1") or u.username or u.query or u.fragment:
        raise ValueError(f"server URL {url!r}: want http://127.0.0.1:PORT or http://127.0.0.1:PORT/agent/ID")
    if u.path not in ("", "/"):
        prefix, slash, named = u.path[:-1 if u.path.endswith("/") else None].rpartition("/")
        if prefix + slash != "/agent/" or not _AGENT.fullmatch(named) or agent_id not in (None, named):
            raise ValueError(f"server URL {url!r}: want /agent/ID after the port, or nothing")
        agent_id = named
    return Target(u.hostname, u.port or 80, None if agent_id is None else agent_name(agent_id))


def agent_name(agent_id: str) -> str:
    """The name of an agent as it is, or the error that create_agent gives for it. It needs no escape in a path."""
    if not isinstance(cast(Any, agent_id), str) or not _AGENT.fullmatch(agent_id):
        raise ClientError(
            "Invalid parameter agent_id: want a name like worker-1: a letter or digit, then up to 62 letters, digits, '_', '-' "
            "and single '.'; one more '.' in front makes it temporary",
            type="INVALID_PARAMS", recovery_suggestions=["Correct the parameters and send it again."],
        )
    return agent_id
