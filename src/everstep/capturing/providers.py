"""Calls to language models among all others: whose they are, which model, what they used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of(method: str, path: str, body: Any) -> str | None:
    """What a call asks of a model, None if it asks something else."""
    if method != "POST" or not isinstance(body, Mapping) or "model" not in body:
        return None
    if path.endswith("/chat/completions"):
        return "openai chat"
    if path.endswith("/responses"):
        return "openai responses"
    if path.endswith("/embeddings"):
        return "openai embeddings"
    if path.endswith("/messages"):
        return "anthropic messages"
    return None


def used(asked: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
    """What an answer says that it used."""
    del asked, stored
    return None
