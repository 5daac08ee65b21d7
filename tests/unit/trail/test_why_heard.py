"""What captured calls said, which of them are alike, and which line of a traceback is the program's."""

from __future__ import annotations

import json
from typing import Any

import pytest

import everstep
from everstep.model import StepError
from everstep.store.memory import MemoryStore
from everstep.trail.parsing import parsed
from everstep.trail.why.calls import read
from everstep.trail.why.heard import alike, said
from everstep.trail.why.where import where


def heard(node_type: str, output: Any) -> Any:
    trail = everstep.Trail(MemoryStore())
    with trail.record("r") as run:
        return said(run.step("call", node_type=node_type, output=output))


@pytest.mark.parametrize(
    ("node_type", "output", "told"),
    [
        ("http", {"status": 200, "body": '{"a": [1]}', "headers": [["Date", "now"]]}, {"a": [1]}),
        ("http", {"status": 204, "headers": []}, None),
        ("http", {"status": 503, "body": "busy"}, {"status": 503, "body": "busy"}),
        ("http", {"status": 200, "body": '{"a": [1'}, '{"a": [1'),
        ("http", {"status": "done", "body": "{}"}, {"status": "done", "body": "{}"}),  # by hand
        ("model", {"status": 200, "body": '{"id": "c-1", "text": "[1]", "usage": {}}'}, {"text": [1]}),
        ("process", {"exit": 0, "pid": 7, "stdout": '{"a": 1}\n'}, {"a": 1}),
        ("process", {"exit": 0, "pid": 7}, ""),
        ("process", {"exit": 2, "pid": 7, "stderr": "no"}, {"exit": 2, "stderr": "no"}),
        ("tool", {"result": {"content": [{"type": "text", "text": '{"a": 1}'}]}}, {"a": 1}),
        ("tool", {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}}, {"error": "no"}),
        ("tool", {"error": {"code": -32000}}, {"error": {"code": -32000}}),
        ("tool", {"result": {"content": []}}, {"content": []}),
        ("task", {"status": 200, "body": "{}"}, {"status": 200, "body": "{}"}),  # a step of one's own
        ("http", None, None),
    ],
)
def test_an_answer_is_what_it_says_and_not_how_it_travelled(node_type: str, output: Any, told: Any) -> None:
    assert heard(node_type, output) == told


def test_the_events_of_a_stream_are_one_answer() -> None:
    events = [{"id": "c", "delta": {"text": part}, "stop": stop} for part, stop in (('{"a"', None), (": 1}", "end"))]
    text = "".join(f"event: part\ndata: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    assert parsed(text) == {"id": "c", "text": {"a": 1}, "stop": "end"}
    assert parsed("data: none of it is JSON") == "data: none of it is JSON"
    assert parsed("data: {broken") == "data: {broken"


@pytest.mark.parametrize("depth", [400, 100_000])
def test_json_of_many_brackets_stays_a_text(depth: int) -> None:
    text = "[" * depth + "]" * depth
    assert parsed(text) == text
    assert heard("model", {"status": 200, "body": json.dumps({"text": text})}) == {"text": text}


def forms(*paths: str) -> list[list[str]]:
    trail = everstep.Trail(MemoryStore())
    with trail.record("r") as run:
        for path in paths:
            run.step("GET shop", node_type="http", inputs={"url": f"http://shop{path}"}, output={"status": 200})
    return [
        [call.inputs["url"].removeprefix("http://shop") for call in calls] for calls in alike(read(trail, "r").calls)
    ]


def test_calls_of_one_endpoint_are_alike_whatever_thing_they_name() -> None:
    prices = [f"/price/{name}?day=1" for name in "abc"]
    assert forms("/login", "/login", *prices) == [["/login", "/login"], prices]
    assert forms("/v1/order/1/rows", *prices, "/v1/order/2/rows") == [["/v1/order/1/rows", "/v1/order/2/rows"], prices]
    assert forms("/rates", "/rates") == [["/rates", "/rates"]]
    assert forms("", "/") == [["", "/"]]


def traced(*files: str) -> StepError:
    lines = [f'  File "{file}", line {at}, in f\n    code {at}' for at, file in enumerate(files, 1)]
    return StepError("ValueError", "no", "Traceback (most recent call last):\n" + "\n".join(lines))


def test_the_line_is_the_programs_wherever_that_stands_and_never_ours() -> None:
    library, ours = "/x/lib/python3.12/json/decoder.py", "/y/src/everstep/capturing/seams/httpx.py"
    inner, outer = traced(ours, library), traced("agent.py", ours, library)
    assert where([inner, outer]) == "agent.py:1 in f: code 1"
    assert where([inner]) == f"{library}:2 in f: code 2"
    assert where([traced(library, ours)]) == f"{library}:1 in f: code 1"
    assert where([traced(ours, "/y/src/everstep/hot.py")]) is None
    assert where([traced("/y/everstep/agents/mine.py")]) == "/y/everstep/agents/mine.py:1 in f: code 1"
