# SPDX-License-Identifier: Apache-2.0
"""The command that `headrace consume --exec` runs for each record: what it is told, what its end means."""

from __future__ import annotations

import json
import threading
import time

import pytest

from headrace.cli.records import record_command
from headrace.cli.records.record_command import CommandFailed, CommandResult, command_environment, run_command
from headrace.client.parallel import FatalError, Record


def record(**fields: object) -> Record:
    given = {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp_ms": 5,
        "append_time": False,
        "key": b"k",
        "value": b"v",
        "headers": (),
    }
    return Record(**(given | fields))  # type: ignore[arg-type]


def test_the_environment_has_position_and_content_of_the_record():
    headers = (("trace-id", b"1"), ("empty", None), ("trace-id", b"2"))
    told = command_environment(record(headers=headers, attempt=3))
    assert told == {
        "HEADRACE_TOPIC": "orders",
        "HEADRACE_PARTITION": "2",
        "HEADRACE_OFFSET": "7",
        "HEADRACE_ATTEMPT": "3",
        "HEADRACE_TIMESTAMP": "1970-01-01T00:00:00.005Z",
        "HEADRACE_KEY": "k",
        "HEADRACE_KEY_BASE64": "aw==",
        "HEADRACE_HEADERS": json.dumps([["trace-id", "1"], ["empty", None], ["trace-id", "2"]]),
        "HEADRACE_HEADER_TRACE_ID": "2",
    }


def test_bytes_that_no_environment_can_hold_are_left_out():
    odd = record(
        key=b"\x00\xff", value=None, timestamp_ms=None, headers=(("PATH=x\n", b"a\x00"), ("LD_A", b"\xfe"))
    )
    told = command_environment(odd)
    assert "HEADRACE_KEY" not in told
    assert told["HEADRACE_KEY_BASE64"] == "AP8="
    assert told["HEADRACE_NULL_VALUE"] == "1"
    assert "HEADRACE_TIMESTAMP" not in told
    assert all(name.startswith("HEADRACE_") and "=" not in name and "\n" not in name for name in told)
    assert run_command('test -z "$HEADRACE_KEY" && test "$HEADRACE_NULL_VALUE" = 1 && wc -c', odd).code == 0


def test_a_command_reads_the_value_and_need_not():
    large = b"x" * 500_000
    assert run_command("wc -c", record(value=large)).stdout.strip() == b"500000"
    assert run_command("true", record(value=large)).code == 0


def test_the_exit_code_decides():
    run_command("exit 0", record()).check()
    with pytest.raises(CommandFailed, match=r"^exit code 3: no good$"):
        run_command("echo first >&2; echo no good >&2; exit 3", record()).check()
    with pytest.raises(CommandFailed, match=r"^ended by signal 9$"):
        run_command("kill -9 $$", record()).check()
    with pytest.raises(FatalError, match="cannot be run"):
        run_command("no-such-command-anywhere", record()).check()
    assert CommandResult(code=0, stdout=b"", stderr=b"warning", took_ms=1).check() is None


def test_a_cancelled_command_ends_with_all_it_started(monkeypatch):
    gone = threading.Event()
    monkeypatch.setattr(record_command, "cancelled", gone.is_set)
    threading.Timer(0.3, gone.set).start()
    started = time.monotonic()
    result = run_command("sleep 30 & sleep 30; wait", record())
    assert result.code == -9
    assert time.monotonic() - started < 10
