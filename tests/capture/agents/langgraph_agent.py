"""An agent as a graph of LangGraph: three nodes that ask alike and at once, and one that joins them."""

import asyncio
import operator
import os
from typing import Annotated, Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

model = ChatOpenAI(model="gpt-test", base_url=os.environ["MODEL_URL"] + "/v1", api_key=lambda: "sk-test", max_retries=0)


class State(TypedDict):
    """What the nodes share."""

    topic: str
    findings: Annotated[list[str], operator.add]
    summary: str


def say(*words: object, sep: str = " ") -> None:
    """One line of the transcript."""
    print(*words, sep=sep, flush=True)


def research(state: State) -> dict[str, Any]:
    """Ask; all three ask the same."""
    return {"findings": [str(model.invoke(f"Tell me of {state['topic']}.").content)]}


async def research_awaited(state: State) -> dict[str, Any]:
    """The same, awaited."""
    return {"findings": [str((await model.ainvoke(f"Tell me of {state['topic']}.")).content)]}


def join(state: State) -> dict[str, Any]:
    """Ask once more, about what was found; the answer comes as a stream."""
    return {"summary": "".join(str(part.content) for part in model.stream("; ".join(state["findings"])))}


def built(node: Any) -> Any:
    """The graph, with this function for each of the three."""
    graph = StateGraph(State)
    graph.add_node("join", join)
    for name in ("one", "two", "three"):
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, "join")
    graph.add_edge("join", END)
    return graph.compile(checkpointer=InMemorySaver())


def main() -> None:
    """Every way to run it."""
    plain, awaited = built(research), built(research_awaited)
    start: Any = {"topic": "tides", "findings": [], "summary": ""}

    def thread(name: str) -> Any:
        return {"configurable": {"thread_id": name}}

    got = plain.invoke(start, thread("invoke"))
    say("invoke", *got["findings"], got["summary"], sep="\n  ")
    for update in plain.stream(start, thread("stream"), stream_mode="updates"):
        say("update", update)

    async def awaiting() -> None:
        got = await awaited.ainvoke(start, thread("ainvoke"))
        say("ainvoke", *got["findings"], got["summary"], sep="\n  ")
        async for update in awaited.astream(start, thread("astream"), stream_mode="updates"):
            say("awaited update", update)

    asyncio.run(awaiting())  # in one loop: the model keeps its connections
    say("done")


if __name__ == "__main__":
    main()
