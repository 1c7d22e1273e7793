#!/usr/bin/env python3
"""Computes identity.json from the written rules, by another route than the service.

Nothing here is derived from the Rust code: JSON is read by Python's parser, decimals are Python's
unbounded integers, and Google's field names are folded everywhere except inside the members that
hold the caller's own data (the service folds only what its table lists).

    python3 tests/vectors/make_vectors.py > tests/vectors/identity.json
"""

import hashlib
import json
import re
from fractions import Fraction

OWN_DATA = {
    "responseSchema", "responseJsonSchema", "_responseJsonSchema", "parameters",
    "parametersJsonSchema", "args", "response", "labels", "partMetadata", "headers",
}
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class Number(str):
    """A number in the spelling it was sent in."""


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number)


def decimal(spelling):
    sign, whole, fraction, exponent = re.fullmatch(
        r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", spelling
    ).groups()
    fraction, exponent = fraction or "", int(exponent or 0)
    integer, exponent = int(whole + fraction), exponent - len(fraction)
    if integer == 0:
        return "0"
    while integer % 10 == 0:
        integer, exponent = integer // 10, exponent + 1
    return f"{sign}{integer}" + (f"e{exponent}" if exponent else "")


def part(tag, data):
    return tag + str(len(data)).encode() + b":" + data


def canonical(value):
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, Number):
        return part(b"d", decimal(value).encode())
    if isinstance(value, str):
        data = value.encode()
        if len(data) <= 128:
            return part(b"s", data)
        return b"h" + str(len(data)).encode() + b":" + hashlib.sha256(data).digest()
    if isinstance(value, list):
        return f"a{len(value)}:".encode() + b"".join(map(canonical, value))
    members = sorted((name.encode(), member) for name, member in value.items())
    pairs = (part(b"s", name) + canonical(member) for name, member in members)
    return f"o{len(members)}:".encode() + b"".join(pairs)


def fold(value, api_root=False):
    if isinstance(value, list):
        return [fold(element) for element in value]
    if not isinstance(value, dict):
        return value
    folded = {}
    for name, member in value.items():
        if not api_root and not name.startswith("_"):
            name = re.sub("_([a-z])", lambda found: found.group(1).upper(), name)
        assert name not in folded
        folded[name] = member if name in OWN_DATA else fold(member)
    return folded


def without(value, tokens):
    token, rest = tokens[0], tokens[1:]
    if isinstance(value, list) and token.isdigit() and int(token) < len(value):
        at = int(token)
        inner = without(value[at], rest) if rest else None
        return value[:at] + [inner] + value[at + 1:]
    if isinstance(value, dict) and token in value:
        value = dict(value)
        if rest:
            value[token] = without(value[token], rest)
        else:
            del value[token]
    return value


def settle(body):
    if body.get("generationConfig") == {}:
        body = {name: member for name, member in body.items() if name != "generationConfig"}
    return body


def identity(case):
    api, scope = case["surface"] == "api", case["scope"]
    body = fold(parse(case["request"]), api_root=api)
    out = {"labels"}
    if api:
        out |= {"topic", "windowMinutes", "requestedAt", "site", "pipeline", "model"}
    body = {name: member for name, member in body.items() if name not in out}
    if not api and body.get("systemInstruction", {}).get("role") == "user":
        body["systemInstruction"] = without(body["systemInstruction"], ["role"])
    body = settle(body)
    model, variant, publish = case["model"], case.get("variant"), case.get("publish")

    def digest(purpose, model, variant, publish, body):
        parts = [case["surface"], *scope, model, variant, publish, body]
        lead = b"oncepress-identity-1\n" + purpose + b"\n"
        return hashlib.sha256(lead + b"".join(map(canonical, parts))).hexdigest()

    fingerprint = digest(b"fingerprint", model, variant, publish, body)
    if api:
        body = without(body, ["publish"])
        for name in ("systemPrompt", "userPrompt"):
            if name in body:
                body[name] = body[name].strip(WHITE_SPACE)
        if body.get("schemaVersion") is not None:
            for place in (body, body.get("generationConfig", {})):
                for name in ("responseSchema", "responseJsonSchema", "_responseJsonSchema"):
                    if place.get(name) is not None:
                        place[name] = True
    for pointer in case.get("ignores", []):
        body = without(body, pointer[1:].split("/"))
        model = None if pointer == "/model" else model
        variant = None if pointer == "/variant" else variant
    derived = digest(b"derived key", model, variant, None, settle(body))
    key = ":".join(["idem", *scope, derived[:32]])
    return {**case, "fingerprint": fingerprint, "digest": derived, "derivedKey": key}


def check_decimals(pairs):
    """A second opinion on the decimals that are small enough to be compared as fractions."""
    small = [(Fraction(spelling), form) for spelling, form in pairs if len(form) < 40
             and abs(int((form.split("e") + ["0"])[1])) < 1000]
    for value, form in small:
        assert value == Fraction(form)
        assert all((value == other) == (form == same) for other, same in small)


