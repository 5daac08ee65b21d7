r"""What counts as a secret: the shapes of tokens, and the names that secrets go by.

Every shape declares what lets it be skipped cheaply, because nearly every value that passes is clean:

- `literals`: one of them is in every match;
- `in_run`: the match begins with a literal that lies in a run of RUN token characters, or at most NEAR before one,
  so that bytes without such a run need not be searched for it at all;
- `loose`: the pattern for encoded bytes. There the neighbours of a string are lengths and type codes, which may look
  like letters, so `loose` leaves out what a pattern says about its surroundings. It may match too much, never too
  little: what it finds is looked at again, string by string. It begins with plain text: a search jumps there.

A pattern must not read far from each of many beginnings and then give up: texts come from anywhere, and one made of
beginnings would take quadratic time. Hence the bounds in look-aheads, and `++`, which does not try again with less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

from everstep.policy.patterns import Pattern

RUN = 16
NEAR = 7

_NAME = Pattern(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Rule:
    """A shape of text that must not be written. Where the pattern has a group `secret`, only that part is replaced.

    The pattern is searched with `re.ASCII`. `literals` makes it cheap: a text that holds none of them is not searched,
    so one of them must be part of every match. Without literals every value is searched, which costs more than
    writing it.
    """

    name: str
    pattern: str
    literals: tuple[str, ...] = ()
    loose: str | None = field(default=None, kw_only=True)
    in_run: bool = field(default=False, kw_only=True)
    sign: ClassVar[bytes] = b""  # what is in every match, too, and is rarer than its literals

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern, ready to search."""
        return _compiled(self.pattern)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a rule's name goes into placeholders; use a-z, 0-9 and inner '-', not {self.name!r}")
        if type(self.literals) is not tuple or "" in self.literals:
            raise ValueError(f"the literals of rule {self.name!r} must be a tuple of texts that are not empty")
        try:
            matches_nothing = self.regex.search("")
        except re.error as error:
            raise ValueError(f"the pattern of rule {self.name!r} is not a regular expression: {error}") from None
        if matches_nothing:
            raise ValueError(f"the pattern of rule {self.name!r} matches the empty text; make it ask for something")


