"""vLLM behind a pipe: one JSON request a line on stdin, one JSON reply a line on stdout.

Runs in the other engine's own environment, so it imports nothing of this repository.
Seconds are those of vLLM's `generate` alone, without the pipe.
"""

import json
import os
import sys
import time
from importlib import metadata

REPLIES = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever the library prints must not reach the pipe

import vllm  # noqa: E402
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor  # noqa: E402

CHOICES = []
"""Tokens that may come after each start of a choice's sequences, by number of the choice."""


class OneOfTheChoices(AdapterLogitsProcessor):
    """Masks every token that leads out of the request's choice."""

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        number = (params.extra_args or {}).get("choice")
        if number is None:
            return None
        following = CHOICES[number]

        def mask(generated, logits):
            allowed = following.get(tuple(generated), [0])
            scores = logits[allowed]
            logits.fill_(float("-inf"))
            logits[allowed] = scores
            return logits

        return mask


def following(sequences):
    """Tokens that may come after each start of these sequences."""
    found = {}
    for sequence in sequences:
        for length, token in enumerate(sequence):
            found.setdefault(tuple(sequence[:length]), {})[token] = None
    return {start: list(tokens) for start, tokens in found.items()}


def deciding(sequences):
    """Tokens that leave one sequence wherever they may come: generation stops at them."""
    left = {}
    for sequence in sequences:
        for length in range(1, len(sequence) + 1):
            left[tuple(sequence[:length])] = left.get(tuple(sequence[:length]), 0) + 1
    open_starts = [start for start in left if len(start) == 1 or left[start[:-1]] > 1]
    undecided = {start[-1] for start in open_starts if left[start] > 1}
    return [token for token in {start[-1] for start in open_starts} if token not in undecided]


def sampling_of(sequences, **options):
    """Greedy generation of one of the sequences, as far as it takes to tell which; one token where all are one long."""
    options = {"temperature": 0, "detokenize": False, **options}
    longest = max(map(len, sequences))
    if longest == 1:
        return vllm.SamplingParams(max_tokens=1, allowed_token_ids=[token for (token,) in sequences], **options)
    CHOICES.append(following(sequences))
    stops, number = deciding(sequences), {"choice": len(CHOICES) - 1}
    return vllm.SamplingParams(max_tokens=longest, stop_token_ids=stops, extra_args=number, **options)


def prompts_of(request):
    """Prompts as token ids; they arrive as one flat list and its lengths."""
    flat, start, prompts = request["values"], 0, []
    for length in request["lengths"]:
        prompts.append({"prompt_token_ids": flat[start : start + length]})
        start += length
    return prompts


def generate(llm, request, **options):
    """Outputs, and seconds of `generate` by the clock and of processor time."""
    choices = [sampling_of(sequences, **options) for sequences in request["choices"]]
    prompts, sampling = prompts_of(request), [choices[number] for number in request["which"]]
    started, processor = time.perf_counter(), time.process_time()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    return outputs, time.perf_counter() - started, time.process_time() - processor


def ask(llm, request):
    """What is generated after each prompt."""
    outputs, seconds, processor_seconds = generate(llm, request)
    generated = [list(output.outputs[0].token_ids) for output in outputs]
    fed = sum(len(tokens) - 1 for tokens in generated)
    cached = sum(output.num_cached_tokens or 0 for output in outputs)
    prompt_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "tokens": generated,
        "computed": prompt_tokens - cached + fed,
    }


def score(llm, request):
    """Log-probabilities of the tokens that could come at each step, for the few answers that differ."""
    outputs, _, _ = generate(llm, request, logprobs=-1)
    tries = [following(sequences) for sequences in request["choices"]]
    steps = []
    for output, number in zip(outputs, request["which"], strict=True):
        generated, rows = output.outputs[0].token_ids, output.outputs[0].logprobs
        starts = [tuple(generated[:length]) for length in range(len(generated))]
        allowed = [tries[number].get(start, []) for start in starts]
        pairs = zip(rows, allowed, strict=True)
        steps.append([[(token, row[token].logprob) for token in own] for row, own in pairs if own])
    return {"steps": steps}


def reset(llm, request):
    """Forget all cached prefixes."""
    return {"reset": llm.reset_prefix_cache()}


def main():
    """Load the model as the first line says, then answer line by line until the pipe closes."""
    settings = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    llm = vllm.LLM(**settings, logits_processors=[OneOfTheChoices])
    seconds = time.perf_counter() - started
    hello = {"vllm": vllm.__version__, "torch": metadata.version("torch"), "start_seconds": seconds}
    operations = {"ask": ask, "score": score, "reset": reset}
    reply(hello)
    for line in sys.stdin:
        request = json.loads(line)
        reply(operations[request["operation"]](llm, request))


def reply(content):
    """One line on the pipe."""
    REPLIES.write(json.dumps(content) + "\n")
    REPLIES.flush()


if __name__ == "__main__":
    main()