DECIMALS = [
    "0", "-0", "0.0", "-0.000e7", "1", "1.0", "10e-1", "1E0", "100", "-1.50", "0.001", "123.456e2",
    "9007199254740992", "9007199254740993", "1e-400", "1e400", "1e999999999", "10e999999998",
    "-12.3400E+0017", "0.1e-" + "9" * 60, "10e" + "9" * 60, "1" + "0" * 40, "0." + "0" * 40 + "1",
    "1e-0", "5e+0",
]
CANONICAL = [
    "null", "[true,false,null]", '"x"', '{"b":[1.0,null],"a":"x"}', '{"aB":1,"a_b":2,"a":{}}',
    '["e\\u0301","\\u00e9","\\ud83d\\ude00","\\u0000"]', '{"\\uffff":1,"\\ud83d\\ude00":2,"":3}',
    json.dumps("x" * 128), json.dumps("x" * 129), json.dumps("é" * 64), json.dumps("é" * 65),
    '[[],{},"",0,-0,[[]]]',
]
SCOPE = ["acme", "blog.example", "daily"]
LONG = "An article about kilns. " * 40
IDENTITIES = [
    {"name": "the smallest request", "surface": "api", "model": "gemini-3.8-flash",
     "request": '{"site":"blog.example","pipeline":"daily","userPrompt":"Hello"}'},
    {"name": "everything the API takes", "surface": "api", "model": "gemini-flash-latest",
     "ignores": ["/generationConfig/seed"],
     "request": json.dumps({
         "site": "blog.example", "pipeline": "daily", "model": "gemini-flash-latest",
         "systemPrompt": "\ufeff\u3000Write plainly.\n", "userPrompt": f"\u0085{LONG}\u2029",
         "responseSchema": {"type": "OBJECT", "properties": {"a_b": {"type": "STRING"}}},
         "schemaVersion": "3", "generationConfig": {
             "seed": 7, "temperature": 0.7, "thinking_config": {"thinking_level": "LOW"},
             "responseJsonSchema": {"min_items": 1}},
         "safety_settings": "not folded here", "safetySettings": [
             {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
         "tools": [{"function_declarations": [{"name": "f", "parameters": {"a_b": 1, "aB": 2}}]}],
         "toolConfig": {"function_calling_config": {"mode": "ANY"}},
         "cachedContent": "cachedContents/x", "labels": {"team": "a"}, "serviceTier": "flex",
         "variant": "b", "topic": "kilns", "windowMinutes": 60,
         "requestedAt": "2026-11-30T09:00:00Z",
         "publish": [{"publisher": "hook", "target": "a"}]})},
    {"name": "a seed alone makes no configuration", "surface": "api", "model": "m",
     "ignores": ["/generationConfig/seed"],
     "request": '{"userPrompt":"Hello","generationConfig":{"seed":1}}'},
    {"name": "the drop-in in snake case", "surface": "drop-in", "model": "gemini-3.8-flash",
     "ignores": ["/generationConfig/seed"], "variant": "b",
     "publish": [{"publisher": "hook", "target": "a"}],
     "request": json.dumps({
         "contents": [{"role": "user", "parts": [
             {"text": LONG}, {"inline_data": {"mime_type": "image/png", "data": "AAAA"}},
             {"function_call": {"name": "f", "args": {"a_b": 1}}},
             {"function_response": {"name": "f", "response": {"x_y": [1.50]}}},
             {"thought_signature": "c2ln", "part_metadata": {"k_v": 1}}]}],
         "system_instruction": {"role": "user", "parts": [{"text": " kept "}]},
         "generation_config": {"max_output_tokens": 100, "seed": 1, "top_p": 0.5,
                               "response_schema": {"any_of": []}},
         "continuation_token": "dG9rZW4=", "labels": {"a_b": "c"}})},
    {"name": "pointers into arrays, the model and the variant", "surface": "drop-in", "model": "m",
     "ignores": ["/contents/1", "/model", "/variant", "/tools/0/codeExecution", "/none/0"],
     "variant": "v",
     "request": '{"contents":[{"parts":[{"text":"a"}]},{"parts":[{"text":"b"}]}],'
                '"tools":[{"codeExecution":{}}],"generationConfig":{}}'},
]


def main():
    decimals = [[spelling, decimal(spelling)] for spelling in DECIMALS]
    check_decimals(decimals)
    for case in IDENTITIES:
        case["scope"] = SCOPE
    print(json.dumps({
        "decimals": decimals,
        "canonical": [[text, canonical(parse(text)).hex()] for text in CANONICAL],
        "identities": [identity(case) for case in IDENTITIES],
    }, indent=1))


if __name__ == "__main__":
    main()
