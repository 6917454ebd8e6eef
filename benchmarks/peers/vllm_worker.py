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


def prompts_of(request):
    """Prompts as token ids; they arrive as one flat list and its lengths."""
    flat, start, prompts = request["values"], 0, []
    for length in request["lengths"]:
        prompts.append({"prompt_token_ids": flat[start : start + length]})
        start += length
    return prompts


def ask(llm, request):
    """The most likely token of each prompt's choice after it."""
    choices = [
        vllm.SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=tokens, detokenize=False)
        for tokens in request["choices"]
    ]
    sampling = [choices[number] for number in request["which"]]
    prompts = prompts_of(request)
    started, processor = time.perf_counter(), time.process_time()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    seconds, processor_seconds = time.perf_counter() - started, time.process_time() - processor
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "tokens": [output.outputs[0].token_ids[0] for output in outputs],
        "computed": sum(len(output.prompt_token_ids) - (output.num_cached_tokens or 0) for output in outputs),
    }


def score(llm, request):
    """Log-probabilities of each prompt's choice, for the few answers that differ."""
    sampling = vllm.SamplingParams(max_tokens=1, temperature=0, logprobs=-1, detokenize=False)
    outputs = llm.generate(prompts_of(request), sampling, use_tqdm=False)
    found = [output.outputs[0].logprobs[0] for output in outputs]
    choices = [request["choices"][number] for number in request["which"]]
    return {"scores": [[row[token].logprob for token in tokens] for row, tokens in zip(found, choices, strict=True)]}


def reset(llm, request):
    """Forget all cached prefixes."""
    return {"reset": llm.reset_prefix_cache()}


def main():
    """Load the model as the first line says, then answer line by line until the pipe closes."""
    settings = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    llm = vllm.LLM(**settings)
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
