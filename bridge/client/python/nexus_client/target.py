"""Where a server is, and which agent is called there."""

import re
import urllib.parse
from typing import Any, List, NamedTuple, Optional, Sequence, Union, cast

from .errors import ClientError

_AGENT = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,62}")  # SPEC 6.3: no two dots in a row


class Target(NamedTuple):
    """Where a server is, and whom there a client talks to."""

    host: str
    port: int
    agent: Optional[str]
    tls: bool = False

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def target(url: str, agent_id: Optional[str]) -> Target:
    """Read a URL as http://127.0.0.1:8765 or http://127.0.0.1:8765/agent/worker-1, or https on another machine."""
    u = urllib.parse.urlsplit(url.strip())
    known = u.scheme == "https" and bool(u.hostname) or u.scheme == "http" and u.hostname in ("127.0.0.1", "localhost", "::1")
    if not known or u.hostname is None or u.username or u.query or u.fragment:
        raise ValueError(f"server URL {url!r}: want http://127.0.0.1:PORT or https://HOST:PORT, also with /agent/ID behind it")
    if u.path not in ("", "/"):
        prefix, slash, named = u.path[:-1 if u.path.endswith("/") else None].rpartition("/")
        if prefix + slash != "/agent/" or not _AGENT.fullmatch(named) or agent_id not in (None, named):
            raise ValueError(f"server URL {url!r}: want /agent/ID after the port, or nothing")
        agent_id = named
    tls = u.scheme == "https"
    return Target(u.hostname, u.port or (443 if tls else 80), None if agent_id is None else agent_name(agent_id), tls)


def targets(url: Union[str, Sequence[str]], agent_id: Optional[str]) -> List[Target]:
    """Read several URLs, as a list or with commas between them, which name one agent or none."""
    found = [target(one, agent_id) for one in (url.split(",") if isinstance(url, str) else url)]
    if not found or len({one.agent for one in found}) > 1:
        raise ValueError(f"server URL {url!r}: want at least one, and the same agent in all")
    return found


def agent_name(agent_id: str) -> str:
    """The name of an agent as it is, or the error that create_agent gives for it. It needs no escape in a path."""
    if not isinstance(cast(Any, agent_id), str) or not _AGENT.fullmatch(agent_id):
        raise ClientError(
            "Invalid parameter agent_id: want a name like worker-1: a letter or digit, then up to 62 letters, digits, '_', '-' "
            "and single '.'; one more '.' in front makes it temporary",
            type="INVALID_PARAMS", recovery_suggestions=["Correct the parameters and send it again."],
        )
    return agent_id
