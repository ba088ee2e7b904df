# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.harness.fuzzing TARGET --seconds N`: one target, guided by coverage (atheris).

Begins with the target's sound inputs; what reached new code stays in build/fuzz/TARGET for the next run.
An input that makes the target fail is written there as crash-…, and ends the run with an error. Without
atheris (extra `fuzz`) inputs are damaged at random. Read next: catalog.py, tests/property/fuzzing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.harness.fuzzing.target import Target

CORPUS = Path(__file__).resolve().parents[3] / "build" / "fuzz"
_MEMORY_MIB, _INPUT_S, _LONGEST_INPUT = 2048, 10, 8192
_MISSING = "atheris is not installed (pip install '.[fuzz]'): inputs are damaged at random"


def main() -> None:
    arguments = _arguments()
    guided = importlib.util.find_spec("atheris") is not None and not arguments.random
    target = _load(arguments.target, instrumented=guided)
    logging.disable(logging.CRITICAL)
    if guided:
        _run_guided(target, arguments.seconds)
    else:
        print(_MISSING)
        print(f"{target.name}: {run_at_random(target, arguments.seconds)} inputs")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.fuzzing", description=__doc__)
    parser.add_argument("target", help="`list` names them")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--random", action="store_true", help="without atheris")
    return parser.parse_args()


def _load(name: str, *, instrumented: bool) -> Target:
    """The target; for a guided run its code counts which branches are taken."""
    if instrumented:
        import atheris

        with atheris.instrument_imports(include=["headrace"]):
            from tests.harness.fuzzing.catalog import TARGETS
    else:
        from tests.harness.fuzzing.catalog import TARGETS
    if name not in TARGETS:
        sys.exit("\n".join(TARGETS))
    return TARGETS[name]


def _run_guided(target: Target, seconds: int) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    corpus = CORPUS / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for sound in target.sound():
        (corpus / hashlib.blake2b(sound, digest_size=10).hexdigest()).write_bytes(sound)
    options = {
        "max_total_time": seconds,
        "rss_limit_mb": _MEMORY_MIB,
        "timeout": _INPUT_S,
        "max_len": _LONGEST_INPUT,
        "artifact_prefix": f"{corpus}/",
        "print_final_stats": 1,
    }
    atheris.Setup(
        [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus)], target.run
    )
    atheris.Fuzz()


def run_at_random(target: Target, seconds: float) -> int:
    """How many inputs there were."""
    from tests.harness.fuzzing.target import one_input

    sound, chance, count, end = target.sound(), Random(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        target.run(one_input(sound, chance))
        count += 1
    return count


if __name__ == "__main__":
    main()
