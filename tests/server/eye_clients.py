"""Official clients asking the bundled picture model about the bundled pictures: the answers are
right, whichever way the picture travels, and retries and cached tokens are what they should be."""

import asyncio
import json

from flaky_proxy import FlakyProxy
from server_process import (BOARD, KEY, SHOP, data_url, eye_server, metric, picture_bytes, post,
                            questions_of, said)


def sdk_questions(name):
    """The example's questions as the SDK's objects."""
    from typesafe_sdk import Choice, Noul, Score
    kinds = {"choice": Choice, "noul": Noul, "score": Score}
    return {key: kinds[q["type"]](**{k: v for k, v in q.items() if k != "type"})
            for key, q in questions_of(name).items()}


def sdk_said(answers):
    out = {}
    for key, answer in answers.items():
        values = {k: getattr(answer, k) for k in ("noul", "choice", "score") if hasattr(answer, k)}
        out[key] = said({"type": answer.type, **values})
    return out


def expect(kind, call):
    try:
        call()
    except kind as error:
        assert str(error), "an error without words"
        return error
    raise AssertionError(f"expected {kind.__name__}")


def eye_typesafe_sync(url):
    from typesafe_sdk import Choice, Image, Noul, TypeSafeClient
    import typesafe_sdk
    with TypeSafeClient(base_url=url, api_key=KEY, timeout=120) as client:
        for name, right in (SHOP, BOARD):
            png, questions = picture_bytes(name), sdk_questions(name)
            by_alias = client.system_one(state="photo", assets={"photo": Image(png)},
                                         questions=questions)
            assert sdk_said(by_alias.answers) == right, (name, by_alias.answers)
            as_state = client.system_one(state=Image(png), questions=questions)
            assert sdk_said(as_state.answers) == right, (name, as_state.answers)
            in_list = client.system_one(state=[Image(png)], questions=questions)
            assert set(in_list.answers) == set(right)
        shop, board = Image(picture_bytes(SHOP[0])), Image(picture_bytes(BOARD[0]))
        with client.attach_assets([shop]):  # references inside text
            seen = client.system_one(
                state=f"The picture {shop} was taken on day 69.",
                questions={"word": Choice(instructions="Which word is written?",
                                          criteria={"closed": None, "open": None, "exit": None})})
            assert seen.answers["word"].choice == "open", seen.answers
            asked = client.system_one(
                state="", questions={"star": Choice(
                    instructions=f"{shop} What colour is the star?",
                    criteria={"red": None, "green": None, "blue": None})})
            assert asked.answers["star"].choice == "blue", asked.answers
        # In criteria: every option is a picture of its own. The model has not learnt to compare;
        # that both are seen, and kept apart, shows in the tokens.
        compared = client.system_one(state="", questions={"which": Choice(
            instructions="Which one shows a moon?", criteria={"one": shop, "two": board})})
        described = client.system_one(state="", questions={"which": Choice(
            instructions="Which one shows a moon?", criteria={"one": "a shop", "two": "a board"})})
        assert compared.usage.input_tokens > described.usage.input_tokens + 1000
        expect(typesafe_sdk.TypeSafeBadRequestError, lambda: client.system_one(
            state="no picture here", assets={"photo": shop},
            questions={"q": Noul(instructions="Is it red?")}))
        expect(typesafe_sdk.TypeSafeUnprocessableEntityError, lambda: client.system_one(
            state=Image(b"not a picture"), questions={"q": Noul(instructions="Is it red?")}))


def eye_typesafe_async(url):
    from typesafe_sdk import AsyncTypeSafeClient, Image

    async def go():
        async with AsyncTypeSafeClient(base_url=url, api_key=KEY, timeout=120) as client:
            async def one(name):
                return await client.system_one(state=Image(picture_bytes(name)),
                                               questions=sdk_questions(name))
            return await asyncio.gather(*[one(name) for name, _ in (SHOP, BOARD) * 3])

    replies = asyncio.run(go())
    for i, reply in enumerate(replies):
        assert sdk_said(reply.answers) == (SHOP, BOARD)[i % 2][1], reply.answers


