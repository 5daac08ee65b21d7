"""Where a run of a graph stands: versions of values decide what runs, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep import END, Decision, Graph, gate, node, route
from everstep.graph.progress import Progress


class Played:
    """A graph that is gone through without a run: what each node gives, or chooses, is said here."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Any], says: Mapping[str, Any]) -> None:
        self.progress = Progress(graph.shape, graph.bound, dict(inputs))
        self.says = {name: list(each) if isinstance(each, list) else each for name, each in says.items()}
        self.calls: list[list[tuple[str, dict[str, int]]]] = []  # by superstep

    def step(self) -> list[str]:
        """One superstep: the names of the nodes in it."""
        calls = self.progress.next()
        self.calls += [[(call.node.name, call.versions) for call in calls]] if calls else []
        for call in calls:
            said = self.says.get(call.node.name, call.node.name)
            said = said.pop(0) if isinstance(said, list) else said
            if call.node.targets:
                self.progress.decided(call, Decision(said))
            else:
                self.progress.produced(dict.fromkeys(call.node.outputs, said))
        return [call.node.name for call in calls]

    def all(self) -> list[list[str]]:
        """All supersteps there are."""
        found = []
        while names := self.step():
            found.append(names)
        return found


@node(output="a")
def one(x: int) -> int:
    return x


@node(output="b")
def two(a: int) -> int:
    return a


def test_what_runs_at_the_same_time_is_one_superstep() -> None:
    other = one.renamed("other", output="c")
    last = node(output="d", name="last")(lambda b, c: (b, c))
    assert Played(Graph([last, one, other, two]), {"x": 1}, {}).all() == [["one", "other"], ["two"], ["last"]]


def test_a_value_has_version_one_when_it_is_given_and_one_more_each_time_it_is_produced() -> None:
    """Rule 3 of the seeds."""
    grow = node(output="n", name="grow")(lambda n: n + 1)
    more = route(targets=["grow", END], name="more")(lambda n: END)
    played = Played(Graph([grow, more]), {"n": 0}, {"more": ["grow", "grow", END]})
    assert played.all() == [["more"], ["grow"], ["more"], ["grow"], ["more"]]
    assert [calls[0][1] for calls in played.calls] == [
        {"n": 1}, {"n": 1, "_more": 1}, {"n": 2}, {"n": 2, "_more": 2}, {"n": 3},
    ]  # fmt: skip


def test_a_node_that_its_gate_waits_for_runs_once_before_it_is_chosen() -> None:
    grow = node(output="n", name="grow")(lambda n=0: n + 1)
    more = route(targets=["grow", END], name="more")(lambda n: END)
    played = Played(Graph([grow, more]), {}, {"more": ["grow", END]})
    assert played.all() == [["grow"], ["more"], ["grow"], ["more"]]
    assert [calls[0][1] for calls in played.calls] == [{}, {"n": 1}, {"n": 1, "_more": 1}, {"n": 2}]


def test_a_node_waits_for_what_is_about_to_change_though_it_has_a_default() -> None:
    report = node(output="r", name="report")(lambda x, a=None, b=None: (x, a, b))
    assert Played(Graph([report, one, two]), {"x": 1}, {}).all() == [["one"], ["two"], ["report"]]


def test_no_node_of_a_loop_sees_a_new_value_beside_an_old_one_that_was_made_from_it() -> None:
    """In each round it waits for all that the round makes of the new value, as it does in the first."""
    write = node(output="draft", name="write")(lambda notes=(): notes)
    critique = node(output="notes", name="critique")(lambda draft: draft)
    compare = node(output="todo", name="compare")(lambda draft, notes: (draft, notes))
    ready = route(targets=["write", END], name="ready")(lambda todo: END)
    played = Played(Graph([compare, critique, write, ready]), {}, {"ready": ["write", END]})
    round_ = [["write"], ["critique"], ["compare"], ["ready"]]
    assert played.all() == [*round_, *round_]


def test_what_a_node_gives_itself_does_not_make_it_run_again() -> None:
    grow = node(output="log", name="grow")(lambda x, log=(): [*log, x])
    assert Played(Graph([grow]), {"x": 1}, {}).all() == [["grow"]]


def test_a_node_that_follows_a_loop_runs_for_each_turn_unless_it_is_chosen() -> None:
    grow = node(output="n", name="grow")(lambda n=0: n + 1)
    more = gate(when_true="grow", when_false="done", name="more")(lambda n: n < 2)
    each, done = (node(output=f"out_{name}", name=name)(lambda n: n) for name in ("each", "done"))
    played = Played(Graph([grow, more, each, done]), {}, {"more": ["grow", "done"]})
    assert played.all() == [["grow"], ["more", "each"], ["grow"], ["more", "each"], ["done"]]


