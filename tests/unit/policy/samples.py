"""One example of every shape of secret, made at run time, so that no scanner takes this file for a leak."""

from __future__ import annotations

import base64
from typing import NamedTuple

KEY = bytes(range(32))

MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6A7b8C9d0E1f2"
HEX = "0123456789abcdef" * 4
DIGITS = "1234567890" * 4
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


class Sample(NamedTuple):
    rule: str
    text: str  # the shortest text that matches: one character less, and it does not
    secret: str = ""  # the part that is replaced; all of it if empty


def block(kind: str, body: str) -> str:
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def basic(user: str, word: str) -> str:
    return base64.b64encode(f"{user}:{word}".encode()).decode()


def jwt(header: str = "hbGciOiJIUzI1", payload: str = "eyJzdWIiOiIxMjM0In0", signature: str = "c2lnbmF0dXJl") -> str:
    return "ey" + "J" + header + "." + payload + "." + signature


# What a token begins with, what follows it, and how much of that it needs.
_TOKENS = [
    ("anthropic", "sk-" + "ant-", MIXED, 20),
    ("openai", "sk" + "-", "proj-" + MIXED, 20),
    ("openai", "sk" + "-", MIXED, 20),
    *(("github", "gh" + kind + "_", MIXED, 36) for kind in "pousr"),
    ("github", "github" + "_pat_", MIXED, 40),
    ("gitlab", "gl" + "pat-", MIXED, 20),
    ("gitlab", "gl" + "rt-", MIXED, 20),
    ("aws-access-key", "AK" + "IA", MIXED.upper(), 16),
    ("aws-access-key", "AS" + "IA", MIXED.upper(), 16),
    ("google", "AI" + "za", MIXED, 35),
    ("google-oauth", "GOC" + "SPX-", MIXED, 20),
    ("google-oauth", "ya" + "29.", MIXED, 20),
    *(("slack", "xo" + "x" + kind + "-", DIGITS, 11) for kind in "abprs"),
    ("slack", "xa" + "pp-", "1-A" + DIGITS, 20),
    ("stripe", "sk" + "_live_", MIXED, 16),
    ("stripe", "rk" + "_live_", MIXED, 16),
    ("stripe", "wh" + "sec_", MIXED, 24),
    ("huggingface", "h" + "f_", MIXED, 30),
    ("npm", "np" + "m_", MIXED, 36),
    ("pypi", "py" + "pi-", "AgEIcHlwaS5vcmc" + MIXED, 50),
    ("groq", "gs" + "k_", MIXED, 40),
    ("xai", "xa" + "i-", MIXED, 40),
    ("perplexity", "pp" + "lx-", MIXED, 40),
    ("tavily", "tv" + "ly-", "dev-" + MIXED, 20),
    ("nvidia", "nv" + "api-", MIXED, 40),
    ("replicate", "r" + "8_", MIXED, 30),
    ("pinecone", "pc" + "sk_", MIXED, 40),
    ("langsmith", "ls" + "v2_", "pt_" + MIXED, 35),
    ("digitalocean", "do" + "p_v1_", HEX, 64),
    ("docker", "dc" + "kr_pat_", MIXED, 20),
    ("vault", "hv" + "s.", MIXED, 24),
    ("grafana", "gl" + "sa_", MIXED[:32] + "_0123abcd", 41),
    ("telegram", "12345678:" + "AA", MIXED, 33),
]

_SECRET_40 = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzEXAMPLE"[:39] + "9"

SAMPLES = [
    *(Sample(rule, prefix + body[:length]) for rule, prefix, body, length in _TOKENS),
    Sample("sendgrid", "S" + "G." + MIXED[:16] + "." + MIXED[:16]),
    *(
        Sample("aws-secret-key", f"{name} = {_SECRET_40}", _SECRET_40)
        for name in ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "secretAccessKey", "secret-access-key")
    ),
    Sample("slack-webhook", "hooks." + "slack.com/services/T0123456/B0123456/" + "xY", "T0123456/B0123456/xY"),
    Sample("bearer", "Bearer " + "abcdef12", "abcdef12"),
    Sample("bearer", "bearer " + "abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
    Sample("basic", "Basic " + "YWI6Y2Rl", "YWI6Y2Rl"),
    Sample("basic", "basic " + "dXNlcjp3b3JkMTIz", "dXNlcjp3b3JkMTIz"),
    Sample("bearer", "bearer " + "abcdef1234567890", "abcdef1234567890"),
    Sample("url-password", "://u:p@", "p"),
]

# Shapes whose shortest text is not shortened by a character at the end.
MORE = [
    Sample("jwt", jwt()),
    Sample("jwt", jwt(signature="")),
    Sample("jwt", jwt() + ".aXY." + MIXED),
    Sample("openai", "sk-" + "svcacct-" + MIXED + "T3BlbkFJ" + MIXED),
    Sample("gitlab", "glpat-" + MIXED[:27] + ".01." + "1a2b3c4d5"),
    Sample("github", "ghs_" + "123456_" + jwt("hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", MIXED, MIXED)),
    Sample("private-key", block("PRIVATE KEY", LINE)),
    Sample("private-key", block("RSA PRIVATE KEY", f"Proc-Type: 4,ENCRYPTED\n\n{LINE}\n{LINE}\nab==")),
    Sample("private-key", block("OPENSSH PRIVATE KEY", LINE).replace("\n", "\\n")),
    Sample("private-key", block("PGP PRIVATE KEY BLOCK", f"Version: 1\n\n{LINE}")),
    Sample("private-key", block("EC PRIVATE KEY", f"{LINE}\n{LINE}\nshort").partition("\n-----END")[0]),
    *(
        Sample("basic", f"Basic {basic(user, word)}", basic(user, word))
        for user, word in [("user", "pass"), ("", "hunter22"), ("abc", "d1!"), ("Aladdin", "open sesame")]
    ),
    Sample("bearer", f"Bearer {MIXED[:20]}.{MIXED[:20]}==", f"{MIXED[:20]}.{MIXED[:20]}=="),
    Sample("url-password", "postgres://me:hunter:2@db.example/x?y=z", "hunter:2"),
    Sample("url-password", "redis://:hunter2@cache", "hunter2"),
    Sample("url-password", "https://" + "me:wörd@example.com", "wörd"),
]
