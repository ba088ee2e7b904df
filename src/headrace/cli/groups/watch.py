# SPDX-License-Identifier: Apache-2.0
"""`headrace groups describe --watch`: a live view on a terminal, one report after the other in a pipe.

Continues while nodes restart; ends with Ctrl-C or when the group is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from headrace.cli.groups import view as group_view
from headrace.cli.output import Output, clean
from headrace.client.errors import ClientError
from headrace.client.tools.group_report import GroupReport, GroupWatch

WATCH_EVERY_S = 1.0


def watch(watching: GroupWatch, output: Output) -> None:
    if output.terminal and not output.as_json:
        _paint(watching)
    for report in _reports(watching):
        if isinstance(report, ClientError):
            output.note(f"retrying: {report}")
        elif output.as_json:
            output.json_line(group_view.document(report))
        else:
            group_view.show(report, output)
            output.line("")
        output.flush()


def _paint(watching: GroupWatch) -> None:
    from rich.live import Live
    from rich.text import Text

    picture = ""
    with Live(screen=True, auto_refresh=False) as live:
        for report in _reports(watching):
            trouble = ""
            if isinstance(report, ClientError):
                trouble = f"retrying: {clean(str(report))}\n"
            else:
                frame = group_view.TerminalFrame()
                group_view.show_live(report, Output(stdout=frame), live.console.height)
                picture = frame.getvalue()
            live.update(Text(trouble, "red") + Text.from_ansi(picture), refresh=True)


def _reports(watching: GroupWatch) -> Iterator[GroupReport | ClientError]:
    """Yield reports continuously, or the error while the cluster does not respond."""
    while True:
        try:
            watching.poll()
            yield watching.report()
        except ClientError as error:
            if error.code == "GROUP_ID_NOT_FOUND":
                raise
            yield error
        time.sleep(WATCH_EVERY_S)
