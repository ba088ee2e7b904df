# SPDX-License-Identifier: Apache-2.0
"""A real S3 server for tests: versitygw over a folder. It enforces If-None-Match, as S3 does.

Built from its source in Go, through the module proxy. Knows nothing of tables. See s3_proxy.py for accidents.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from headrace.cluster.engines.engine import free_ports
from tests.harness.left_out import leave_out
from tests.harness.waiting import wait_until

PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
ACCESS_KEY, SECRET_KEY = "headrace-test-key", "a-secret-that-nobody-prints"
REGION = "us-east-1"
_BUILD_TIMEOUT_S = 900


def build_s3_server(folder: Path) -> Path:
    """The program; the test is left out where it cannot be built."""
    if shutil.which("go") is None:
        leave_out("tables in S3", "no Go: install its tool chain (go)")
    built = subprocess.run(
        ["go", "install", PROGRAM],
        cwd=folder,
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if built.returncode != 0:
        leave_out("tables in S3", f"{PROGRAM} could not be built: {built.stderr[-300:]}")
    return folder / "versitygw"


class S3Server:
    """One process, with a bucket for each name asked for."""

    def __init__(self, program: Path, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._root, sidecar = folder / "buckets", folder / "metadata"
        for each in (self._root, sidecar):
            each.mkdir(parents=True)
        self._log = (folder / "versitygw.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(str(program), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet"),
                *("posix", "--sidecar", str(sidecar), str(self._root)),
            ],
            env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        wait_until(self._answers, "versitygw to answer")

    def bucket(self, name: str) -> str:
        (self._root / name).mkdir(exist_ok=True)
        return f"s3://{name}"

    def objects(self, bucket: str, prefix: str = "") -> list[str]:
        """Names of whole objects; without those of the server's own."""
        folder = self._root / bucket
        names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        return sorted(name for name in names if name.startswith(prefix) and not name.startswith(".sgwtmp"))

    def set_time(self, bucket: str, name: str, seconds: float) -> None:
        """The last modification of an object."""
        os.utime(self._root / bucket / name, (seconds, seconds))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, "versitygw ended; see versitygw.log"
        with contextlib.suppress(urllib.error.HTTPError):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=1).close()
            except urllib.error.HTTPError:
                raise
            except OSError:
                return False
        return True


def storage_of(port: int) -> dict[str, str]:
    """Options of deltalake that reach the server, or a proxy before it."""
    return {
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "aws_region": REGION,
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_allow_http": "true",
        "max_retries": "3",
    }
