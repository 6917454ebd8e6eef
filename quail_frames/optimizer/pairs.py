"""What an AI join costs with either side as the anchor, and which side that makes the anchor."""

from __future__ import annotations

from dataclasses import dataclass

from quail_frames.cost.choices import Alternative, Choice
from quail_frames.cost.work import Work, pair_join, prefill
from quail_frames.optimizer.prices import CallFigures, Prices
from quail_frames.optimizer.selectivity import pair_share
from quail_frames.optimizer.tables import Table, candidate_pairs, distinct_among, table_of
from quail_frames.plan.logical import AskPairs, Filter, Node, Project, Side, WithColumns, expressions, names_of

RIGHT_PAYS = 0.8
"""A right anchor holds the rows up until the last pair is known: it has to cost less than this share of a left one."""
FORMULA = (
    "by the plan below the join as written: different anchors x (document + frame + partners of each x (partner + "
    "cue)); equal texts count once, and an anchor that a filter below asks about is computed already"
)


@dataclass(frozen=True)
class PairsPrice:
    """A join with one side as the anchor.

    `anchors` and `asks` count different texts; `partners` are those that one anchor is asked about.
    """

    figures: CallFigures
    anchors: float
    partners: float
    document: float
    suffix: float
    work: Work
    regret_tokens: float = 0.0
    """Tokens of anchors that had been in memory and are computed again."""

    @property
    def asks(self) -> float:
        """Expected pairs put to the model."""
        return self.anchors * self.partners


def pairs_price(
    node: AskPairs, anchor: Side, left: Table, right: Table, prices: Prices, resident: float = 0.0
) -> PairsPrice:
    """The join's work over its sides' rows; `resident`: the share of the anchors' documents in memory."""
    slots = tuple(number for number, (side, _) in enumerate(node.slots) if side == anchor)
    figures = prices.lay_out(node.call, slots)
    own, other = (left, right) if anchor == "left" else (right, left)
    anchors, partner_texts = _units(node, anchor, own), _units(node, "right" if anchor == "left" else "left", other)
    pairs = candidate_pairs(node, left, right, prices)
    pairs *= (anchors / own.rows if own.rows else 0.0) * (partner_texts / other.rows if other.rows else 0.0)
    partners = _asked_partners(node, anchor, pairs / anchors if anchors else 0.0)
    document = figures.document + sum(own.column(name).mean_tokens for name in node.inputs_of(anchor))
    suffix = figures.question + sum(other.column(name).mean_tokens for side, name in node.slots if side != anchor)
    share, reach = figures.head_share(prices.vocabulary), prices.target.shape.reach
    warm = pair_join(document, partners, suffix, figures.instruction, True, "tree", share, reach)
    loads = anchors * (1 - resident)
    work = warm * anchors + prefill(document, 0, reach) * loads
    return PairsPrice(figures, anchors, partners, document, suffix, work, document * loads if resident else 0.0)


def anchor_choice(node: AskPairs, prices: Prices) -> Choice:
    """Both sides as the anchor with their prices, by the plan below the join as it was written."""
    left, right = table_of(node.left, prices), table_of(node.right, prices)
    priced = []
    for side, below in (("left", node.left), ("right", node.right)):
        anchor: Side = "left" if side == "left" else "right"
        found = pairs_price(node, anchor, left, right, prices, asked_below(below, set(node.inputs_of(anchor))))
        priced.append(Alternative(f"{side} row", found.work, prices.target.price(found.work)))
    return _chosen(node, priced[0], priced[1])


def _chosen(node: AskPairs, left: Alternative, right: Alternative) -> Choice:
    if node.anchor is not None:
        return Choice("anchor", _cheapest(left, right), FORMULA, f"{node.anchor} row", "named by the query")
    if node.how in ("semi", "anti"):
        refused = Alternative("right row", refused="only a left anchor can stop at its first TRUE")
        return Choice("anchor", (left, refused), FORMULA)
    if right.seconds < RIGHT_PAYS * left.seconds:
        return Choice("anchor", (right, left), FORMULA, "right row")
    because = "a right anchor holds rows up until the last pair is known: it has to save a fifth"
    return Choice(
        "anchor", _cheapest(left, right), FORMULA, "left row", because if right.seconds < left.seconds else ""
    )


def _cheapest(left: Alternative, right: Alternative) -> tuple[Alternative, Alternative]:
    return (left, right) if left.seconds <= right.seconds else (right, left)


def _units(node: AskPairs, side: Side, table: Table) -> float:
    """Different texts of a side."""
    return distinct_among([table.column(name) for name in node.inputs_of(side)], table.rows)


def _asked_partners(node: AskPairs, anchor: Side, partners: float) -> float:
    """Partners that an anchor is asked about: all, or up to its first TRUE."""
    share = pair_share(node.call)
    if node.how not in ("semi", "anti") or anchor == "right" or share <= 0:
        return partners
    return min(partners, (1 - (1 - share) ** partners) / share)


def asked_below(node: Node, names: set[str]) -> bool:
    """Whether a filter or another AI join just below leaves these very columns' texts in memory."""
    while isinstance(node, Project | Filter | WithColumns):
        calls = [use for e in expressions(node) for use in e.calls] if isinstance(node, Filter) else []
        if any({text.column for text in use.inputs} == names for use in calls):
            return True
        if isinstance(node, WithColumns) and names & set(names_of(node.expressions)):
            return False
        node = node.input
    return isinstance(node, AskPairs) and node.how in ("semi", "anti") and set(node.inputs_of("left")) == names
