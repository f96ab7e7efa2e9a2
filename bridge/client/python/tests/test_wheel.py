"""The package is built with nothing but Python: what pip calls, called here."""

import base64
import hashlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Wheel(unittest.TestCase):
    def test_build(self) -> None:
        project = (ROOT / "pyproject.toml").read_text("utf-8")
        self.assertIn("\nrequires = []", project)  # with anything there pip goes to the network
        backend = re.search('^build-backend = "(.*)"$', project, re.M)
        assert backend is not None
        with tempfile.TemporaryDirectory() as made:
            build = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; print({0}.build_wheel(sys.argv[2])); {0}.build_sdist(sys.argv[2])"
            name = subprocess.run(
                [sys.executable, "-B", "-c", build.format(backend[1]), str(ROOT), made], check=True, stdout=subprocess.PIPE, text=True,
            ).stdout.strip()
            with zipfile.ZipFile(Path(made, name)) as wheel:
                names = wheel.namelist()
                sources = [p for p in (ROOT / "nexus_client").iterdir() if p.is_file()]
                self.assertEqual({n for n in names if n.startswith("nexus_client/")}, {"nexus_client/" + p.name for p in sources})
                record = wheel.read(next(n for n in names if n.endswith("/RECORD"))).decode().splitlines()
                self.assertEqual([line.split(",")[0] for line in record], names)
                for line in record[:-1]:
                    file, digest, size = line.split(",")
                    content = wheel.read(file)
                    want = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, size), ("sha256=" + want, str(len(content))))
            says = subprocess.run(
                [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import nexus_client; print(nexus_client.__file__)",
                 str(Path(made, name))], check=True, stdout=subprocess.PIPE, text=True,
            ).stdout
            self.assertIn(name, says)
            self.assertTrue(list(Path(made).glob("*.tar.gz")))
