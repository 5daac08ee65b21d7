"""How a trail on a server fares: what the server is set to, how large the tables are, and the largest runs.

Every role may ask for this. What a server does not tell is None, and no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

from everstep.store.health import CANDIDATES, PIECES, SAMPLE, WEEK, Health, RunSize, growth, largest, scaled
from everstep.store.postgres_link import Link, ask
from everstep.store.postgres_writing import NOW

_TABLES = ("run", "tag", "step", "keyframe", "blob", "ref", "dictionary", "fact")
_NEARLY = 0.8  # of the connections: the next few trails to be opened are refused
_MANY_DEAD = 0.5  # of a table's rows
_FEW = 10_000  # rows, of which half may well be dead


class _Setting(NamedTuple):
    """A setting of the server, with the value that breaks something, and a word on what it breaks and the way out."""

    name: str
    broken: str
    what: str


# Of one that a session may set itself, what counts is what the role and the database begin with.
_SETTINGS = (
    _Setting(
        "fsync",
        "off",
        "fsync is off: when the server's machine stops, acknowledged steps are lost and the trail may be damaged. Set "
        "fsync = on in postgresql.conf, and restart the server.",
    ),
    _Setting(
        "full_page_writes",
        "off",
        "full_page_writes is off: a page that was half written when the machine stopped stays damaged. Set "
        "full_page_writes = on in postgresql.conf, and reload it.",
    ),
    _Setting(
        "synchronous_commit",
        "off",
        "synchronous_commit is off for this role or database: commits are acknowledged before they are on disk. "
        "Everstep switches it on for its own connections; whatever else writes there may lose its last commits. Take "
        "it back with `alter role ... reset synchronous_commit`, `alter database ... reset synchronous_commit`, or in "
        "postgresql.conf.",
    ),
    _Setting(
        "data_checksums",
        "off",
        "data_checksums is off: a bit that flips in the row of a run is not seen. Stop the server, and switch them on "
        "with `pg_checksums --enable`.",
    ),
    _Setting(
        "zero_damaged_pages",
        "on",
        "zero_damaged_pages is on: rows on a damaged page vanish without an error. Take it out of postgresql.conf.",
    ),
    _Setting(
        "ignore_checksum_failure",
        "on",
        "ignore_checksum_failure is on: damaged pages are read as if they were whole. Take it out of postgresql.conf.",
    ),
    _Setting(
        "autovacuum",
        "off",
        "autovacuum is off: every step leaves a dead version of its run's row, and the tables grow without end. Set "
        "autovacuum = on in postgresql.conf, and reload it.",
    ),
)
_LIMITS = ("max_connections", "superuser_reserved_connections", "reserved_connections")
_ASKED: LiteralString = "select name, reset_val from pg_settings where name = any(%s)"
# A table may have been cut into partitions: what it is then is in those.
_SIZES: LiteralString = """
with part as (
  select t.name, pg_total_relation_size(c.oid) as bytes, c.relpersistence = 'u' as unlogged,
    'autovacuum_enabled=false' = any(c.reloptions) or 'autovacuum_enabled=off' = any(c.reloptions) as unvacuumed,
    s.n_live_tup as live, s.n_dead_tup as dead,
    pg_relation_size(c.oid) * (s.n_dead_tup::float8 / nullif(s.n_live_tup + s.n_dead_tup, 0)) as dead_bytes,
    pg_relation_size(nullif(c.reltoastrelid, 0)) * (l.n_dead_tup::float8 / nullif(l.n_live_tup + l.n_dead_tup, 0))
      as dead_aside
  from unnest(%s::text[]) as t(name) cross join to_regclass('everstep_' || t.name) as whole(id)
  cross join lateral (select whole.id::oid union select relid::oid from pg_partition_tree(whole.id)) as piece(id)
  join pg_class as c on c.oid = piece.id
  left join pg_stat_all_tables as s on s.relid = c.oid left join pg_stat_all_tables as l on l.relid = c.reltoastrelid)
select name, sum(bytes)::bigint, bool_or(unlogged), coalesce(bool_or(unvacuumed), false),
  coalesce(sum(live), 0)::bigint, coalesce(sum(dead), 0)::bigint,
  coalesce(sum(coalesce(dead_bytes, 0) + coalesce(dead_aside, 0)), 0)::float8
from part group by name order by 2 desc, 1
"""
_SUMS: LiteralString = "select status::int, count(*) from everstep_run where id is not null group by status"
# Rows are spread over the time from a run's beginning to its end, or to when its owner last held it.
_GROWTH: LiteralString = f"""
with clock as (select {NOW} as now), lived as (
  select seq + 1 - swept as rows, created / 1e6 as begun, least(coalesce(ended / 1e6, lease), now) as ended
  from everstep_run cross join clock)
select max(now), coalesce(sum(rows), 0)::bigint, min(begun)::float8, coalesce(sum(case
  when begun >= now - %s then rows
  when ended > now - %s then rows * (ended - now + %s) / (ended - begun)
  else 0 end), 0)::float8
