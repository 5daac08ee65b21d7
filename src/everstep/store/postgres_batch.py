"""The work of all who wait, on PostgreSQL: in as few statements as it takes, and all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from everstep.errors import EverstepError
from everstep.store import postgres_creating, postgres_writing
from everstep.store.base import Append, NewRun
from everstep.store.commit import Job
from everstep.store.postgres_link import Link
from everstep.store.postgres_writing import Single


def transact(link: Link, jobs: Sequence[Job]) -> None:
    """Do what was asked for, and note with each job what came of it."""
    new = [job for job in jobs if type(job.work) is NewRun]
    rest = [job for job in jobs if type(job.work) is not NewRun] if new else jobs
    plain = _is_whole(rest) if not new else not rest
    if not plain:
        link.execute("begin")
    if new:  # before the rest, where nothing can be about them yet
        _create(link, new)
    for appends, some in groupby(rest, lambda job: type(job.work) is Append):
        together = list(some)
        if appends:
            _append(link, together)
        else:
            for job in together:
                _try(link, job, job.work)
    if not plain:
        link.execute("commit")


def _is_whole(jobs: Sequence[Job]) -> bool:
    """Whether it needs no transaction around it: appends are whole by themselves, as is one statement alone."""
    return all(type(job.work) is Append for job in jobs) or (len(jobs) == 1 and type(jobs[0].work) is Single)


def _append(link: Link, jobs: Sequence[Job]) -> None:
    outcomes = postgres_writing.add(link, [job.work for job in jobs])
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.error, job.result = (outcome, None) if isinstance(outcome, EverstepError) else (None, outcome)


def _create(link: Link, jobs: Sequence[Job]) -> None:
    """Add plain new runs in one statement. Those that it did not make are looked at one by one."""
    first: dict[str, Job] = {}
    for job in jobs:
        first.setdefault(job.work.id, job)
    made = postgres_creating.create_plain(link, [job.work for job in first.values()])
    others = []
    for job in jobs:
        if first[job.work.id] is job and job.work.id in made:
            job.error, job.result = None, made[job.work.id]
        else:
            others.append(job)
    if others:
        with link.transaction():
            for job in others:
                _try(link, job, partial(postgres_creating.create_run, new=job.work))


def _try(link: Link, job: Job, work: Callable[[Link], Any]) -> None:
    job.error = None
    try:
        job.result = work(link)
    except EverstepError as error:
        job.error = error
