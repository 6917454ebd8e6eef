"""The rounds of a read-out that asks several times: where each unit stands, and the prompt it keeps between them.

Where the memory allows, a unit's first ask leaves its whole prompt in a context and the
next round feeds only what follows: behind the document in the lane's context, rewound to
the document afterwards, or, where the call's words come first, in a fork of their context.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.batch import AskBlock, Float32, Int32
from quail_frames.runtime.compiled import Answers, CompiledCall
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.kv.pages import pages_for
from quail_frames.runtime.operators.asks import following_asks
from quail_frames.runtime.operators.lane import UNASKED, WAITING, CallState, Growing, Lane
from quail_frames.runtime.readouts.trie_decode import FIRST, TrieDecodeReadout
from quail_frames.runtime.tokens.layouts import own_tokens
from quail_frames.runtime.tokens.ragged import Int64

Bool = npt.NDArray[np.bool_]


class Rounds:
    """The steps of one call's units.

    `fed` counts the tokens of prompt and answer that a unit's context holds, 0 where it keeps none.
    """

    def __init__(
        self, lane: Lane, state: CallState, readout: TrieDecodeReadout, siblings: Sequence[CallState], retain: bool
    ) -> None:
        self._lane, self._state, self._readout = lane, state, readout
        self._call: CompiledCall = state.call
        self._in_lane = self._call.planned.layout == "document_first"
        self._instruction = own_tokens(self._call.prompt.instruction)
        self._siblings, self._retain = siblings, retain
        self._forks = Growing(np.int32, -1)
        self.steps = Growing(np.int64, FIRST)
        self.fed = Growing(np.int64, 0)

    def reach(self) -> None:
        """Make room for all units of the lane."""
        for store in (self.steps, self.fed, self._forks):
            store.reach(self._lane.units)

    def begun(self, units: Int64) -> Bool:
        """Units that had an answer to a first round."""
        started: Bool = self.steps.data[units] != FIRST
        return started

    def contexts(self, units: Int64) -> Int32:
        """Contexts that hold the units' prompts, -1 where none does."""
        held: Int32 = self._lane.context.data[units] if self._in_lane else self._forks.data[units]
        return np.where(self.fed.data[units] > 0, held, -1).astype(np.int32)

    def keep_fresh(self, memory: Memory, units: Int64, kept: Int64, prompts: Int64) -> Int64:
        """Tokens to keep of whole prompts of which `kept` stay in any case: all, as far as the memory goes."""
        more = np.where(self._goes_on(units), pages_for(prompts) - pages_for(kept), 0)
        given = memory.room_for(np.append(pages_for(kept).sum(), more)) - 1
        whole = self._goes_on(units) & (np.arange(len(units)) < given)
        self.fed.data[units] = np.where(whole, prompts, 0)
        return np.where(whole, prompts, kept)

    def keep_admitted(
        self, memory: Memory, units: Int64, contexts: Int64, prefix: Int64, kept: Int64, asked: Int64
    ) -> Int64:
        """Tokens to keep of asks on contexts that have room for `kept` of them: all, as far as the memory goes."""
        going = np.flatnonzero(self._goes_on(units))
        whole = (prefix + asked)[going]
        chosen = going[: memory.room_for(memory.contexts.missing_pages(contexts[going].astype(np.int32), whole))]
        whole = whole[: len(chosen)]
        memory.extend(contexts[chosen].astype(np.int32), whole)
        self.fed.data[units] = 0
        self.fed.data[units[chosen]] = whole
        keep = kept.copy()
        keep[chosen] = asked[chosen]
        return keep

    def keep_suffixes(self, memory: Memory, units: Int64, prefix: Int64, suffixes: Int64) -> Int64:
        """Tokens to keep of suffixes asked behind the lane's documents, which are rewound to `prefix` for it.

        A context is extended for one call at a time: not while another one waits for the unit.
        """
        chosen = np.flatnonzero(self._goes_on(units) & ~waiting(self._siblings, units))
        contexts, whole = self._lane.context.data[units[chosen]], (prefix + suffixes)[chosen]
        missing = memory.contexts.missing_pages(contexts, whole)
        chosen = chosen[: memory.room_for(missing)]
        contexts = self._lane.context.data[units[chosen]]
        memory.contexts.rewind(contexts, prefix[chosen])
        memory.extend(contexts, (prefix + suffixes)[chosen])
        self.fed.data[units] = 0
        self.fed.data[units[chosen]] = (prefix + suffixes)[chosen]
        keep = np.zeros(len(units), dtype=np.int64)
        keep[chosen] = suffixes[chosen]
        return keep

    def fork(self, memory: Memory, units: Int64, source: int, tokens: int, prompts: Int64) -> Int32:
        """Contexts that begin with `tokens` tokens of `source` and take the units' prompts; -1 where none fits."""
        going = np.flatnonzero(self._goes_on(units))
        opened = memory.fork(source, tokens, prompts[going])
        forks = np.full(len(units), -1, dtype=np.int32)
        forks[going[: len(opened)]] = opened
        self._forks.data[units] = forks
        self.fed.data[units] = np.where(forks >= 0, prompts, 0)
        return forks

    def asks(self, memory: Memory, units: Int64) -> AskBlock:
        """The next round of units that keep their prompts."""
        steps, fed, contexts = self.steps.data[units], self.fed.data[units], self.contexts(units)
        after = fed - self._lane.value_tokens.data[units] - self._call.prompt.own_tokens
        new = self._readout.tails.lengths[steps] - after
        going = self._goes_on(units)
        missing = np.where(going, memory.contexts.missing_pages(contexts, fed + new), 0)
        going &= np.arange(len(units)) < memory.room_for(missing)
        memory.extend(contexts[going], (fed + new)[going])
        self.fed.data[units[going]] = (fed + new)[going]
        return following_asks(self._call, contexts, fed, steps, after, np.where(going, new, 0))

    def advance(self, units: Int64, logits: Float32) -> Bool:
        """Take in a round's answers; True where a unit is decided."""
        labels, following = self._readout.advance(self.steps.data[units], logits)
        decided = labels >= 0
        self._state.store(units[decided], Answers(labels[decided].astype(np.int16)))
        self.steps.data[units[~decided]] = following[~decided]
        return decided

    def finish(self, memory: Memory, units: Int64) -> None:
        """Forget the prompts of units that are decided; documents that somebody still wants stay."""
        units = units[self.fed.data[units] > 0]
        contexts = self.contexts(units)
        self.fed.data[units] = 0
        if not self._in_lane:
            memory.contexts.close(contexts)
            self._forks.data[units] = -1
            return
        wanted = waiting(self._siblings, units) | self._lane.alike.data[units] | self._retain
        for sibling in self._siblings:
            wanted |= sibling.state.data[units] == UNASKED
        memory.contexts.close(contexts[~wanted])
        self._lane.context.data[units[~wanted]] = -1
        instruction = np.where(self._lane.instruction.data[units] >= 0, self._instruction, 0)
        document = self._lane.document_tokens.data[units] + instruction
        memory.contexts.rewind(contexts[wanted], document[wanted])

    def close(self) -> list[int]:
        """Forks still open."""
        forks = self._forks.data[: self._lane.units]
        return forks[forks >= 0].tolist()

    def _goes_on(self, units: Int64) -> Bool:
        going: Bool = self._readout.goes_on[self.steps.data[units]]
        return going


def waiting(calls: Sequence[CallState], units: Int64) -> Bool:
    """Units that one of the calls is being asked of."""
    found = np.zeros(len(units), dtype=np.bool_)
    for call in calls:
        found |= call.state.data[units] == WAITING
    return found
