# SPDX-License-Identifier: Apache-2.0
"""`python -m bench [SUITE]`: run suites, print their tables, write JSON, Markdown and pictures."""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.documents import RESULTS, write_documents, write_json
from bench.machine import describe_run
from bench.model import VARIANTS, Measure, Suite
from bench.nodes import Nodes, make_variants
from bench.progress import ConsoleProgress
from bench.report import open_console, print_table
from bench.runner import MeasureRecord, Runner
from bench.suites import SUITES
from bench.workers import WorkerPool
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine

_QUICK_SCALE = 0.08


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=sorted(SUITES), help="one suite; all when left out")
    parser.add_argument("--quick", action="store_true", help="one small round; docs stay as they are")
    parser.add_argument("--rows", metavar="NAME,NAME", help="only these measures; docs stay as they are")
    parser.add_argument("--rounds", type=int, help="rounds per measure (default 7)")
    parser.add_argument("--remark", default="", help="told in the document: what else ran on the machine")
    parser.add_argument("--engines", default=",".join(VARIANTS), help=f"some of {','.join(VARIANTS)}")
    parser.add_argument("--work", type=Path, default=RESULTS / "data", help="where nodes keep their data")
    options = parser.parse_args(arguments)
    options.engines = _names(parser, "--engines", options.engines, VARIANTS)
    return options


def _names(parser: argparse.ArgumentParser, option: str, text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"{option}: no {name!r}; there are {', '.join(known)}")
    return names


def chosen_measures(suite: Suite, rows: str | None) -> list[Measure]:
    if rows is None:
        return list(suite.measures)
    known = {measure.name: measure for measure in suite.measures}
    unknown = [name for name in rows.split(",") if name not in known]
    if unknown:
        raise EngineError(f"--rows: no {unknown[0]!r} in suite {suite.name}; there are {', '.join(known)}")
    return [known[name] for name in rows.split(",")]


def run_suite(suite: Suite, options: argparse.Namespace, console: Console) -> bool:
    """True when every line was measured (met or missed)."""
    measures = chosen_measures(suite, options.rows)
    rounds = options.rounds or (1 if options.quick else suite.rounds)
    scale = _QUICK_SCALE if options.quick else 1.0
    kafka = KafkaEngine()
    nodes = Nodes(make_variants(options.engines, kafka), options.work.resolve())
    whole = not options.quick and options.rows is None and set(options.engines) == set(VARIANTS)
    run = {
        "suite": suite.name,
        "whole": whole,
        "note": " ".join(filter(None, (suite.note, options.remark))),
        **describe_run(nodes, kafka, rounds=rounds, scale=scale),
    }
    output = RESULTS / f"{suite.name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    pool = WorkerPool()
    records: list[MeasureRecord] = []
    started = time.monotonic()
    try:
        with ConsoleProgress(console) as progress:
            runner = Runner(
                nodes=nodes, tools=kafka, pool=pool, rounds=rounds, scale=scale, progress=progress
            )
            progress.expect(sum(map(runner.turns_in, measures)))
            for measure in measures:
                records.append(runner.run(measure))
                run["minutes"] = round((time.monotonic() - started) / 60, 1)
                write_json(output, run, records)
    finally:
        nodes.stop()
        pool.close()
        shutil.rmtree(options.work, ignore_errors=True)
    results = [result for record in records for result in record.results()]
    print_table(console, f"{suite.title} ({rounds} rounds, {run['minutes']} minutes)", results)
    console.print(f"every round: {output}")
    write_documents(suite, results, records, run)
    return not any(record.error for record in records)


def raise_descriptor_limit() -> None:
    """1,000 connections need more descriptors than many shells allow; the nodes inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the nodes are stopped, too
    console = open_console()
    raise_descriptor_limit()
    try:
        suites = [SUITES[options.suite]] if options.suite else list(SUITES.values())
        measured = [run_suite(suite, options, console) for suite in suites]
    except EngineError as error:
        console.print(f"bench: {error}", markup=False)
        return 1
    return 0 if all(measured) else 1


if __name__ == "__main__":
    sys.exit(main())
