"""The API key: where it lies, and how a server proves to have it (SPEC 6.5)."""

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from typing import Any, Dict, Optional, Tuple

from .errors import ClientError

DEFAULT_PORT = 8765
_MAX_KEY = 512  # bytes


def default_home() -> str:
    """The directory where a server keeps its things."""
    return os.environ.get("NEXUS_HOME") or os.path.join(os.path.expanduser("~"), ".nexus3")


def default_url(home: Optional[str] = None) -> str:
    """The server that is meant where none is named: at NEXUS_PORT, else that of the home, else at 8765."""
    text = os.environ.get("NEXUS_PORT") or str(home_port(home or default_home()) or DEFAULT_PORT)
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise ValueError(f"NEXUS_PORT must be from 1 to 65535, not {text!r}")
    return f"http://127.0.0.1:{int(text)}"


def home_port(home: str) -> Optional[int]:
    """The port of the server of a home, by the home's lock: "PID PORT", then its inode, which no copy has, and the process lives."""
    try:
        with open(os.path.join(home, "run", "lock"), "rb", opener=_open_plain) as file:
            match = re.fullmatch(rb"([0-9]{1,10}) ([0-9]{1,5})\n(?:([0-9]{1,20})\n)?", file.read(64))
            inode = os.fstat(file.fileno()).st_ino
    except OSError:
        return None
    if not match or not 1 <= int(match.group(2)) <= 65535 or match.group(3) and int(match.group(3)) != inode:
        return None
    try:
        if os.name == "posix":  # elsewhere that would end the process
            os.kill(int(match.group(1)), 0)
    except PermissionError:
        pass  # another user's process
    except (OSError, OverflowError):
        return None
    return int(match.group(2))


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def discover(port: Optional[int], home: Optional[str]) -> str:
    """Find the key: NEXUS3_API_KEY, server-PORT.key, server.key. The first that is there counts. Without a port no key file does."""
    given = os.environ.get("NEXUS3_API_KEY")
    if given:
        return parse(given, "NEXUS3_API_KEY")
    if port is None:
        raise ClientError(
            "no API key found: no NEXUS3_API_KEY; the key files of a home are of its own server, at http://127.0.0.1:PORT", type="NO_KEY",
            recovery_suggestions=["Give the key of that server (api_key, NEXUS3_API_KEY)."],
        )
    home = home or default_home()
    names = ["server.key"] if port == DEFAULT_PORT else [f"server-{port}.key", "server.key"]
    for name in names:
        path = os.path.join(home, name)
        try:
            key = _read(path)
            _check_home(home)
            return key
        except FileNotFoundError:
            continue
        except OSError as e:
            raise ClientError(f"read key file {path}: {e}", type="NO_KEY") from e
    raise ClientError(
        f"no API key found: no NEXUS3_API_KEY, no {names[0]} in {home}", type="NO_KEY",
        recovery_suggestions=["Give the home of that server (home, NEXUS_HOME), or its key (api_key, NEXUS3_API_KEY)."],
    )


def parse(text: str, source: str) -> str:
    """Read a key as a person or a file gives it. The error never shows it."""
    text = text.strip()
    if len(text) > _MAX_KEY or not re.fullmatch(r"nxk_[A-Za-z0-9_-]+", text):
        raise ClientError(f"malformed API key ({source}): want nxk_ and letters, digits, '-' or '_'", type="NO_KEY")
    return text


def _read(path: str) -> str:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ClientError(f"key file {path} is not a plain file", type="NO_KEY")
        if os.name == "posix" and info.st_mode & 0o077:
            raise ClientError(f"others may read key file {path}: run chmod 600 {path}, or restart the server", type="NO_KEY")
        if not _trusted(info):
            raise ClientError(f"key file {path} is another user's, who may have put it there", type="NO_KEY")
        return parse(os.read(fd, _MAX_KEY + 2).decode("ascii", "replace"), path)
    finally:
        os.close(fd)


def _trusted(info: os.stat_result) -> bool:
    """Whether it is our user's, or root's."""
    return os.name != "posix" or info.st_uid in (0, os.geteuid())


def _check_home(home: str) -> None:
    info = os.stat(home)
    if os.name == "posix" and info.st_mode & 0o022:
        raise ClientError(f"others may put key files into {home}: run chmod 700 {home}", type="NO_KEY")
    if not _trusted(info):
        raise ClientError(f"directory {home} is another user's, who may have put the key file there", type="NO_KEY")


def challenge(key: str) -> Tuple[str, str]:
    """A nonce, and the path that asks a server to prove that it has the key."""
    nonce = secrets.token_urlsafe(24)
    return nonce, f"/healthz?challenge={nonce}&key={_digest(_digest(key))[:12]}"


def proves(key: str, nonce: str, address: str, proof: str) -> bool:
    """Whether proof is what a server that has the key answers at the address."""
    text = f"nexus-proof-v1\n{nonce}\n{address}"
    mac = hmac.new(_digest(key).encode(), text.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(base64.b64encode(mac).decode(), proof)


def signature(key: str, path: str, request_id: str, method: str, params: str) -> Dict[str, Any]:
    """The member auth of a request; request_id and params are the JSON that it has."""
    at = int(time.time())
    text = "\n".join(("nexus-request-v1", str(at), path, request_id, method, params))
    mac = hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()
    return {"timestamp": at, "signature": base64.b64encode(mac).decode()}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
