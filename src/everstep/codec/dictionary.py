"""What short bodies are compressed against: names and words that many of them hold, and how often which byte comes.

A row is too short to tell these things by itself: compressed against them it gets smaller, in half the time. The
dictionary is part of the format, byte for byte. A better one would get a format byte of its own beside this one.
"""

from __future__ import annotations

import ormsgpack

# zstd's own beginning: what it is, a number for it, and the tables, counted over records like those of agents.
_HEAD = bytes.fromhex(
    "37a430ec"
    "74537665"
    "3d10b0a4493a300cd33241100409b61936f853055c43ad112925227253cb3669446e52ae060c5bc7c6d2ad5bdcc6c236fbff"
    "ff5b6b48e8a980188268e401a30010181a150e49e5ba07000480002d3396cf25c2589682389004210288010018a30000a000"
    "c014000000000044e6a242e3c2e2a2e2e1c1d1602c148b0864c2b03cd7031b000000010000000400000008000000"
)
_SIGNS = (
    b'Traceback (most recent call last):\n  File "/", line , in \n    return \n    raise ValueError(\nTypeError: def '
    b'self.import print(for i in range(function ": "", "": {"": ["}, {"true, "false, "null, "</div>https://www..com/'
    b"http://\n\n- **\n\n## \n1. ```python\n-01T00:00:00Z.000Z"
)
_WORDS = (
    b" ation which would could should about their there these other people because between through information"
    b" following example different number system according however without another first after before where while"
    b" using based provide found include also more than only some then them they when what your will with from have"
    b" that this are was were been has had not but can all one use may for the user of the, in the to the and the on"
    b" the for the with the is a of a in a to be it is that the from the by the as a. The . This . It . In . We . I ."
    b" If you want to . You can . Please . I will . Here is the . However, the . There are "
)
_NAMES = [
    "id", "type", "name", "status", "value", "text", "title", "url", "description", "created_at", "updated_at", "data",
    "items", "result", "results", "output", "input", "inputs", "query", "question", "answer", "message", "messages",
    "role", "content", "user", "assistant", "system", "tool", "tool_calls", "tool_call_id", "function", "arguments",
    "model", "usage", "prompt_tokens", "completion_tokens", "total_tokens", "finish_reason", "stop", "error",
    "metadata", "score", "source", "date", "path", "code",
]  # fmt: skip
# How bodies begin and go on, as msgpack; last, because what is nearest to the end is cheapest to refer to.
_BODIES = (
    b"\x93\xc0\xc0\x91\x93\x00\xa5state\x91\x92\x00\xa6answer\x91\x92\x00\xa6output\x91\x92\x00\xa6result"
    b"\x83\xa2id\xa4role\xa4tool\xa7content\xda\x00\x82\xa4role\xa4user\xa7content\xd9\x92"
    b"\x81\xa8messages\x91\x82\xa4role\xa9assistant\xa7content\xd9\x91\x92\x02\xa8messages"
    b"\x93\x02\xa8messages\x91\x82\xa4role"
)

DICTIONARY = b"".join((_HEAD, _SIGNS, _WORDS, *map(ormsgpack.packb, _NAMES), _BODIES))
