"""The package as a person has it: built and installed by pip, without a network, and used against a real server."""

import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv
from pathlib import Path
from typing import Dict

from .server import Bounded, Server

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import asyncio
import sys
from pathlib import Path

import nexus_client
from nexus_client import NexusClient, NexusClientSync

place = Path(nexus_client.__file__).parent
assert place.is_relative_to(sys.prefix), place
assert (place / "py.typed").is_file()

with NexusClientSync(sys.argv[1], home=sys.argv[2]) as server:
    server.create_agent("worker", if_exists="use")
    server.agent("worker").send("My name is Alice")


async def main():
    async with NexusClient(sys.argv[1], home=sys.argv[2]) as server:
        print((await server.agent("worker").send("What is my name?"))["content"])


asyncio.run(main())
"""


@unittest.skipUnless(importlib.util.find_spec("ensurepip"), "this Python has no pip for its environments")
class Installed(Bounded):
    limit = 600

    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.work = Path(made.name)
        self.server = Server()
        self.addCleanup(self.server.end)
        nowhere = "http://127.0.0.1:1"  # who goes to the network fails
        self.environment: Dict[str, str] = {
            "PATH": os.environ["PATH"], "HOME": str(self.work), "PYTHONDONTWRITEBYTECODE": "1", "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CACHE_DIR": str(self.work / "cache"), "PIP_INDEX_URL": nowhere,
            "http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": "127.0.0.1",
        }

    def run_in(self, python: str, *arguments: str) -> str:
        done = subprocess.run([python, *arguments], env=self.environment, cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def remembers(self, python: str) -> None:
        said = self.run_in(python, "-I", "-W", "error", "-c", PROGRAM, self.server.url, self.server.home)
        self.assertEqual(said, "Your name is Alice.\n")

    def test_pip(self) -> None:
        venv.create(self.work / "fresh", with_pip=True)
        python = str(self.work / "fresh" / "bin" / "python")
        self.run_in(python, "-m", "pip", "wheel", "--no-build-isolation", "--no-index", "--no-deps", "-w", "built", str(ROOT))
        (wheel,) = (self.work / "built").iterdir()
        build = "import sys; sys.path.insert(0, sys.argv[1]); import wheel_backend as b; b.build_wheel('.'); b.build_sdist('.')"
        self.run_in(python, "-c", build, str(ROOT))
        self.assertEqual(wheel.read_bytes(), (self.work / wheel.name).read_bytes())  # two builds are the same
        self.run_in(python, "-m", "pip", "install", "--no-index", str(wheel))
        shown = self.run_in(python, "-m", "pip", "show", "--files", "nexus-client")
        for part in ("nexus_client/py.typed", "licenses/LICENSE", "Version: 0.1.0"):
            self.assertIn(part, shown)
        said = self.run_in(python, "-I", "-W", "error", "-c", PROGRAM, self.server.url, self.server.home)
        self.assertEqual(said, "Your name is Alice.\n")
        (sources,) = self.work.glob("*.tar.gz")
        with tarfile.open(sources) as archive:
            self.assertIn("nexus_client-0.1.0/PKG-INFO", archive.getnames())
        self.run_in(python, "-m", "pip", "install", "--no-index", "--force-reinstall", str(sources))  # built in an environment of its own
        said = self.run_in(python, "-I", "-W", "error", "-c", PROGRAM, self.server.url, self.server.home)
        self.assertEqual(said, "Your name is Alice.\n")
