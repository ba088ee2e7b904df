# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/arrow.md run, one after the other, against a live node."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.arrow.kernels.types import FIELDS
from headrace.client.arrow.read.reader import ReadRequest
from headrace.client.arrow.stream.stream_options import StreamRequest
from headrace.client.arrow.transform.options import TransformRequest
from headrace.client.arrow.write.write_request import WriteRequest

TEXT = (Path(__file__).parents[2] / "docs/arrow.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def test_the_examples_run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, 3, 1) for name in ("orders", "baskets", "copies")]
    ).values():
        future.result(20)
    exec(compile("\n".join(EXAMPLES), "docs/arrow.md", "exec"), {"BOOTSTRAP": bootstrap})
    printed = capsys.readouterr().out
    assert "refused row 1:" in printed
    assert f"headrace.topic('baskets', bootstrap='{bootstrap}'" in printed
    assert "struct<id: int64, item: struct<name: string, price: double>>" in printed
    assert "value.item.price" in printed
    assert "'error': 'more behind the end of the JSON value" in printed
    assert "[(1,)]" in printed


@pytest.mark.parametrize("request_class", [ReadRequest, StreamRequest, TransformRequest, WriteRequest])
def test_every_option_is_explained(request_class: type) -> None:
    names = {"topic", "topics", "source", "target", "reading", "data", "bootstrap"}
    options = set(inspect.signature(request_class).parameters) - names
    assert options <= set(re.findall(r"`(\w+)`", TEXT))
    assert set(FIELDS) <= set(re.findall(r"`(\w+)`", TEXT))
