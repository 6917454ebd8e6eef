"""Customer messages to a bank: many labels, long labels, labels returned and tested, counts a class."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query

CARD = "Is this message about a card? {text}"
CARD_TOPICS = [
    *("arrival", "activation", "linking", "expiry", "acceptance", "swallowed by a machine", "not working", "lost"),
    *("stolen", "PIN blocked", "PIN change", "payment declined", "fee charged", "wrong exchange rate", "refund"),
    *("delivery estimate", "virtual card", "disposable card", "supported currencies", "contactless", "other"),
]
LONG_LABELS = [
    "asks when a card that was ordered will arrive",
    "asks how to activate a new card",
    "wants to link a card to the app",
    "says that a card was lost or stolen",
    "says that a card payment was declined",
    "does not recognise a payment by card",
    "was charged a fee for a card payment",
    "disputes the exchange rate of a payment",
    "says that a cash withdrawal was declined",
    "does not recognise a cash withdrawal",
    "was charged a fee for a cash withdrawal",
    "received the wrong amount of cash",
    "says that a transfer has not arrived",
    "says that a transfer was declined",
    "was charged a fee for a transfer",
    "wants to cancel a transfer",
    "asks how long a transfer takes",
    "asks how to top up an account",
    "says that a top-up failed or was reverted",
    "asks for the limits of top-ups",
    "wants to change or reset a PIN or passcode",
    "wants to verify an identity, or asks why it is needed",
    "wants to edit personal details",
    "wants to close an account",
    "asks in which countries or currencies the service is offered",
    "asks for a refund of a purchase",
]
REASONS = [
    *("card", "cash", "transfer", "top-up", "fee", "exchange rate", "identity", "PIN", "account", "refund"),
    "something else",
]
MOODS = ["calm", "confused", "worried", "angry"]


def _listed(labels: list[str]) -> str:
    return ", ".join(f"'{label}'" for label in labels)


QUERIES = (
    Query(
        "BANK-1",
        "21 labels after a filter",
        ("messages",),
        lambda t: t.messages.ai_filter(CARD, selectivity=0.5).select(
            "id", qf.ai_classify("text", CARD_TOPICS).alias("topic")
        ),
        f"SELECT id, AI_CLASSIFY(text, [{_listed(CARD_TOPICS)}]) AS topic FROM messages "
        "WHERE AI_FILTER(PROMPT('Is this message about a card? {0}', text), {'selectivity': 0.5})",
    ),
    Query(
        "BANK-2",
        "26 long labels",
        ("messages",),
        lambda t: t.messages.select(
            "id", "intent", qf.ai_classify("text", LONG_LABELS, task_description="What the customer says.").alias("c")
        ),
        f"SELECT id, intent, AI_CLASSIFY(text, [{_listed(LONG_LABELS)}], "
        "{'task_description': 'What the customer says.'}) AS c FROM messages",
    ),
    Query(
        "BANK-3",
        "11 labels returned and filtered by one call",
        ("messages",),
        lambda t: t.messages.filter(qf.ai_classify("text", REASONS).is_in(["fee", "exchange rate", "refund"])).select(
            "id", qf.ai_classify("text", REASONS).alias("reason")
        ),
        f"SELECT id, AI_CLASSIFY(text, [{_listed(REASONS)}]) AS reason FROM messages "
        "WHERE reason IN ('fee', 'exchange rate', 'refund')",
    ),
    Query(
        "BANK-4",
        "counts a class, most first",
        ("messages",),
        lambda t: (
            t.messages.group_by(qf.ai_classify("text", MOODS).alias("mood"))
            .agg(pl.len().alias("n"))
            .sort("n", "mood", descending=[True, False], nulls_last=[False, True])
        ),
        f"SELECT AI_CLASSIFY(text, [{_listed(MOODS)}]) AS mood, COUNT(*) AS n FROM messages GROUP BY mood "
        "ORDER BY n DESC, mood",
        ordered=True,
    ),
)
