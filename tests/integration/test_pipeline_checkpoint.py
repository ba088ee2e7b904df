# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline checkpoint` on a live node: an older checkpoint beside the ledger of its topic sink."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.main import run
from headrace.client.arrow.write.transaction import Transaction
from headrace.client.arrow.write.transaction_session import TransactionFenced
from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.checkpoint import Checkpoint
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity
from pyspark_headrace.writing.internal_topics import SINKS
from pyspark_headrace.writing.ledger import Published, SinkLedger, transactional_id
from pyspark_headrace.writing.publish import publish_batch
from tests.compat.sink_driver import settings_for, task, values_of

SOURCE = "43deb35a-1ab5-4f09-b578-2d3cf421a3da"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A query that has published three batches, each of ten records, and its checkpoint."""

    bootstrap: str
    query: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def batch(self, number: int) -> None:
        """As Spark runs it: first its entry, then the sink, then the commit."""
        (self.folder / f"offsets/{number}").write_text(f"v1\n{{}}\n{line(10 * (number + 1))}")
        settings = settings_for(self.bootstrap, self.query, checkpoint=str(self.folder))
        publish_batch([task(settings, values_of(number), query=self.query)], settings, number)
        (self.folder / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def command(self, *words: str) -> dict[str, Any]:
        for path in self.folder.glob("*/*"):
            os.utime(path, (0, 0))  # as if it had been a while ago
        name = ["pipeline", "checkpoint", str(self.folder), "--bootstrap", self.bootstrap]
        code = run([*name, "--json", *words])
        out, said = self.capsys.readouterr()
        assert code == 0, said
        document: dict[str, Any] = json.loads(out)
        return document


def line(offset: int) -> str:
    held = {"id": "id", "partitions": {"0": {"epoch": 0, "offset": offset}}}
    return json.dumps({"query": SOURCE, "topics": {"orders": held}, "version": 1})


@pytest.fixture
def lab(bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lab:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": topic}))
    lab = Lab(bootstrap=bootstrap, query=topic, folder=folder, capsys=capsys)
    lab.batch(0)
    shutil.copytree(folder, tmp_path / "backup")
    for number in (1, 2):
        lab.batch(number)
    return lab


def restore(lab: Lab) -> None:
    shutil.rmtree(lab.folder)
    (lab.folder.parent / "backup").rename(lab.folder)


def test_a_restored_checkpoint_goes_on_behind_its_sink(lab: Lab) -> None:
    shown = lab.command()
    assert (shown["state"], shown["batch"], shown["sink_batch"]) == ("in step", 2, 2)
    restore(lab)
    with pytest.raises(ClientError, match=r"with batch 1: .*`headrace pipeline checkpoint .* --repair`"):
        lab.batch(1)
    shown = lab.command("--repair")
    assert (shown["state"], shown["batch"], shown["finished"]) == ("behind", 1, False)
    assert not shown["repaired"], "a dry run"
    assert shown["offsets"] == [
        {"source": 0, "topic": "orders", "partition": 0, "checkpoint": 10, "sink": 30}
    ]
    assert lab.command("--repair", "--execute")["repaired"]
    found = Checkpoint(lab.folder)
    assert (found.last, found.finished, found.entry(2).sources) == (2, True, (line(30),))
    lab.batch(3)
    assert lab.command()["state"] == "in step"


def test_the_open_transaction_of_a_dead_driver_is_ended_first(lab: Lab) -> None:
    """It might be committed yet, and then the sink would be ahead again."""
    restore(lab)
    ledger = SinkLedger(lab.query, pooled_client(lab.bootstrap), timeout_ms=20_000)
    with closing(Transaction(transactional_id(lab.query), bootstrap=lab.bootstrap)) as dead:
        dead.begin()
        entry = ledger.entry(Published(query=lab.query, batch=BatchIdentity(number=3)))
        dead.append_batches(SINKS.name, ledger.partition, [entry])
        assert lab.command("--repair", "--execute")["sink_batch"] == 2
        with pytest.raises(TransactionFenced):
            dead.commit()
    assert lab.command()["state"] == "in step"


def test_a_sink_without_batches_of_the_query_is_told(lab: Lab) -> None:
    assert lab.command("--sink", "another")["state"] == "no batch"
    (lab.folder / "metadata").write_text(json.dumps({"id": "another query"}))
    assert run(["pipeline", "checkpoint", str(lab.folder), "-b", lab.bootstrap, "--sink", lab.query]) == 1
    assert f"was written by query {lab.query}, but the checkpoint is of query another query" in (
        lab.capsys.readouterr().err
    )
