# SPDX-License-Identifier: Apache-2.0
"""Every fuzz target with damaged, hostile and sound inputs (S23, T15, T16). Longer: `make soak PART=fuzz`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.wire.messages import decode_request
from tests.harness import soak
from tests.harness.fuzzing.catalog import TARGETS
from tests.harness.fuzzing.hostile import EVERY_VERSION, hostile_request
from tests.harness.fuzzing.request_targets import read_request
from tests.harness.fuzzing.target import Target, one_input
from tests.harness.left_out import leave_out

QUICK = settings(
    deadline=None,
    max_examples=150,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROOT = Path(__file__).resolve().parents[3]
SOAK_SECONDS = 60
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


@every_target
def test_sound_inputs(target: Target) -> None:
    for sound in target.sound():
        target.run(sound)


@every_target
def test_damaged_inputs(target: Target) -> None:
    sound = target.sound()

    @QUICK
    @given(st.randoms(use_true_random=False))
    def check(chance: Random) -> None:
        target.run(one_input(sound, chance))

    check()


@every_target
def test_any_bytes(target: Target) -> None:
    @QUICK
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        target.run(data)

    check()


@settings(QUICK, max_examples=600)
@given(st.sampled_from(EVERY_VERSION), st.randoms(use_true_random=False))
def test_well_formed_requests_with_hostile_values(case: tuple[int, int], chance: Random) -> None:
    read_request(hostile_request(*case, chance)[4:])


def test_a_target_that_fails_is_seen() -> None:
    """The harness itself: an error that is not allowed comes out."""
    broken = Target(name="broken", run=lambda data: decode_request(3, 1, None, 0, 0), sound=lambda: [b"x"])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        broken.run(one_input(broken.sound(), Random(1)))


@pytest.mark.soak
@pytest.mark.timeout(600)
@every_target
def test_soak_fuzz_guided_by_coverage(target: Target) -> None:
    if importlib.util.find_spec("atheris") is None:
        leave_out("fuzzing guided by coverage", "pip install '.[fuzz]' (atheris; Linux, Python 3.11 to 3.13)")
    started = time.monotonic()
    command = [sys.executable, "-m", "tests.harness.fuzzing", target.name, "--seconds", str(SOAK_SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = next(line for line in done.stderr.splitlines() if line.startswith("Done "))
    soak.write_report(f"fuzz-{target.name}", started, {"runs": int(runs.split()[1])})
