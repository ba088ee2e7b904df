# SPDX-License-Identifier: Apache-2.0
"""`headrace doctor`: each check can succeed and fail, and every problem comes with its fix."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.doctor import disk_checks, host_checks
from headrace.cli.doctor.finding import Finding
from headrace.cli.doctor.network_checks import check_broker, check_port
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.testing import Broker

GIB = 1 << 30


def _no_java() -> Path:
    raise ClientError("Java 17 or later is needed, and none was found")


def _clock(*readings: float) -> dict[str, Any]:
    """A wall clock with these readings beside a monotonic clock that stands at 0."""
    each = iter(readings)
    return {"now": lambda: next(each), "monotonic": lambda: 0.0, "sleep": lambda _: None}


NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("finding", "status", "found"),
    [
        (host_checks.check_python((3, 11, 4)), "ok", "Python 3.11.4"),
        (host_checks.check_python((3, 10, 9)), "fail", "Python 3.10.9"),
        (host_checks.check_kernels(Path("/no/kernels.so")), "warn", "not compiled"),
        (host_checks.check_java(_no_java, has_spark=True), "warn", "none was found for Spark"),
        (host_checks.check_java(_no_java, has_spark=False), "ok", "none was found for Spark"),
        (host_checks.check_limits((1024, 1 << 20)), "ok", "soft limit 1,024, hard limit 1,048,576"),
        (host_checks.check_limits((256, 4096)), "warn", "too few"),
        (host_checks.check_limits((256, 512)), "fail", "too few"),
        (host_checks.check_limits((-1, -1)), "ok", "soft limit none"),
        (host_checks.check_clock(**_clock(NOW, NOW, NOW)), "ok", "2026-09-21T14:13:20Z"),
        (host_checks.check_clock(**_clock(NOW, NOW + 3, NOW)), "warn", "moved by +3000 ms"),
        (host_checks.check_clock(**_clock(5.0, 5.0, 5.0)), "fail", "1970-01-01T00:00:05Z"),
        (host_checks.check_timezone({}), "ok", "local time is UTC"),
        (host_checks.check_timezone({"TZ": "Europe/Berlin"}), "ok", "local time is UTC"),
        (host_checks.check_timezone({"TZ": "Mars/Crater"}), "warn", "no known time zone"),
        (disk_checks.check_space(Path("/"), lambda _: (100 * GIB, 0, 50 * GIB)), "ok", "50.0 GiB of 100.0"),
        (disk_checks.check_space(Path("/"), lambda _: (100 * GIB, 0, 2 * GIB)), "warn", "2.0 GiB"),
        (disk_checks.check_space(Path("/"), lambda _: (GIB, 0, 1 << 20)), "fail", "1.0 MiB"),
        (disk_checks.check_file_system(Path("/"), "ext4"), "ok", "ext4"),
        (disk_checks.check_file_system(Path("/"), "tmpfs"), "warn", "lost at a reboot"),
        (disk_checks.check_file_system(Path("/"), "overlay"), "warn", "lost with the container"),
        (disk_checks.check_file_system(Path("/"), "nfs4"), "warn", "not a local disk"),
        (disk_checks.check_fsync(Path("/"), lambda _: [1.0, 2.0, 90.0]), "ok", "median 2.0 ms"),
        (disk_checks.check_fsync(Path("/"), lambda _: [30.0, 40.0, 90.0]), "warn", "slowest of 3 90.0 ms"),
    ],
    ids=lambda value: value.check if isinstance(value, Finding) else "",
)
def test_each_check_can_find_both(finding: Finding, status: str, found: str) -> None:
    assert finding.status == status
    assert found in finding.found
    assert finding.status == "ok" or finding.fix, "every problem says what to do"


def test_extras_are_those_of_the_installed_distribution() -> None:
    requirements = ["typer>=0.12", 'numpy>=1.26; extra == "arrow"', 'kazoo>=2.10; extra == "zookeeper"']
    findings = {
        each.check: each
        for each in host_checks.check_extras(requirements, {"numpy": "2.0", "kazoo": None}.__getitem__)
    }
    assert findings["extra arrow"].found == "numpy 2.0"
    assert findings["extra zookeeper"].found == "not installed: kazoo"
    assert "pip install 'headrace[zookeeper]'" in (findings["extra zookeeper"].fix or "")


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nnone {tmp_path} tmpfs rw 0 0\n/dev/b /elsewhere xfs rw 0 0\n")
    assert disk_checks.file_system(tmp_path / "x", mounts) == "tmpfs"
    assert disk_checks.file_system(Path("/"), mounts) == "ext4"
    assert disk_checks.file_system(Path("/"), tmp_path / "missing") == ""


def test_a_directory_that_cannot_be_written_fails() -> None:
    (finding,) = disk_checks.check_disk(Path("/proc/headrace"))
    assert (finding.status, finding.check) == ("fail", "data directory")
    assert "--data" in (finding.fix or "")


def test_a_port_is_free_or_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        taken = check_port("listener", "127.0.0.1", port)
    assert (taken.status, taken.check) == ("fail", f"port {port}")
    assert "in use by another program" in taken.found
    assert check_port("listener", "127.0.0.1", 0).status == "ok"
    assert check_port("listener", "127.0.0.1", port, answers=True).status == "ok"
    assert check_port("listener", "192.0.2.1", 0).status == "fail", "not an address of this host"


def test_a_broker_is_reached_at_its_advertised_address() -> None:
    with Broker() as broker:
        bootstrap = broker.bootstrap
        findings = check_broker(Cluster(bootstrap=bootstrap))
    assert [each.status for each in findings] == ["ok", "ok"]
    assert findings[1].found == f"reached at its advertised address {bootstrap}"


def test_a_broker_that_is_not_there_fails_with_the_next_step() -> None:
    (finding,) = check_broker(Cluster(bootstrap="127.0.0.1:1"))
    assert finding.status == "fail"
    assert "headrace serve" in (finding.fix or "")


def test_the_command_fails_when_a_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["doctor", "--data", str(tmp_path), "--bootstrap", "127.0.0.1:1"]
    assert main.run([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    failed = [finding["check"] for finding in document["findings"] if finding["status"] == "fail"]
    assert "broker 127.0.0.1:1" in failed
    assert document["ok"] is False
    assert main.run(arguments) == 1
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "CHECK\tSTATUS\tFOUND\tFIX"
    assert len(rows) == len(document["findings"])


def test_a_settings_file_is_checked_with_its_port_and_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as broker:
        port = broker.bootstrap.rpartition(":")[2]
        file = tmp_path / "server.properties"
        file.write_text(f"listeners=PLAINTEXT://:{port}\nlog.dirs={tmp_path}\nnum.io.threads=8\n")
        assert main.run(["doctor", "--config", str(file), "--json"]) == 0
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert "a Kafka broker answers there" in found[f"port {port}"]["found"]
    assert found[f"broker 127.0.0.1:{port}"]["status"] == "ok"
    assert found["data directory"]["found"] == str(tmp_path)
    assert found["configuration"]["status"] == "warn"
    file.write_text("num.partition=1\n")
    assert main.run(["doctor", "--config", str(file), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert "did you mean num.partitions?" in findings[-1]["found"]
