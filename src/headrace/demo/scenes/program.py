# SPDX-License-Identifier: Apache-2.0
"""Scene: one program with two modes. Three terminals consume as one group, a fourth one produces."""

from __future__ import annotations

from rich.text import Text

from headrace.demo.programs import Program
from headrace.demo.scene import Scene, Stage
from headrace.demo.screen import WIDTH

TOPIC, GROUP = "multi-topic", "my-group"
MESSAGES = 24
MODULE = "headrace.cli.kafka_demo"
SHOWN = 3
COLOURS = ("cyan", "magenta", "yellow", "green")


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "`kafka-demo` is one program with two modes, written with the usual client library. Three terminals "
        "consume as one group; a fourth one produces:"
    )
    screen.run(f"headrace topics create {TOPIC} --partitions 3")
    consume = ("-mode", "consumer", "-topic", TOPIC, "-group", GROUP)
    consumers = [Program(MODULE, *consume) for _ in range(3)]
    try:
        stage.wait("each consumer has a partition", lambda: all(_has(each, "assigned") for each in consumers))
        produce = ("-mode", "producer", "-topic", TOPIC, "-messages", str(MESSAGES), "-pause", "0.02")
        producer = Program(MODULE, *produce)
        code = producer.wait()
        stage.wait("all was received", lambda: sum(map(_received, consumers)) == MESSAGES)
        for number, each in enumerate(consumers):
            _show(stage, number, consume, each)
        _show(stage, 3, produce, producer)
        screen.check("the producer ended with exit code 0", code == 0)
        screen.check("each of the three consumers has one partition", all(map(_has_one_partition, consumers)))
        received = sum(map(_received, consumers))
        screen.check(f"together they received the {MESSAGES} messages", received == MESSAGES)
        screen.say("Terminal 1 is closed. Its partition goes to another one; the others keep theirs:")
        before = [len(each.lines) for each in consumers]
        consumers[0].stop()
        stage.wait("another one has it", lambda: _new_lines(consumers, before, "assigned") != [])
        for number in (1, 2):
            _show_lines(stage, number, consumers[number].lines[before[number] :])
        screen.check("nothing was taken from the others", _new_lines(consumers, before, "revoked") == [])
    finally:
        for each in consumers:
            if each.running:
                each.stop()


def _has(program: Program, word: str) -> bool:
    return any(f" {word} " in line for line in list(program.lines))


def _has_one_partition(program: Program) -> bool:
    assigned = [line for line in list(program.lines) if " assigned " in line]
    return [line.count("multi-topic") or line.count("partition") for line in assigned] == [1]


def _received(program: Program) -> int:
    return sum(" received " in line for line in list(program.lines))


def _new_lines(consumers: list[Program], before: list[int], word: str) -> list[str]:
    """What the consumers that stayed have printed since, if it is about partitions."""
    pairs = list(zip(consumers, before, strict=True))[1:]
    return [line for each, count in pairs for line in list(each.lines)[count:] if f" {word} " in line]


def _show(stage: Stage, number: int, arguments: tuple[str, ...], program: Program) -> None:
    lines = list(program.lines)
    more = [f"… {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
    _show_lines(stage, number, [f"$ kafka-demo {' '.join(arguments)}", *lines[:SHOWN], *more])


def _show_lines(stage: Stage, number: int, lines: list[str]) -> None:
    short = [line if len(line) <= WIDTH - 3 else line[: WIDTH - 4] + "…" for line in lines]
    text = Text("\n").join(Text.assemble((f"{number + 1}│ ", COLOURS[number]), line) for line in short)
    stage.screen.show(text)


SCENE = Scene(
    name="program",
    title="One program, two modes, four terminals",
    play=play,
    varies=(r"(?m)(^\d│ [^$\n]*\n)+",),
)
