"""How the clients find the key and the server."""

import os
import tempfile
import unittest
from unittest import mock

from nexus_client import ClientError, NexusClient, keys

os.environ.pop("NEXUS3_API_KEY", None)  # of whoever runs the tests


class Keys(unittest.TestCase):
    def test_order_and_modes(self) -> None:
        with tempfile.TemporaryDirectory() as home:
            def put(name: str, text: str, mode: int = 0o600) -> None:
                with open(os.path.join(home, name), "w", encoding="ascii") as f:
                    f.write(text + "\n")
                os.chmod(os.path.join(home, name), mode)

            with self.assertRaises(ClientError) as caught:
                keys.discover(9, home)
            self.assertEqual(caught.exception.type, "NO_KEY")
            put("server.key", "nxk_default")
            self.assertEqual(keys.discover(9, home), "nxk_default")
            put("server-9.key", "nxk_nine")
            self.assertEqual((keys.discover(9, home), keys.discover(8765, home)), ("nxk_nine", "nxk_default"))
            os.environ["NEXUS3_API_KEY"] = "nxk_environment"
            self.addCleanup(os.environ.pop, "NEXUS3_API_KEY", None)
            self.assertEqual(keys.discover(9, home), "nxk_environment")
            os.environ["NEXUS3_API_KEY"] = ""
            for text, mode in (("nxk_nine", 0o644), ("secret", 0o600), ("nxk_a b", 0o600)):
                put("server-9.key", text, mode)
                with self.assertRaises(ClientError) as caught:
                    keys.discover(9, home)
                self.assertNotIn(text, str(caught.exception))
            put("server-9.key", "nxk_nine")
            for mode in (0o770, 0o702, 0o1777):
                os.chmod(home, mode)
                with self.assertRaises(ClientError) as caught:
                    keys.discover(9, home)
                self.assertIn("others may put", str(caught.exception))
            os.chmod(home, 0o700)
            if os.geteuid() == 0:  # who alone can give files away
                for path in (os.path.join(home, "server-9.key"), home):
                    os.chown(path, 12345, -1)
                    with self.assertRaises(ClientError) as caught:
                        keys.discover(9, home)
                    self.assertIn("another user's", str(caught.exception))
                    os.chown(path, 0, -1)
            else:
                with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
                    self.assertRaises(ClientError, keys.discover, 9, home)
            self.assertEqual(keys.discover(9, home), "nxk_nine")
            os.remove(os.path.join(home, "server-9.key"))
            os.symlink(os.path.join(home, "server.key"), os.path.join(home, "server-9.key"))
            self.assertRaises(ClientError, keys.discover, 9, home)

    def test_other_machines_are_refused(self) -> None:
        for url in (
            "http://example.com", "https://example.com/x", "ftp://127.0.0.1:1", "http://10.0.0.1:8765", "http://user@127.0.0.1", "127.0.0.1:1",
            "http://127.0.0.1/x", "http://127.0.0.1/agent/../rpc", "http://127.0.0.1/agent/a/events",
        ):
            self.assertRaises(ValueError, NexusClient, url)
        self.assertEqual(NexusClient("http://[::1]:1/agent/a").agent_id, "a")
        self.assertRaises(ValueError, NexusClient, "http://127.0.0.1/agent/a", agent_id="b")


if __name__ == "__main__":
    unittest.main()
