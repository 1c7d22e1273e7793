"""google-genai as it is published, told what to ask: a JSON line in for each call, one out.

Calls run at the same time, each in a thread of its own, so that a long one holds up none.
"""

import asyncio
import json
import sys
import threading

from google import genai
from google.genai import errors, types

OUT = threading.Lock()


def client_of(base_url, key, headers):
    retries = types.HttpRetryOptions(attempts=4, initial_delay=0.1, max_delay=0.5)
    return genai.Client(
        api_key=key,
        http_options=types.HttpOptions(base_url=base_url, headers=headers, retry_options=retries),
    )


def chunk_of(answer):
    """What a test wants to see of an answer or a chunk."""
    parts = [part for item in answer.candidates or [] for part in (item.content and item.content.parts) or []]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "calls": [part.function_call.name for part in parts if part.function_call],
        "finish": [str(item.finish_reason.value) for item in answer.candidates or [] if item.finish_reason],
    }


async def asynchronous(client, asked):
    stream = await client.aio.models.generate_content_stream(**asked)
    return [chunk_of(chunk) async for chunk in stream]


def ask(call):
    client = client_of(call["url"], call["key"], call.get("headers") or {})
    config = call.get("config")
    asked = {"model": call["model"], "contents": call["text"]}
    if config is not None:
        asked["config"] = types.GenerateContentConfig(**config)
    if call["form"] == "unary":
        return [chunk_of(client.models.generate_content(**asked))]
    if call["form"] == "stream":
        return [chunk_of(chunk) for chunk in client.models.generate_content_stream(**asked)]
    return asyncio.run(asynchronous(client, asked))


def answer(call):
    try:
        said = {"chunks": ask(call)}
    except errors.APIError as error:
        said = {"error": {"class": type(error).__name__, "code": error.code, "status": error.status}}
    except Exception as error:  # What a cut connection raises is the HTTP library's own.
        said = {"error": {"class": type(error).__name__, "message": str(error)[:200]}}
    with OUT:
        print(json.dumps({"id": call["id"], **said}), flush=True)


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),)).start()