def eye_typesafe_retries(url):
    """429 and 503 are tried again with the same bytes; 422 is not; three failures are told."""
    from typesafe_sdk import AsyncTypeSafeClient, Image, TypeSafeClient
    import typesafe_sdk
    name, right = SHOP
    ask = {"state": Image(picture_bytes(name)), "questions": sdk_questions(name)}
    for statuses in ([429], [503, 429]):
        with FlakyProxy(url, statuses) as proxy:
            with TypeSafeClient(base_url=proxy.url, api_key=KEY, timeout=120) as client:
                assert sdk_said(client.system_one(**ask).answers) == right
            assert len(proxy.attempts) == len(statuses) + 1
            assert len({body for _, body in proxy.attempts}) == 1
            last = {k.lower(): v for k, v in proxy.attempts[-1][0].items()}
            assert last["x-typesafe-retry-count"] == str(len(statuses)), last
    with FlakyProxy(url, [503]) as proxy:
        async def go():
            async with AsyncTypeSafeClient(base_url=proxy.url, api_key=KEY, timeout=120) as client:
                return await client.system_one(**ask)
        assert sdk_said(asyncio.run(go()).answers) == right
        assert len(proxy.attempts) == 2
    with FlakyProxy(url, [429, 429, 429]) as proxy:
        with TypeSafeClient(base_url=proxy.url, api_key=KEY, timeout=120) as client:
            expect(typesafe_sdk.TypeSafeRateLimitError, lambda: client.system_one(**ask))
    with FlakyProxy(url, []) as proxy:
        with TypeSafeClient(base_url=proxy.url, api_key=KEY, timeout=120) as client:
            expect(typesafe_sdk.TypeSafeUnprocessableEntityError,
                   lambda: client.system_one(state=4, questions=ask["questions"]))
        assert len(proxy.attempts) == 1


def eye_full_queue(okibi):
    """Four at once where one runs and one may wait: the SDK's retries get all of them through."""
    from typesafe_sdk import AsyncTypeSafeClient, Image
    with eye_server(okibi, "--workers", "1", "--queue", "1") as server:
        async def go():
            async with AsyncTypeSafeClient(base_url=server.url, api_key=KEY, timeout=120) as client:
                return await asyncio.gather(*[
                    client.system_one(state=Image(picture_bytes(BOARD[0])),
                                      questions=sdk_questions(BOARD[0])) for _ in range(4)])
        for reply in asyncio.run(go()):
            assert sdk_said(reply.answers) == BOARD[1], reply.answers
        refused = metric(server.url, 'okibi_requests_total{route="/v1/systemone",status="429"}')
        assert refused >= 2, refused


def decisions_questions(name):
    """The example's questions in OpenAI's form."""
    out = []
    for key, q in questions_of(name).items():
        question = {"name": key, "instructions": q["instructions"]}
        if q["type"] == "noul":
            question["type"] = "predicate"
        elif q["type"] == "choice":
            question |= {"type": "choice", "choices": [
                {"value": value, "description": text} if text else {"value": value}
                for value, text in q["criteria"].items()]}
        else:
            question |= {"type": "score", "levels": [{"label": level} for level in q["criteria"]]}
        out.append(question)
    return out


def decisions_said(answers):
    out = {}
    for a in answers:
        out[a.name] = (a.probability > 0.5 if a.type == "predicate" else
                       a.choice if a.type == "choice" else round(a.score))
    return out


def image_item(name, marked):
    part = {"type": "input_image", "image_url": data_url(picture_bytes(name))}
    if marked:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part