def test_a_chosen_node_waits_for_what_it_takes() -> None:
    choose = route(targets=["late"], name="choose")(lambda x: "late")
    late = node(output="l", name="late")(lambda b: b)
    assert Played(Graph([choose, late, one, two]), {"x": 1}, {"choose": "late"}).all() == [
        ["choose", "one"], ["two"], ["late"],
    ]  # fmt: skip


def test_two_decisions_for_one_node_before_it_ran_are_one_call() -> None:
    first, second = (route(targets=["end"], name=name)(lambda x: "end") for name in ("r1", "r2"))
    end = node(output="e", name="end")(lambda x: x)
    played = Played(Graph([first, second, end]), {"x": 1}, {"r1": "end", "r2": "end"})
    assert played.all() == [["r1", "r2"], ["end"]]
    assert played.calls[1] == [("end", {"x": 1, "_r1": 1, "_r2": 1})]


def test_calls_that_two_routes_chose_are_told_apart() -> None:
    """With the same versions of the same values: what is on record of the one is not taken for the other."""
    first = route(targets=["end"], name="r1")(lambda x: "end")
    second = route(targets=["end"], name="r2")(lambda a: "end")
    end = node(output="e", name="end")(lambda x: x)
    progress = Progress(Graph([first, second, end, one]).shape, {}, {"x": 1})
    digests = []
    while calls := progress.next():
        for call in calls:
            if call.node.name == "end":
                digests.append(call.digest)
            elif call.node.targets:
                progress.decided(call, Decision("end"))
            else:
                progress.produced({"a": 1})
    assert len(digests) == len(set(digests)) == 2


def test_a_decision_that_chooses_another_takes_back_one_that_was_not_used() -> None:
    loop = node(output="n", name="loop")(lambda n=0: n)
    more = route(targets=["loop", END], name="more")(lambda n: None)
    choose = gate(when_true="yes", when_false="no", name="choose")(lambda n: n)
    yes = node(output="y", name="yes")(lambda never, n: n)
    no = node(output="z", name="no")(lambda n: n)
    never = node(output="never", name="give")(lambda z: z)
    says = {"choose": ["yes", "no"], "more": ["loop", None]}
    played = Played(Graph([loop, more, choose, yes, no, never]), {}, says)
    assert played.all() == [["loop"], ["more", "choose"], ["loop"], ["more", "choose"], ["no"], ["give"]]


def test_end_is_the_end_when_the_superstep_is_over() -> None:
    stop = route(targets=[END], name="stop")(lambda x: END)
    played = Played(Graph([stop, one, two]), {"x": 1}, {"stop": END})
    assert played.all() == [["stop", "one"]]
    assert played.progress.ended


def test_a_route_that_chooses_nothing_lets_nothing_run() -> None:
    choose = route(targets=["one"], name="choose")(lambda x: None)
    assert Played(Graph([choose, one]), {"x": 1}, {"choose": None}).all() == [["choose"]]


def test_a_route_may_choose_several() -> None:
    choose = route(targets=["one", "other", "third"], many=True, name="choose")(lambda x: [])
    nodes = [choose, one, one.renamed("other", output="c"), one.renamed("third", output="d")]
    assert Played(Graph(nodes), {"x": 1}, {"choose": [["one", "third"]]}).all() == [["choose"], ["one", "third"]]


def test_two_that_give_one_value_never_run_at_the_same_time() -> None:
    """Exclusive branches meet when one of them is longer: which came last would be a matter of chance."""
    tick = node(output="n", name="tick")(lambda n=0: n)
    more = route(targets=["tick", END], name="more")(lambda n: None)
    choose = gate(when_true="long", when_false="short", name="choose")(lambda n: n)
    long, between, last = (
        node(output=output, name=name, inputs={"p": takes})(lambda p: p)
        for name, takes, output in (("long", "n", "l1"), ("between", "l1", "l2"), ("last", "l2", "v"))
    )
    short = node(output="v", name="short", inputs={"p": "n"})(lambda p: p)
    says = {"choose": ["long", "short"], "more": ["tick", None]}
    played = Played(Graph([tick, more, choose, long, between, last, short]), {}, says)
    assert played.all() == [
        ["tick"], ["more", "choose"], ["tick", "long"], ["more", "choose", "between"], ["last"], ["short"],
    ]  # fmt: skip
    assert played.progress.versions["v"] == 2


def test_what_is_bound_is_a_value_from_the_beginning() -> None:
    bound = Graph([node(output="y", name="use")(lambda x, client: client)], bind={"client": "it"})
    progress = Progress(bound.shape, bound.bound, {"x": 1})
    [call] = progress.next()
    assert progress.arguments(call) == {"x": 1, "client": "it"}
    assert progress.results() == {}


def test_a_default_is_given_where_there_is_no_value() -> None:
    progress = Progress(Graph([node(output="y", name="use")(lambda x, z=7: z)]).shape, {}, {"x": 1})
    [call] = progress.next()
    assert progress.arguments(call) == {"x": 1, "z": 7}
    assert call.versions == {"x": 1}
