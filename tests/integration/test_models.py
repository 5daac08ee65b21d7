"""Models asked in runs: recorded once with what they used, served ever after, summed over a run and those inside."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Any

import apsw
import pytest

import everstep
from everstep import AsyncModelClient, Graph, ModelClient, Reply, Runner, ScriptedClient, Trail, node, step, workflow
from everstep.errors import (
    DamagedError,
    DivergenceError,
    EscapedStepWarning,
    JournalError,
    ModelError,
    ModelUnavailableError,
)
from everstep.models.scripted import Asked
from tests.integration.cli_support import data, run
from tests.integration.running import Crash

PRICES = {"m": (3.0, 15.0)}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def counted(text: str, *, model: str = "m", used: tuple[int, int] = (10, 2)) -> Reply:
    return Reply(text=text, model=model, finish_reason="stop", input_tokens=used[0], output_tokens=used[1])


def never(*args: Any, **settings: Any) -> str:
    raise AssertionError("a model was asked")


# The script.


def test_a_script_answers_in_order_and_keeps_what_it_was_asked() -> None:
    client = ScriptedClient(["one", counted("two")])
    conversation: list[dict[str, Any]] = [{"role": "user", "content": [{"text": "first"}]}]
    assert client.complete(conversation, model="m") == Reply(text="one", model="m", finish_reason="stop")
    conversation[0]["content"][0]["text"] = "changed since"
    assert client.complete(user("second"), model="n", temperature=0).input_tokens == 10
    before = [{"role": "user", "content": [{"text": "first"}]}]
    assert client.asked == [Asked(before, "m", {}), Asked(user("second"), "n", {"temperature": 0})]
    with pytest.raises(ModelError, match="it has no line for question 3"):
        client.complete(user("third"), model="m")


def test_a_script_answers_by_the_last_message_or_by_a_function_and_raises_what_it_holds() -> None:
    by_text = ScriptedClient({"hi": "hello", "bye": ModelUnavailableError("it", "busy", "Wait.")})
    assert by_text.complete(user("hi"), model="m").text == "hello"
    with pytest.raises(ModelUnavailableError):
        by_text.complete(user("bye"), model="m")
    for unknown in (user("what"), [], [{"role": "user", "content": [{"type": "text"}]}]):
        with pytest.raises(ModelError, match="no line for"):
            by_text.complete(unknown, model="m")
    by_function = ScriptedClient(lambda messages, model, **settings: f"{len(messages)} {model} {settings}")
    assert by_function.complete(user("x"), model="m", seed=1).text == "1 m {'seed': 1}"


def test_a_script_streams_word_by_word() -> None:
    assert list(ScriptedClient(["a word or two "]).stream(user("x"), model="m")) == ["a ", "word ", "or ", "two "]


def test_what_cannot_be_asked_is_refused() -> None:
    client = ScriptedClient(never)
    for messages in ("hi", {"role": "user"}, ["hi"]):
        with pytest.raises(TypeError, match="a list of mappings"):
            client.complete(messages, model="m")  # type: ignore[arg-type] # the point of the test
    with pytest.raises(TypeError, match=r"call stream\(\)"):
        client.complete(user("x"), model="m", stream=True)
    with pytest.raises(TypeError, match=r"call complete\(\)"):
        client.stream(user("x"), model="m", tools=[{}])
    assert client.asked == []


# In a run.


def ask_twice(client: ModelClient, model: str = "m") -> Any:
    @workflow(name="twice")
    def twice(topic: str) -> str:
        first = client.complete(user(f"About {topic}?"), model=model, temperature=0)
        second = client.complete([*user("Shorter?"), first.message], model=model)
        return f"{first.text} {second.text}"

    return twice


def test_a_call_is_a_step_with_what_was_asked_answered_and_used(trail: Trail) -> None:
    client = ScriptedClient([counted("long"), "short"], prices=PRICES)
    assert Runner(trail).run(ask_twice(client), "tea", id="r").value == "long short"
    first, second = trail.steps("r")[1:-1]
    assert (first.name, first.inputs) == (
        "model", {"messages": user("About tea?"), "model": "m", "settings": {"temperature": 0}},
    )  # fmt: skip
    assert first.output == {
        "text": "long", "model": "m", "finish_reason": "stop", "input_tokens": 10, "output_tokens": 2,
    }  # fmt: skip
    used = dict(first.usage or {})
    assert used.pop("latency_ms") >= 0
    assert used == {"model": "m", "input_tokens": 10, "output_tokens": 2, "cost": 60 / 1e6}
    assert set(second.usage or {}) == {"model", "latency_ms"}, "what is not known is not said"
    assert trail.state("r") == {}


def test_a_resumed_run_asks_no_model_again(trail: Trail) -> None:
    """Promise 2: what was answered, and paid for, is served."""
    client = ScriptedClient(["a", "b"])

    @workflow
    def talk() -> list[Reply]:
        replies = [client.complete(user("1"), model="m"), client.complete(user("2"), model="m")]
        if not crashed:
            crashed.append(True)
            raise Crash
        return replies

    crashed: list[bool] = []
    with pytest.raises(Crash):
        Runner(trail).run(talk, id="r")
    assert [reply.text for reply in Runner(trail).run(talk, id="r").value] == ["a", "b"]
    assert len(client.asked) == 2


def test_the_form_of_a_conversation_makes_no_difference(trail: Trail) -> None:
    @workflow
    def asking() -> str:
        return client.complete(messages, model="m", **settings).text

    messages: Any = [{"role": "user", "content": "x"}]
    settings = {"top_p": 1, "seed": 2}
    client = ScriptedClient(["a"])
    Runner(trail).run(asking, id="r")
    messages, settings = (MappingProxyType(messages[0]),), {"seed": 2, "top_p": 1}
    assert trail.replay("r", asking).identical


def test_a_replay_asks_no_model(trail: Trail) -> None:
    """Promise 6."""
    Runner(trail).run(ask_twice(ScriptedClient([counted("long"), "short"])), "tea", id="r")
    report = trail.replay("r", ask_twice(ScriptedClient(never)))
    assert report.identical
    assert [str(step.source) for step in report.steps] == ["recorded", "recorded"]


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"model": "n"}, "model"), ({"topic": "coffee"}, "messages"), ({"seed": 1}, "settings")],
)
def test_another_model_prompt_or_setting_diverges_there(trail: Trail, changed: dict[str, Any], what: str) -> None:
    """Promise 6: at the step, with both sides, and why."""

    def program(client: ModelClient, model: str = "m", topic: str = "tea", **settings: Any) -> Any:
        @workflow(name="program")
        def asking() -> str:
            client.complete(user("first"), model="m")
            return client.complete(user(topic), model=model, **settings).text

        return asking

    Runner(trail).run(program(ScriptedClient(["a", "b"])), id="r")
    report = trail.replay("r", program(ScriptedClient(never), **changed))
    assert not report.identical
    [divergence] = report.divergences
    assert (divergence.seq, divergence.cause) == (2, "changed argument")
    assert what in str(divergence.changes[0])


def test_a_changed_prompt_never_gets_the_old_answer(trail: Trail) -> None:
    client = ScriptedClient(["a", "b"])

    @workflow
    def asking(topic: str) -> str:
        text = client.complete(user(said[0]), model="m").text
        if len(client.asked) == 1 and said[0] == "old":
            raise Crash
        return text

    said = ["old"]
    with pytest.raises(Crash):
        Runner(trail).run(asking, "t", id="r")
    said[0] = "new"
    with pytest.raises(DivergenceError, match="changed argument"):
        Runner(trail).run(asking, "t", id="r")
    assert len(client.asked) == 1


def test_a_fork_can_have_another_answer(trail: Trail) -> None:
    Runner(trail).run(ask_twice(ScriptedClient(["long", "short"])), "tea", id="r")
    for outcome in ("none", {"text": "none"}):
        fork = trail.fork("r", at=1, outcome=outcome)
        fork.release()
        client = ScriptedClient(["so be it"])
        assert Runner(trail).resume(ask_twice(client), fork.run_id).value == "none so be it"
        assert client.asked[0].messages[-1] == {"role": "assistant", "content": "none"}


def test_a_stream_that_is_closed_early_says_what_it_used_and_is_served_as_far_as_it_came(trail: Trail) -> None:
    client = ScriptedClient(["a b c"])

    @workflow
    def some() -> str:
        for piece in client.stream(user("x"), model="m"):
            return piece
        return ""

    assert Runner(trail).run(some, id="r").value == "a "
    [row] = [row for row in trail.steps("r") if row.partial]
    assert (row.output, set(row.usage or {})) == (["a "], {"model", "latency_ms"})
    assert trail.replay("r", some).identical
    assert len(client.asked) == 1


def test_a_client_can_be_given_to_a_step_and_to_a_node(trail: Trail) -> None:
    client = ScriptedClient(lambda messages, **_: f"<{messages[0]['content']}>")

    @step
    def summary(client: ModelClient, text: str) -> str:
        return client.complete(user(text), model="m").text

    @workflow
    def inside() -> str:
        return summary(client, "a")

    assert Runner(trail).run(inside, id="r").value == "<a>"
    assert trail.replay("r", inside).identical

    @node(output="answer")
    def answer(question: str, client: ModelClient) -> str:
        everstep.current().usage(tool="retriever")
        return client.complete(user(question), model="m").text

    graph = Graph([answer]).bind(client=client)
    assert Runner(trail).run(graph, question="b", id="g")["answer"] == "<b>"
    assert trail.replay("g", graph).identical
    [of_node] = trail.get_steps("g")
    assert (of_node.usage, of_node.superstep) == ({"tool": "retriever"}, 0)


def test_a_call_that_misses_its_run_is_told_of_at_the_line_that_made_it(trail: Trail) -> None:
    client = ScriptedClient(["a"])
    began, asked = threading.Event(), threading.Event()

    def worker() -> None:
        began.wait()
        client.complete(user("x"), model="m")
        asked.set()

    outside = threading.Thread(target=worker)
    outside.start()

    @workflow
    def waiting() -> None:
        began.set()
        asked.wait()

    with pytest.warns(EscapedStepWarning, match=re.escape(__file__)):
        Runner(trail).run(waiting, id="r")
    outside.join()


def test_what_a_step_used_can_be_said_by_any_step_and_in_no_other_place(trail: Trail) -> None:
    @step(retry=everstep.Retry(attempts=2, backoff=0))
    def vendor(question: str) -> str:
        everstep.current().usage(model="v", input_tokens=5, output_tokens=1)
        everstep.current().usage(output_tokens=2, cost=0.5)
        if everstep.current().attempt == 1:
            raise ConnectionError
        return question

    @workflow
    def asking() -> str:
        with pytest.raises(JournalError, match=r"call usage\(\) in a step"):
            everstep.current().usage(model="v")
        return vendor("x")

    Runner(trail).run(asking, id="r")
    said = {"model": "v", "input_tokens": 5, "output_tokens": 2, "cost": 0.5}
    assert [row.usage for row in trail.steps("r")] == [None, said, said, None]
    assert trail.usage("r").total.cost == 1.0, "an attempt that failed was paid for"
    assert Runner().run(asking).value == "x", "without a trail too"


def test_awaited_calls_of_a_script_are_steps_too(trail: Trail) -> None:
    client = AsyncModelClient(ScriptedClient(["a", "b c"]))

    @workflow
    async def asking() -> list[str]:
        first = await client.complete(user("1"), model="m")
        return [first.text, *[piece async for piece in client.stream(user("2"), model="m")]]

    assert asyncio.run(everstep.AsyncRunner(trail).run(asking, id="r")).value == ["a", "b ", "c"]
    assert [row.name for row in trail.steps("r") if row.kind == "step"] == ["model", "model stream"]
    assert trail.replay("r", asking).identical
    assert asyncio.run(AsyncModelClient(ScriptedClient(["plain"])).complete(user("1"), model="m")).text == "plain"


# Sums.


def nested(client: ModelClient) -> Any:
    @workflow(name="inner")
    def inner(n: int) -> str:
        return client.complete(user(f"inner {n}"), model="m").text

    @workflow(name="outer")
    def outer() -> None:
        client.complete(user("outer"), model="m")
        inner(1)
        inner(2)
        client.complete(user("other"), model="n")

    return outer


def script(messages: Any, model: str) -> Reply:
    return counted("ok", model=model, used=(1000, 100))


def test_what_a_run_used_is_summed_by_model_with_the_runs_inside(trail: Trail) -> None:
    Runner(trail).run(nested(ScriptedClient(script, prices=PRICES)), id="r")
    used = trail.usage("r")
    assert (used.runs, [(each.model, each.calls) for each in used.models]) == (3, [("m", 3), ("n", 1)])
    assert (used.total.calls, used.total.tokens, used.total.input_tokens, used.total.output_tokens) == (
        4,
        4400,
        4000,
        400,
    )
    assert (used.total.unpriced, used.models[1].cost) == (1, None)
    assert used.total.cost == used.models[0].cost == pytest.approx(3 * (3000 + 1500) / 1e6)
    assert used.to_dict()["models"][1]["cost"] is None
    with trail.fork("r") as fork:
        assert trail.usage(fork.run_id).total == used.total, "what is shared is part of its history"
    child = next(run.id for run in trail.runs(parent="r"))
    trail.drop(child)
    assert trail.usage("r").total.calls == 3


def test_show_sums_what_models_were_asked(trail: Trail, tmp_path: Path) -> None:
    Runner(trail).run(nested(ScriptedClient(script, prices=PRICES)), id="r")
    path = tmp_path / "trail.db"
    shown = run("show", "r", "--trail", path).stdout
    assert "m, 3 calls, 3,300 tokens (3,000 in, 300 out), cost 0.0135" in shown
    assert "n, 1 call, 1,100 tokens (1,000 in, 100 out)\n" in shown
    assert "all, 4 calls, 4,400 tokens (4,000 in, 400 out), cost 0.0135, 1 call of unknown cost" in shown
    assert data("show", "r", "--trail", path)["show"]["usage"] == trail.usage("r").to_dict()


def test_a_run_can_be_shown_though_one_inside_is_damaged(trail: Trail, tmp_path: Path) -> None:
    """Promise 9: the sums say so."""
    Runner(trail).run(nested(ScriptedClient(script)), id="r")
    trail.close()
    path, connection = tmp_path / "trail.db", apsw.Connection(str(tmp_path / "trail.db"))
    connection.execute("update step set started = started + 1 where id in (select head from run where parent = 'r')")
    connection.close()
    shown = run("show", "r", "--trail", path)
    assert shown.exit_code == 0
    assert "what they were asked cannot be told: damage in run" in " ".join(shown.stdout.split())
    assert data("show", "r", "--trail", path)["show"]["usage"] is None
    with everstep.open(path, read_only=True) as again, pytest.raises(DamagedError):
        again.usage("r")


def test_show_says_nothing_of_models_where_none_was_asked(trail: Trail, tmp_path: Path) -> None:
    @workflow
    def quiet() -> int:
        return 1

    Runner(trail).run(quiet, id="r")
    assert "model" not in run("show", "r", "--trail", tmp_path / "trail.db").stdout


def test_what_others_recorded_under_their_own_names_is_summed_and_nonsense_is_not(trail: Trail) -> None:
    with trail.record("r") as one:
        one.step("a", usage={"prompt_tokens": 3, "completion_tokens": 4, "cost": 1})
        one.step("b", usage={"total_tokens": 10})
        one.step("c", usage={"model": 7, "input_tokens": "many", "cost": "much", "latency_ms": None})
        one.step("d")
    total = trail.usage("r").total
    assert (total.calls, total.tokens, total.input_tokens, total.cost, total.unpriced) == (3, 17, 3, 1.0, 2)
