"""Builds the package for pip (PEP 517) without any other package, so without a network.

The name, version and Python are those of pyproject.toml; a wheel is a zip archive of the
package's files with its license and three of metadata (PEP 427, PEP 639). Two builds of the
same files are the same.
"""

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

HERE = Path(__file__).resolve().parent
PROJECT: Dict[str, str] = dict(re.findall(r'^([a-z-]+) = "(.*)"$', (HERE / "pyproject.toml").read_text("utf-8"), re.M))
NAME = PROJECT["name"].replace("-", "_") + "-" + PROJECT["version"]
METADATA = (
    f"Metadata-Version: 2.4\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"
    f"Summary: {PROJECT['description']}\nRequires-Python: {PROJECT['requires-python']}\n"
    "License-Expression: MIT\nLicense-File: LICENSE\nClassifier: Typing :: Typed\n"
)
WHEEL = "Wheel-Version: 1.0\nGenerator: nexus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _files() -> Iterator[Tuple[str, bytes]]:
    for path in sorted((HERE / "nexus_client").iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            yield "nexus_client/" + path.name, path.read_bytes()
    yield NAME + ".dist-info/licenses/LICENSE", (HERE / "LICENSE").read_bytes()
    yield NAME + ".dist-info/METADATA", METADATA.encode()
    yield NAME + ".dist-info/WHEEL", WHEEL.encode()


def build_wheel(wheel_directory: str, config_settings: Optional[Dict[str, Any]] = None, metadata_directory: Optional[str] = None) -> str:
    """Write the wheel and return its name."""
    record = ""
    with zipfile.ZipFile(Path(wheel_directory, NAME + "-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in _files():
            wheel.writestr(zipfile.ZipInfo(name), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        listing = NAME + ".dist-info/RECORD"
        wheel.writestr(zipfile.ZipInfo(listing), record + listing + ",,\n")
    return NAME + "-py3-none-any.whl"


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    """Write the archive of the sources and return its name."""
    sources = {name: (HERE / name).read_bytes() for name in ("LICENSE", "pyproject.toml", "wheel_backend.py")}
    sources.update((name, content) for name, content in _files() if name.startswith("nexus_client/"))
    sources["PKG-INFO"] = METADATA.encode()
    with open(Path(sdist_directory, NAME + ".tar.gz"), "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, content in sorted(sources.items()):
                member = tarfile.TarInfo(NAME + "/" + name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return NAME + ".tar.gz"
