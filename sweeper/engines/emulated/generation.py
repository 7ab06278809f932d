"""``/generate`` and the two OpenAI endpoints: from a body to an answer, whole or in chunks.

``/generate`` sends cumulative chunks, as SGLang does unless it was told
``--incremental-streaming-output``: each repeats all tokens so far, with the
usage so far in ``meta_info``. Errors stand inside the stream, under HTTP 200.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sweeper.engines.emulated.batching import Request
from sweeper.engines.emulated.performance import Drafting
from sweeper.engines.emulated.words import Answer, tokenize

Kind = Literal["generate", "completion", "chat"]

DONE = b"data: [DONE]\n\n"

_DEFAULT_TOKENS = {"generate": 128, "completion": 16, "chat": 128}


@dataclass(frozen=True)
class Asked:
    """A request as its body says.

    Args:
        prompt_tokens: of the prompt.
        output_tokens: of the answer.
        stream: in chunks.
        usage: the last chunk of an OpenAI stream tells the usage.
    """

    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage: bool = False


def asked(kind: Kind, body: Any) -> Asked:
    """Read a body.

    Raises:
        ValueError: it asks for nothing, or for what the emulated engine cannot do.
    """
    if not isinstance(body, Mapping):
        raise ValueError("The body must be a JSON object.")
    if kind == "generate":
        wanted = body.get("sampling_params") or {}
        limit = wanted.get("max_new_tokens")
        prompt = body.get("input_ids") if body.get("text") is None else body["text"]
    else:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        prompt = body.get("prompt") if kind == "completion" else _conversation(body)
    count = _count(prompt)
    tokens = _DEFAULT_TOKENS[kind] if limit is None else int(limit)
    if tokens < 1:
        raise ValueError("An answer must have at least one token.")
    options = body.get("stream_options") or {}
    return Asked(count, tokens, bool(body.get("stream")), bool(options.get("include_usage")))


def _conversation(body: Mapping[str, Any]) -> str | None:
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    return " ".join(str(message.get("content", "")) for message in messages)


def _count(prompt: Any) -> int:
    if isinstance(prompt, str):
        count = len(tokenize(prompt))
    elif isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        count = len(prompt)
    else:
        raise ValueError("The emulated engine takes one prompt a request: a text, or token ids.")
    if not count:
        raise ValueError("The prompt is empty.")
    return count


@dataclass
class Reply:
    """The chunks of one answer, as text.

    Args:
        kind: of the endpoint.
        rid: the id of the request.
        model: the served model name.
        asked: what was asked for.
        request: on its way through the batch.
        answer: the text that all answers begin with.
        drafting: speculation, if there is any.
        incremental: each chunk has only what is new.
        with_text: without a tokenizer in the server there is no text.
        usage: whether tokens are counted in the answer; they always should be.
    """

    kind: Kind
    rid: str
    model: str
    asked: Asked
    request: Request
    answer: Answer
    drafting: Drafting | None
    incremental: bool = False
    with_text: bool = True
    usage: bool = True
    sent: int = 0

    def chunk(self) -> bytes:
        """What there is now, as an event of the stream."""
        body = self._generated() if self.kind == "generate" else self._delta()
        self.sent = self.request.generated
        return f"data: {body}\n\n".encode()

    def whole(self) -> str:
        """The answer as one JSON text."""
        return self._generated() if self.kind == "generate" else self._completion()

    def last_usage(self) -> bytes:
        """The event that tells the usage at the end of an OpenAI stream."""
        return f'data: {self._head("chunk")}, "choices": [], {self._usage()}}}\n\n'.encode()

    # Written out by hand: a chunk goes to every request in every step, and the
    # standard encoder takes most of the time of a full server.

    def _generated(self) -> str:
        after = self.sent if self.incremental else 0
        request = self.request
        text = ""
        if self.with_text:
            text = f'"text": "{self.answer.text(request.generated, after)}", '
        ids = self.answer.ids(request.generated, after)
        return f'{{{text}"output_ids": [{ids}], "meta_info": {{{self._meta()}}}}}'

    def _meta(self) -> str:
        request = self.request
        reason = f'{{"type": "length", "length": {request.generated}}}' if request.done else "null"
        counts = (
            f'"prompt_tokens": {request.prompt_tokens}, "completion_tokens": {request.generated}, '
            f'"cached_tokens": 0, '
            if self.usage
            else ""
        )
        meta = (
            f'"id": "{self.rid}", "finish_reason": {reason}, {counts}'
            f'"weight_version": "default", "num_retractions": {request.retractions}'
        )
        if self.drafting and request.verifications:
            length = request.generated / request.verifications
            proposed = request.verifications * max(1, self.drafting.draft_tokens - 1)
            # The first token comes from the prefill, and one in each step is no guess.
            right = max(0, request.generated - 1 - request.verifications)
            meta += (
                f', "spec_verify_ct": {request.verifications}, "spec_accept_length": {length:.4f}, '
                f'"spec_accept_rate": {right / proposed:.4f}, "spec_num_correct_drafts": {right}, '
                f'"spec_num_proposed_drafts": {proposed}'
            )
        if request.done:
            meta += f', "e2e_latency": {(request.ended or 0.0) - request.arrived:.6f}'
        return meta

    def _head(self, what: str) -> str:
        kinds = {"completion": "text_completion", "chat": "chat.completion"}
        name = kinds[self.kind] + (".chunk" if what and self.kind == "chat" else "")
        model = json.dumps(self.model)
        return f'{{"id": "{self.rid}", "object": "{name}", "created": 0, "model": {model}'

    def _usage(self) -> str:
        prompt, completion = self.request.prompt_tokens, self.request.generated
        if not self.usage:
            return '"usage": null'
        return (
            f'"usage": {{"prompt_tokens": {prompt}, "completion_tokens": {completion}, '
            f'"total_tokens": {prompt + completion}}}'
        )

    def _delta(self) -> str:
        text = self.answer.text(self.request.generated, self.sent)
        reason = '"length"' if self.request.done else "null"
        if self.kind == "chat":
            role = "" if self.sent else '"role": "assistant", '
            content = f'"delta": {{{role}"content": "{text}"}}'
        else:
            content = f'"text": "{text}"'
        choice = f'{{"index": 0, {content}, "logprobs": null, "finish_reason": {reason}}}'
        return f'{self._head("chunk")}, "choices": [{choice}]}}'

    def _completion(self) -> str:
        text = self.answer.text(self.request.generated)
        content = f'"text": "{text}"'
        if self.kind == "chat":
            content = f'"message": {{"role": "assistant", "content": "{text}"}}'
        choice = f'{{"index": 0, {content}, "logprobs": null, "finish_reason": "length"}}'
        return f'{self._head("")}, "choices": [{choice}], {self._usage()}}}'


def error_body(message: str, status: int) -> str:
    """An error as SGLang words it, in a body or inside a stream."""
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    return json.dumps({"error": {"message": message, "type": kind, "code": status}})