class _Own(Rule):
    """A rule of RULES. It is checked by the tests, and compiled when it is needed: all of them take 10 ms."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass


class _OwnWithAt(_Own):
    """One whose matches hold an @: of texts with a web address few do."""

    __slots__ = ()
    sign = b"@"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _edge(start: str, before: str = "A-Za-z0-9") -> str:
    r"""`start`, where a word begins. After an escape (`\n`, `\u00e9`, `%3D`) a word begins too, though letters end it.

    The test stands behind `start`, so that a search can still jump from one `start` to the next.
    """
    escapes = r"\\[abfnrtv]", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", r"%[0-9A-Fa-f]{2}"
    after_escape = "".join(f"|(?<={escape}{start})" for escape in escapes)
    return f"{start}(?:(?<![{before}]{start}){after_escape})"


def _token(name: str, start: str, rest: str, *literals: str, end: str = "", before: str = "A-Za-z0-9") -> Rule:
    """A token that begins with one of `literals`, at the beginning of a word, and holds a long run."""
    return _Own(name, _edge(start, before) + rest + end, literals, loose=start + rest, in_run=True)


def _prefixed(name: str, prefix: str, body: str) -> Rule:
    return _token(name, re.escape(prefix), body, prefix)


_T = "[A-Za-z0-9_-]"
_A = "[A-Za-z0-9]"
_B64 = "[A-Za-z0-9+/]"
_BEGINS = rf"(?={_T}{{{RUN}}})"
_BREAK = r"(?:\s|\\+[nr])"
_KEY_LINE = r"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
_ASSIGN = rf"[\"'\\]*\s*[:=]\s*[\"'\\]*(?P<secret>{_B64}{{40}})"
# "user:password" in base64 has its colon at one of three places in a group of four characters. Asking for it, and for
# a mixture of cases or a digit, keeps "Basic Operations" as it is.
_COLON = rf"(?:O[g-v]|{_B64}[DTjz][o-r]|{_B64}{{2}}[AEIMQUYcgkosw048]6)"
_MIXED = r"(?=[A-Za-z+/]{0,60}(?:[0-9=]|[a-z][A-Z]))"

_BASIC = rf"(?P<secret>(?=[A-Za-z0-9+/=]{{8}}){_MIXED}(?:{_B64}{{4}})*?{_COLON}{_B64}*={{0,2}})"
_BEARER = r"(?P<secret>(?=[A-Za-z._~+/-]{0,23}+[0-9]|[A-Za-z0-9._~+/-]{24})[A-Za-z0-9._~+/-]{7,}[A-Za-z0-9_~+/-]=*)"
_URL_USER = r"://[^\s/:@\[\]\"'<>]*:(?P<secret>[^\s/@\"'<>]+)@"
_SLACK_HOOK = r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,})"

# Where two rules meet in one place, the one that stands first here names it.
RULES: tuple[Rule, ...] = (
    _Own(
        "private-key",
        # The whole block; of a block that was cut off, the lines that are there.
        rf"-----BEGIN {_KEY_LINE}(?:[^-]*+(?:-(?!----)[^-]*+)*+-----END {_KEY_LINE}"
        rf"|(?:{_BREAK}*+[A-Za-z0-9+/=]{{16,}}+)+(?:{_BREAK}++{_B64}++)?)",
        ("-----BEGIN ",),
        loose=rf"-----BEGIN {_KEY_LINE}",
    ),
    _prefixed("anthropic", "sk-ant-", rf"{_T}{{20,}}"),
    # Other vendors' keys begin with `sk-` too. Words that do ("sk-learn-contrib-…") have neither digits nor capitals.
    _token("openai", "sk-", rf"(?=[a-z_-]{{0,40}}+[A-Z0-9]){_T}{{20,}}", "sk-"),
    _token(
        "github",
        "gh",
        rf"[pousr]_{_T}{{36,}}(?:\.{_T}{{16,}})*",
        *("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    ),
    _prefixed("github", "github_pat_", r"[A-Za-z0-9_]{40,}"),
    _token(
        "gitlab",
        "gl",
        rf"(?:pat|dt|rt|cbt|ptt|ft|soat|oas|agent)-{_T}{{20,}}(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{6,12}})?",
        *("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-", "glagent-"),
    ),
    _token("aws-access-key", "A(?:KI|SI)A", "[A-Z0-9]{16}", "AKIA", "ASIA", end="(?![A-Za-z0-9])"),
    _Own(
        "aws-secret-key",
        rf"(?:secret_access_key|SECRET_ACCESS_KEY|secret-access-key){_ASSIGN}(?![A-Za-z0-9+/])",
        ("secret_access_key", "SECRET_ACCESS_KEY", "secret-access-key"),
        loose=rf"(?:secret_access_key|SECRET_ACCESS_KEY|secret-access-key){_ASSIGN}",
        in_run=True,
    ),
    # The same by its other name, one character too short to be a run.
    _Own(
        "aws-secret-key",
        rf"ecretAccessKey{_ASSIGN}(?![A-Za-z0-9+/])",
        ("ecretAccessKey",),
        loose=rf"ecretAccessKey{_ASSIGN}",
    ),
    _prefixed("google", "AIza", rf"{_T}{{35,}}"),
    _prefixed("google-oauth", "GOCSPX-", rf"{_T}{{20,}}"),
    _prefixed("google-oauth", "ya29.", rf"{_T}{{20,}}"),
    _token("slack", "xox", r"[abeoprs]-[A-Za-z0-9-]{11,}", "xox"),
    _prefixed("slack", "xapp-", r"[A-Za-z0-9-]{20,}"),
    _Own("slack-webhook", _SLACK_HOOK, ("hooks.slack.com/",), loose=_SLACK_HOOK),
    _token("stripe", "[sr]k_", rf"(?:live|test)_{_A}{{16,}}", "sk_live_", "sk_test_", "rk_live_", "rk_test_"),
    _prefixed("stripe", "whsec_", rf"{_A}{{24,}}"),
    _prefixed("huggingface", "hf_", rf"{_A}{{30,}}"),
    _prefixed("npm", "npm_", rf"{_A}{{36,}}"),
    _prefixed("pypi", "pypi-", rf"{_T}{{50,}}"),
    _prefixed("sendgrid", "SG.", rf"{_T}{{16,}}\.{_T}{{16,}}"),
    _prefixed("groq", "gsk_", rf"{_A}{{40,}}"),
    _prefixed("xai", "xai-", rf"{_A}{{40,}}"),
    _prefixed("perplexity", "pplx-", rf"{_A}{{40,}}"),
    _prefixed("tavily", "tvly-", rf"{_T}{{20,}}"),
    _prefixed("nvidia", "nvapi-", rf"{_T}{{40,}}"),
    _prefixed("replicate", "r8_", rf"{_A}{{30,}}"),
    _prefixed("pinecone", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    _prefixed("langsmith", "lsv2_", r"[a-z]{2}_[A-Za-z0-9_]{32,}"),
    _prefixed("digitalocean", "dop_v1_", r"[0-9a-f]{64}"),
    _prefixed("docker", "dckr_pat_", rf"{_T}{{20,}}"),
    _prefixed("vault", "hvs.", rf"{_T}{{24,}}"),
    _prefixed("grafana", "glsa_", rf"{_A}{{32}}_[0-9a-f]{{8}}"),
    _Own(
        "telegram",
        rf"(?<![0-9])[0-9]{{8,10}}:AA{_T}{{33}}(?!{_T})",
        (":AA",),
        loose=rf":AA{_T}{{33}}",
        in_run=True,
    ),
    # A dotted token is one run of words after another: the edge keeps a search from beginning inside a run again and
    # again. Two segments follow the header when it is signed, four when it is encrypted; any of them may be empty.
    _token("jwt", "eyJ", rf"{_T}{{13,}}(?:\.{_T}*){{2,4}}", "eyJ", before="A-Za-z0-9_-"),
    # A capital is rare, so looking for it costs next to nothing. Written small, these are words of any text, and only
    # what begins with a run is looked at; all of it is still replaced under the name of its header.
    _Own("bearer", f"Bearer +{_BEARER}", ("Bearer ",), loose=f"Bearer +{_BEARER}"),
    _Own("bearer", f"bearer {_BEGINS}{_BEARER}", ("bearer ",), loose=f"bearer {_BEGINS}{_BEARER}", in_run=True),
    _Own("basic", f"Basic +{_BASIC}", ("Basic ",), loose=f"Basic +{_BASIC}"),
    _Own("basic", f"basic {_BEGINS}{_BASIC}", ("basic ",), loose=f"basic {_BEGINS}{_BASIC}", in_run=True),
    _OwnWithAt("url-password", _URL_USER, ("://",), loose=_URL_USER),
)

# Names. One of these words is in every name that means a secret; a name with none of them is done with.
HINTS = "key|token|pass|secret|auth|cookie|cred|bearer|phrase"

_WORDS = Pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HINT = Pattern(HINTS, re.IGNORECASE)
_LONGEST_NAME = 64
# Tokens are counted far more often than they are kept secret: `token` alone, and `tokens` after most words, is a
# number of them, or a piece of text.
_SECRET_NAME = Pattern(
    r"""(?:
      pass_?(?:word|wd|phrase|code)s?(?:_?(?:hash|digest))?
    | secrets?(?:_?(?:key|value|string|binary|text|data))?
    | credentials?
    | (?:api|private|secret|access|account|auth|signing|encryption|master|shared|subscription|application)_?keys?
    | (?:access|refresh|auth)_?tokens?
    | (?:authentication|authorization|session|security|bearer|api|csrf|xsrf|secret|personal|deploy|private)_?token
    | (?:git_?hub|git_?lab|slack|discord|telegram|hugging_?face|vault)_?token
    | (?:^|_)(?:id|app|bot|hf|gh|npm|pypi|jwt|service|device|verification)_?token
    | ^(?:proxy|http|https|x)?_?authorization(?:_?header)?
    | ^auth_?header
    | ^(?:set|http|session|auth)?_?cookies?2?
    | ^bearer
    | (?:seed|recovery)_?phrase
    )$""",
    re.VERBOSE,
)
_SECRET_HEADER = Pattern(r"x-[a-z0-9-]+-(?:key|token|secret)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value under this name is a secret. Case, `_`, `-` and camelCase make no difference.

    An option of a command is named with its dashes: what is a number of tokens elsewhere is none in `--token`.
    """
    if len(name) > _LONGEST_NAME or not _HINT.search(name):
        return False
    if name == "--token":
        return True
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdigit():  # `password2` is one as well
        words.pop()
    return bool(
        _SECRET_NAME.search("_".join(words)) or _SECRET_NAME.search("".join(words)) or _SECRET_HEADER.fullmatch(name)
    )