def eye_openai(url):
    """Pictures in parts are seen; cached tokens grow with what requests have in common, exactly."""
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY)

    def ask(rest, questions, key="tenant", mode="explicit", marked=True, name=SHOP[0]):
        content = [image_item(name, marked)] + [{"type": "input_text", "text": t} for t in rest]
        return client.decisions.create(
            model="eye", input=[{"role": "user", "content": content}], questions=questions,
            prompt_cache_key=key, prompt_cache_options={"mode": mode, "ttl": "30m"})

    questions = decisions_questions(SHOP[0])
    first = ask([], questions)
    details = first.usage.input_tokens_details
    assert decisions_said(first.answers) == SHOP[1], first.answers
    assert details.cached_tokens == 0 and details.cache_write_tokens > 100, details
    n_picture = details.cache_write_tokens
    again = ask(["The picture was taken on day 69."], questions[:2])
    assert again.usage.input_tokens_details.cached_tokens == n_picture, again.usage
    assert again.usage.input_tokens_details.cache_write_tokens == 0
    assert decisions_said(again.answers)["word"] == "open"
    # Another picture of the same size has the same tokens; another key shares nothing.
    assert ask([], questions, key="other").usage.input_tokens_details.cached_tokens == 0
    # Without a mark, explicit means no caching; implicit keeps the end of the state as well.
    none = ask([], questions, marked=False).usage.input_tokens_details
    assert none.cached_tokens == 0 and none.cache_write_tokens == 0, none
    one = ask(["No. 126"], questions, key="k", mode="implicit").usage
    two = ask(["No. 126"], questions[:1], key="k", mode="implicit").usage
    three = ask(["No. 126"], [{"type": "predicate", "instructions": "Is there a red heart?"}],
                key="k", mode="implicit").usage
    assert one.input_tokens_details.cached_tokens == 0
    assert two.input_tokens_details.cached_tokens == two.input_tokens  # asked before
    assert three.input_tokens_details.cached_tokens == one.input_tokens_details.cache_write_tokens
    longer = ask(["No. 127"], questions[:1], key="k", mode="implicit").usage
    assert longer.input_tokens_details.cached_tokens == n_picture, longer


def eye_openai_conversation(url):
    """A conversation that grows by turns: each turn finds everything before its own."""
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY)
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    items = [{"role": "developer", "content": [{"type": "input_text", "text": "Answer briefly.",
                                               **mark}]},
             {"role": "user", "content": [image_item(SHOP[0], True)]}]
    cached = []
    for turn in range(4):
        reply = client.decisions.create(
            model="eye", input=items, prompt_cache_key="talk",
            questions=[{"type": "predicate", "instructions": f"Is this turn {turn}?"}])
        cached.append(reply.usage.input_tokens_details.cached_tokens)
        total = reply.usage.input_tokens_details.cached_tokens + \
            reply.usage.input_tokens_details.cache_write_tokens
        assert total < reply.usage.input_tokens
        items.append({"role": "user", "content": [{"type": "input_text", "text": f"Note {turn}.",
                                                   **mark}]})
    assert cached[0] == 0 and cached == sorted(set(cached)), cached


def eye_jev_local_shape(url):
    """Top-level `images`, as data URLs and again by digest alone."""
    for name, right in (SHOP, BOARD):
        body = {"state": "", "images": [data_url(picture_bytes(name))],
                "questions": questions_of(name)}
        status, reply, headers = post(url, body, headers={"X-Okibi-Detail": "1"})
        assert status == 200, reply
        assert {k: said(a) for k, a in reply["answers"].items()} == right, reply
        body["images"] = reply["okibi"]["images"]
        status, again, headers = post(url, body)
        assert status == 200 and again["answers"] == reply["answers"], again
        assert "files;hits=1;misses=0" in headers["X-Okibi-Cache"], headers
    unknown = {"state": "", "images": ["sha256:" + "0" * 64], "questions": questions_of(SHOP[0])}
    assert post(url, unknown)[0] == 404


def eye_decision_circuits(url):
    from decision_circuits import Circuit
    from decision_circuits.backends import SystemOne
    circuit = Circuit()
    circuit.choice("star", "What colour is the star?", {"red": None, "green": None, "blue": None})
    result = circuit.run(SystemOne(url + "/v1/systemone", api_key=KEY),
                         {"image": data_url(picture_bytes(SHOP[0]))})
    assert "blue" in json.dumps(result, default=str), result
