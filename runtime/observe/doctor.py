"""``refluid doctor``: asks all servers of a job, puts their answers together, and says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from refluid.runtime.observe.asking import ask
from refluid.runtime.observe.examination import (
    Answers,
    Finding,
    NoAnswer,
    Status,
    as_dict,
    examine,
    joined_waits,
    statuses,
)
from refluid.runtime.observe.status import wait_table
from refluid.runtime.transport.connection import Connection
from refluid.tables import as_text

_REPLY_TIMEOUT = 5.0  # seconds


def consult(endpoints: Sequence[str], *, as_json: bool) -> int:
    """Prints what is wrong with a job; returns 0 if nothing is, else 1."""
    answers = ask_all(endpoints)
    findings = examine(answers)
    print(json.dumps(as_dict(answers, findings)) if as_json else report(answers, findings), flush=True)
    return int(bool(findings))


def ask_all(endpoints: Sequence[str]) -> dict[str, Status | NoAnswer]:
    """The answers of all servers, which are asked at the same time."""

    def ask_one(endpoint: str) -> Status | NoAnswer:
        with closing(Connection(endpoint)) as connection:
            return ask(connection, _REPLY_TIMEOUT)

    with ThreadPoolExecutor(len(endpoints)) as threads:
        return dict(zip(endpoints, threads.map(ask_one, endpoints), strict=True))


def report(answers: Answers, findings: Sequence[Finding]) -> str:
    """The answers and findings for people."""
    parts = [_summary(answers)]
    waits = joined_waits(answers)
    if waits:
        parts.append(as_text(wait_table(waits)).rstrip())
    for number, finding in enumerate(findings, 1):
        parts.append(f"{number}. {finding.text}.\n   To do: {finding.remedy}.")
    if not findings:
        parts.append("Nothing is wrong.")
    return "\n\n".join(parts)


def _summary(answers: Answers) -> str:
    found = statuses(answers)
    text = f"{len(found)} of {len(answers)} servers answer"
    if not found:
        return f"{text}."
    trainers = [view for status in found[:1] for view in status["trainers"]]
    present = sum(view["joined"] and not view["left"] for view in trainers)
    rounds = sorted({status["round"] for status in found})
    shown = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return f"{text}: mode {found[0]['mode']}, round {shown}, {present} of {len(trainers)} trainers take part."