from clock left join lived on true
"""
_MANY_ROWS: LiteralString = (
    "select key from everstep_run where id is not null order by seq + 1 - swept desc, key desc limit %s"
)
_LARGE_PIECES: LiteralString = """
select r.run from (select run, blob from everstep_ref order by run desc limit %s) as r
join everstep_blob as b on b.id = r.blob group by r.run order by sum(octet_length(b.data)) desc limit %s
"""
_OF_RUN: LiteralString = "select id, seq + 1 - swept, seq from everstep_run where key = %s and id is not null"
_SAMPLE: LiteralString = """
select count(*), coalesce(sum(octet_length(meta) + octet_length(data)), 0)::bigint
from everstep_step where run = %s and seq > %s
"""
_PIECES: LiteralString = """
select coalesce(sum(octet_length(data)), 0)::bigint from everstep_blob
where id in (select blob from everstep_ref where run = %s and seq > %s)
"""
_KEYFRAMES: LiteralString = "select coalesce(sum(octet_length(data)), 0)::bigint from everstep_keyframe where run = %s"


class _Table(NamedTuple):
    name: str
    bytes: int
    unlogged: bool
    unvacuumed: bool
    live: int
    dead: int
    dead_bytes: float


def health(link: Link) -> Health:
    """What can be told of a trail on a server."""
    settings: dict[str, str] = dict(ask(link, _ASKED, ([*(each.name for each in _SETTINGS), *_LIMITS],)))
    tables = [_Table._make(row) for row in ask(link, _SIZES, (list(_TABLES),))]
    now, rows, first, recent = ask(link, _GROWTH, (WEEK, WEEK, WEEK))[0]
    oldest = ask(link, "select id from everstep_run where id is not null order by key limit 1")
    facts = _facts(link, settings)
    return Health(
        store="postgresql", facts=facts, sizes={table.name: table.bytes for table in tables},
        dead=round(sum(table.dead_bytes for table in tables)), rows=rows, runs=dict(ask(link, _SUMS)),
        oldest=oldest[0][0] if oldest else None,
        growth=growth(first, recent, now),
        largest=largest(_measured(link)), weaknesses=list(_weaknesses(facts, tables)),
    )  # fmt: skip


def _facts(link: Link, settings: Mapping[str, str]) -> dict[str, Any]:
    version, replica, used, schema = ask(
        link,
        "select current_setting('server_version'), pg_is_in_recovery(), "
        "(select sum(numbackends)::int from pg_stat_database), "
        "(select value from everstep_fact where name = 'schema')",
    )[0]
    limits = [int(settings[name]) for name in _LIMITS if name in settings]
    return {
        "server": version, "schema": schema, **{each.name: settings.get(each.name) for each in _SETTINGS},
        "replica": replica, "connections": used,
        "connections_allowed": limits[0] - sum(limits[1:]) if limits else None,
    }  # fmt: skip


def _weaknesses(facts: Mapping[str, Any], tables: Sequence[_Table]) -> Iterator[str]:
    yield from (each.what for each in _SETTINGS if facts[each.name] == each.broken)
    if facts["replica"]:
        yield (
            "the server is a replica: it can be read, not written, and may be behind its primary. Name the primary, or "
            "all hosts with target_session_attrs=read-write."
        )
    used, allowed = facts["connections"], facts["connections_allowed"]
    if used is not None and allowed and used >= allowed * _NEARLY:
        yield (
            f"{used} of {allowed} connections are taken: trails that are opened may be refused. Raise max_connections, "
            "or open fewer trails; one serves all the runs of a process."
        )
    for table in tables:
        name = f"everstep_{table.name}"
        if table.unlogged:
            yield (
                f"the table {name} is unlogged: the server empties it after a crash. Mend it with `alter table {name} "
                "set logged`."
            )
        if table.unvacuumed:
            yield (
                f"autovacuum is off for the table {name}: it grows without end. Take that back with `alter table "
                f"{name} reset (autovacuum_enabled)`."
            )
        if table.dead > max(_FEW, _MANY_DEAD * (table.live + table.dead)):
            yield (
                f"most rows of the table {name} are dead: vacuuming does not keep up, or a long transaction holds it "
                f"back. Look for old transactions in pg_stat_activity, then `vacuum {name}`."
            )


def _measured(link: Link) -> Iterator[RunSize]:
    keys = {key for (key,) in ask(link, _MANY_ROWS, (CANDIDATES,))}
    keys |= {key for (key,) in ask(link, _LARGE_PIECES, (PIECES, CANDIDATES))}
    for key in keys:
        for run_id, rows, last in ask(link, _OF_RUN, (key,)):
            within = (key, last - min(rows, SAMPLE))
            [(sampled, own)], [(pieces,)] = ask(link, _SAMPLE, within), ask(link, _PIECES, within)
            [(frames,)] = ask(link, _KEYFRAMES, (key,))
            yield RunSize(run_id, rows, scaled(rows, sampled, own + pieces) + frames)
