"""The stock OpenAI client, unmodified, against a running server. Each function is a fact.

The pool `fast` has a provider, `full` takes nothing in, `empty` is bound but nobody works for it.
"""

import os

import openai

URL = os.environ["WINDLASS_URL"] + "/v1"
client = openai.OpenAI(base_url=URL, api_key=os.environ["WINDLASS_KEY"], max_retries=0)
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def a_chat_is_answered():
    answer = client.chat.completions.create(model="fast", messages=HELLO)
    assert answer.choices[0].message.content == "You said hello.", answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == 7
    assert answer.id.startswith("chatcmpl-")


def a_chat_is_streamed():
    with client.chat.completions.create(model="fast", messages=HELLO, stream=True) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "You said hello.", chunks
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices[0].finish_reason == "stop"


def tokens_are_counted_in_the_stream_for_who_asks():
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model="fast", messages=HELLO, stream=True, stream_options=options
    )
    assert list(stream)[-1].usage.total_tokens == 7


def tool_calls_are_passed_through():
    ask = [{"role": "user", "content": "use a tool"}]
    answer = client.chat.completions.create(model="fast", messages=ask, tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.id, call.function.name) == ("call_1", "weather")
    assert call.function.arguments == '{"city":"Rome"}'
    # The client's own helper puts the pieces of a stream together.
    with client.chat.completions.stream(model="fast", messages=ask, tools=TOOLS) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert call.function.arguments == '{"city":"Rome"}'


def models_are_listed_and_shown():
    names = [model.id for model in client.models.list()]
    assert {"fast", "tiny", "empty", "full"} <= set(names), names
    assert client.models.retrieve("fast").id == "fast"
    assert client.models.retrieve("fast/tiny").id == "fast/tiny"


def text_is_embedded():
    answer = client.embeddings.create(model="fast", input="hello")
    assert answer.data[0].embedding == [0.25, -0.5]


def a_response_is_waited_for_and_streamed():
    response = client.responses.create(model="fast", input="hello", instructions="be kind")
    assert response.output_text == "You said hello.", response
    assert response.status == "completed"
    assert response.usage.input_tokens == 3
    kinds = []
    text = ""
    for event in client.responses.create(model="fast", input="hello", stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == "You said hello.", kinds
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    with client.responses.stream(model="fast", input="hello") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "You said hello."


def a_response_in_the_background_is_retrieved():
    response = client.responses.create(model="fast", input="hello", background=True)
    assert response.status in ("queued", "in_progress", "completed"), response
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", "You said hello.")
    # Whoever comes late and wants events gets the end.
    events = list(client.responses.retrieve(response.id, stream=True))
    assert events[-1].type == "response.completed", events
    assert events[-1].response.output_text == "You said hello."


def a_response_is_deleted():
    response = client.responses.create(model="fast", input="hello")
    assert client.responses.delete(response.id) is None
    refused(openai.NotFoundError, "not_found", lambda: client.responses.retrieve(response.id))
    refused(openai.NotFoundError, "not_found", lambda: client.responses.delete(response.id))
    waiting = client.responses.create(model="empty", input="hello", background=True)
    refused(
        openai.BadRequestError, "response_not_ended", lambda: client.responses.delete(waiting.id)
    )


def a_response_is_cancelled():
    response = client.responses.create(model="empty", input="hello", background=True)
    assert response.status == "queued"
    assert client.responses.cancel(response.id).status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        assert error.code == code, error
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors_have_the_classes_that_programs_catch():
    chat = client.chat.completions.create
    error = refused(
        openai.NotFoundError, "model_not_found", lambda: chat(model="none", messages=HELLO)
    )
    assert "fast" in error.message
    error = refused(
        openai.BadRequestError, "validation_failed", lambda: chat(model="fast", messages="x")
    )
    assert error.param == "messages"
    long = [{"role": "user", "content": "too long"}]
    refused(
        openai.BadRequestError,
        "context_length_exceeded",
        lambda: chat(model="fast", messages=long),
    )
    error = refused(
        openai.RateLimitError, "queue_full", lambda: chat(model="full", messages=HELLO)
    )
    assert int(error.response.headers["retry-after"]) >= 1
    refused(openai.NotFoundError, "not_found", lambda: client.responses.retrieve("resp_none"))
    stranger = openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0)
    refused(openai.AuthenticationError, "unauthenticated", stranger.models.list)


def an_error_in_a_stream_is_raised():
    broken = [{"role": "user", "content": "break"}]
    text = ""
    try:
        for chunk in client.chat.completions.create(model="fast", messages=broken, stream=True):
            text += chunk.choices[0].delta.content or ""
    except openai.APIError as error:
        assert error.code == "upstream_broken", error
        assert text == "You said ", text
        return
    raise AssertionError("no error")


FACTS = [
    a_chat_is_answered,
    a_chat_is_streamed,
    tokens_are_counted_in_the_stream_for_who_asks,
    tool_calls_are_passed_through,
    models_are_listed_and_shown,
    text_is_embedded,
    a_response_is_waited_for_and_streamed,
    a_response_in_the_background_is_retrieved,
    a_response_is_deleted,
    a_response_is_cancelled,
    errors_have_the_classes_that_programs_catch,
    an_error_in_a_stream_is_raised,
]
for fact in FACTS:
    fact()
    print(fact.__name__, flush=True)
