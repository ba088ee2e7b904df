# SPDX-License-Identifier: Apache-2.0
"""Checks of `headrace doctor` on the installation and the host: Python, kernels, extras, Java, limits, clock.

Read next: disk_checks.py, network_checks.py.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import time
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.cli.doctor.finding import Finding
from headrace.client.errors import ClientError
from headrace.java import LEAST_JAVA, find_java, install_command, java_version
from headrace.kernels.library import BUILD_COMMAND, LIBRARY, why_missing
from headrace.version import __version__

LEAST_PYTHON = (3, 11)
_ENOUGH_DESCRIPTORS, _FEW_DESCRIPTORS = 10_000, 1_024
"""A node has open files for each segment in use and for each connection."""
_FOR_USERS = ("arrow", "certs", "declarative", "oauth", "spark", "zookeeper")
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+)[^;]*;.*\bextra\s*==\s*["']([\w-]+)["']""")
_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
_CLOCK_WATCH_S = 0.2
_LARGEST_STEP_S = 0.05


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    text = ".".join(map(str, version))
    found = f"Python {text} on {platform.system()} {platform.machine()}, headrace {__version__}"
    if version < LEAST_PYTHON:
        wanted = ".".join(map(str, LEAST_PYTHON))
        return Finding(check="python", status="fail", found=found, fix=f"use Python {wanted} or later")
    return Finding(check="python", found=found)


def check_kernels(library: Path = LIBRARY) -> Finding:
    reason = why_missing(library)
    if reason is None:
        return Finding(check="kernels", found="compiled")
    return Finding(
        check="kernels",
        status="warn",
        found=f"{reason}: records are read and written in Python, many times slower",
        fix=f"install a wheel for this platform, or compile them with a C compiler: {BUILD_COMMAND}",
    )


def check_extras(
    requirements: Sequence[str] | None = None, version_of: Callable[[str], str | None] | None = None
) -> list[Finding]:
    """What each extra brings along, and the command that installs it. No node needs one."""
    if requirements is None:
        requirements = importlib.metadata.requires("headrace") or ()
    return [_extra(name, _packages(name, requirements), version_of or _installed) for name in _FOR_USERS]


def _extra(name: str, packages: Sequence[str], version_of: Callable[[str], str | None]) -> Finding:
    versions = {package: version_of(package) for package in packages}
    there = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    missing = ", ".join(package for package, version in versions.items() if not version)
    if not missing:
        return Finding(check=f"extra {name}", found=there)
    found = f"not installed: {missing}" + (f" (installed: {there})" if there else "")
    return Finding(
        check=f"extra {name}", found=found, fix=f"only if you need it: pip install 'headrace[{name}]'"
    )


def _packages(extra: str, requirements: Sequence[str]) -> list[str]:
    """The packages of an extra; extras of Headrace that it includes have their own line."""
    matches = (_REQUIREMENT.fullmatch(text.strip()) for text in requirements)
    named = (match[1] for match in matches if match is not None and match[2] == extra)
    return sorted({name for name in named if name != "headrace"})


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_java(find: Callable[[], Path] = find_java, *, has_spark: bool | None = None) -> Finding:
    """Needed by Spark, and to run ZooKeeper or Apache Kafka on this host."""
    if has_spark is None:
        has_spark = importlib.util.find_spec("pyspark") is not None
    try:
        home = find()
    except ClientError as error:
        return Finding(
            check="java",
            status="warn" if has_spark else "ok",
            found=f"{error.what} for Spark, and to run ZooKeeper or Apache Kafka here",
            fix=f"install Java {LEAST_JAVA} or later ({install_command()}), or set JAVA_HOME",
        )
    return Finding(check="java", found=f"Java {java_version(home / 'bin/java')} in {home}")


def check_limits(limits: tuple[int, int] | None = None) -> Finding:
    """A node raises its soft limit to the hard limit by itself."""
    if limits is None:
        try:
            import resource
        except ImportError:  # Windows
            return Finding(check="open files", found="this platform has no such limit")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = limits
    found = f"soft limit {_limit(soft)}, hard limit {_limit(hard)}"
    if 0 <= hard < _ENOUGH_DESCRIPTORS:
        return Finding(
            check="open files",
            status="fail" if hard < _FEW_DESCRIPTORS else "warn",
            found=f"{found}: too few for many partitions and connections",
            fix=f"raise the hard limit to {_ENOUGH_DESCRIPTORS}: ulimit -Hn, LimitNOFILE= of systemd, or "
            "--ulimit nofile= of a container",
        )
    return Finding(check="open files", found=found)


def _limit(value: int) -> str:
    return "none" if value < 0 or value >= 1 << 62 else f"{value:,}"


def check_clock(
    now: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Timestamps of records and retention use the wall clock; timeouts use the monotonic one."""
    before = now() - monotonic()
    sleep(_CLOCK_WATCH_S)
    step_s = now() - monotonic() - before
    try:
        moment = datetime.fromtimestamp(now(), UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    found = f"{moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    fix = "set the clock, and keep it by NTP (timedatectl set-ntp true)"
    if not _EARLIEST <= moment < _EARLIEST + timedelta(days=365 * 50):
        return Finding(check="clock", status="fail", found=f"it says {found}", fix=fix)
    if abs(step_s) > _LARGEST_STEP_S:
        moved = f"it was moved by {step_s * 1000:+.0f} ms while it was watched"
        return Finding(check="clock", status="warn", found=f"{found}, {moved}", fix=fix)
    return Finding(check="clock", found=f"{found}, runs evenly with the monotonic clock")


def check_timezone(environment: Mapping[str, str] = os.environ) -> Finding:
    """Records and output are in UTC; a time without a zone, as in `consume --from`, is local."""
    name = environment.get("TZ", "").removeprefix(":")
    offset = datetime.now().astimezone()
    found = f"local time is UTC{offset:%z} ({offset:%Z})"
    if name and not name.startswith("/") and not re.search(r"\d", name) and not _is_zone(name):
        return Finding(
            check="time zone",
            status="warn",
            found=f"TZ={name} is no known time zone: {found}",
            fix="set TZ to a name such as Europe/Berlin, or install the package tzdata",
        )
    return Finding(check="time zone", found=found)


def _is_zone(name: str) -> bool:
    return name in ("UTC", "GMT") or name in zoneinfo.available_timezones()
