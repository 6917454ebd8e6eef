"""The tasks of the suite: texts and wordings that no training has seen, questions, and what is true of them.

Sizes fit a laptop: about 220,000 tokens for one model. Labels are the sources' own; docs/models.md names the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

import quail_frames as qf
from benchmarks import data
from benchmarks.quality.asking import METHODS, Result, choice, joined, order_flips, pairs_yes_no, together, yes_no
from training import corpus

SEED = 20
POSITIVE = (
    "Would these words make a shopper want to buy the product?",
    "Is the customer giving the product good marks here?",
    "Does the buyer recommend the product?",
    "Would the maker of the product be glad to read this?",
)
NEGATIVE = (
    "Is the customer complaining about something?",
    "Does the comment point out a flaw or a problem?",
    "Would the seller be worried by this feedback?",
)
INTENTS = (
    "card arrival",
    "lost or stolen card",
    "exchange rate",
    "declined card payment",
    "top up failed",
    "request refund",
    "change PIN",
    "edit personal details",
)
READ = 16
"""Messages of each of `INTENTS` whose errors were read once before a recipe was changed."""
INTENT_QUESTION = "What does the customer of the bank need help with?"
TOPIC_QUESTION = "Which section of a newspaper does the item belong in?"
CLAUSES = {
    "has_license_grant": "Is a licence to use something granted in this agreement?",
    "has_exclusivity": "Is one party bound to deal with the other exclusively?",
    "has_non_transferable_license": "Does the agreement say that a licence cannot be transferred?",
    "has_revenue_profit_sharing": "Must one party share its revenue or profit with the other?",
}
CONTRACT_CHARACTERS, TRACE_CHARACTERS, PASSAGE_CHARACTERS = 4_000, 1_000, 500
FAILED = (
    "Did the last command that was run end with an error?",
    "Has the most recent command of this log failed?",
)

STATEMENT = ["id", "passage", "statement", "label"]
FOLLOWS = "Knowing {passage}, should one believe {statement}?"
DENIED = "Does {passage} mean that {statement} is wrong?"

Task = Callable[[qf.Engine, int | None], Iterator[Result]]


def table(name: str) -> pl.DataFrame:
    """A table of the data pack.

    Raises
    ------
    SystemExit
        It is not there; says where it is looked for.
    """
    found = data.table(name)
    if found is None:
        raise SystemExit(
            f"The quality suite needs {name}.parquet, and it is in none of {', '.join(map(str, data.folders()))}. "
            f"Put the data pack beside the repository (../shared/data) or name its folder in {data.VARIABLE}."
        )
    return found


def some(frame: pl.DataFrame, rows: int, limit: int | None) -> pl.DataFrame:
    """So many random rows, the same every time; at most `limit`."""
    frame = frame.sort(frame.columns[0])
    return frame.sample(min(rows, len(frame), limit or rows), seed=SEED, shuffle=True)


def each(frame: pl.DataFrame, by: str, rows: int, limit: int | None) -> pl.DataFrame:
    """So many random rows of every value of `by`; at most `limit` in all."""
    values = frame[by].unique().sort().to_list()
    most = rows if limit is None else min(rows, max(limit // len(values), 1))
    return pl.concat(some(frame.filter(pl.col(by) == value), most, None) for value in values)


def product_sentiment(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Sentences of product reviews: clear ones by seven wordings, and mild ones."""
    texts = table("review_snippets").filter(pl.col("domain") == "product")
    texts = texts.with_columns(good=pl.col("rating") > 0, bad=pl.col("rating") < 0)
    questions = dict.fromkeys(POSITIVE, "good") | dict.fromkeys(NEGATIVE, "bad")
    clear = each(texts.filter(pl.col("rating").abs() >= 2), "good", 50, limit)
    yield yes_no("product sentiment, clear", engine, clear, questions)
    mild = each(texts.filter(pl.col("rating").abs() >= 0.5), "good", 60, limit)
    yield yes_no("product sentiment, with mild", engine, mild, dict([*questions.items()][1:6:2]))


def news_topics(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Ten topics of short news items, and two of them as questions."""
    news = table("news").rename({"topic": "truth"})
    labels = news["truth"].unique().sort().to_list()
    items = each(news, "truth", 6, limit)
    yield from choice("news topics, 10", engine, items, labels, TOPIC_QUESTION, METHODS)
    flags = items.with_columns(sport=pl.col("truth") == "Sports", disaster=pl.col("truth") == "Disasters and accidents")
    rare = pl.concat(
        [flags, some(news_of(news, "Sports"), 6, limit), some(news_of(news, "Disasters and accidents"), 6, limit)]
    )
    questions = {"Is this item about sports?": "sport", "Does it report a disaster or an accident?": "disaster"}
    yield yes_no("news topics, yes/no", engine, rare.unique("id", maintain_order=True), questions)


def news_of(news: pl.DataFrame, topic: str) -> pl.DataFrame:
    """Items of one topic with the flags of `news_topics`."""
    own = news.filter(pl.col("truth") == topic)
    return own.with_columns(sport=pl.lit(topic == "Sports"), disaster=pl.lit(topic == "Disasters and accidents"))


def bank_messages() -> pl.DataFrame:
    """Messages of the test half, with their intents in words."""
    words = table("support_intents").select("intent", truth=pl.col("text"))
    return table("support_messages").filter(pl.col("split") == "test").join(words, on="intent", maintain_order="left")


def intents(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Intents of bank customers: yes or no, among eight, among all 77."""
    messages = bank_messages()
    every = table("support_intents")["text"].to_list()
    known = [name for name in INTENTS if name in every]
    few = each(messages.filter(pl.col("truth").is_in(known)), "truth", READ, limit)
    asked = few.with_columns((pl.col("truth") == name).alias(f"is {name}") for name in known)
    questions = {f"Is the customer writing about this: {name}?": f"is {name}" for name in known}
    yield yes_no("bank intents, yes/no", engine, asked, questions)
    yield from choice("bank intents, 8", engine, few, known, INTENT_QUESTION, METHODS)
    yield from choice("bank intents, 77", engine, some(messages, 32, limit), every, INTENT_QUESTION, METHODS)


def unread_intents(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Choices among eight by messages that no recipe was chosen by, only by the decision head.

    They are the other test messages of the same intents, and intents that are not in `INTENTS`, eight by eight in the
    order of the alphabet, so that intents that begin alike stand side by side.
    """
    messages, every = bank_messages(), sorted(table("support_intents")["text"].to_list())
    known = [name for name in INTENTS if name in every]
    own = messages.filter(pl.col("truth").is_in(known))
    others = own.join(each(own, "truth", READ, None).select("id"), on="id", how="anti")
    if len(others):
        others = some(others, len(others), limit)
        yield from choice("bank intents, 8, unread", engine, others, known, INTENT_QUESTION, ("decision_choice",))
    rest = [name for name in every if name not in known]
    found: list[Result] = []
    for start in range(0, len(rest) - 7, 8):
        labels = rest[start : start + 8]
        few = each(messages.filter(pl.col("truth").is_in(labels)), "truth", 8, limit)
        found += choice("bank intents, eights", engine, few, labels, INTENT_QUESTION, ("decision_choice",))
    if found:
        yield together(found)


def intent_join(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Messages joined with intents: every pair asked."""
    some_intents = some(table("support_intents"), 12, limit)
    messages = bank_messages().filter(pl.col("intent").is_in(some_intents["intent"].to_list()))
    left = each(messages, "intent", 2, limit).select("id", message="text", own="intent").with_row_index("item")
    right = some_intents.select(intent="text", own_right="intent").with_row_index("partner")
    yield joined("bank intents, join", engine, left, right, "Is the message {message} about {intent}?")


def evidence(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Scientific claims and the sentences that support or contradict them: by a join, by scores, and as a choice."""
    claims = table("claims").select(claim_id="id", claim="text")
    pairs = each(table("claim_evidence"), "label", 30, limit).join(claims, on="claim_id", maintain_order="left")
    pairs = pairs.select(
        "claim", passage=pl.col("rationale").str.slice(0, PASSAGE_CHARACTERS), truth=pl.col("label") == "entails"
    ).with_row_index("item")
    question = "Does the passage {passage} support the claim {claim}?"
    sides = pairs.select("item", "claim", "truth", pair="item"), pairs.select("passage", partner="item", pair="item")
    yield joined("claims and evidence, join", engine, *sides, question, on="pair")
    yield pairs_yes_no("claims and evidence, scores", engine, pairs, question)


def statements(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Sentences and what follows from them or contradicts them: the part of MultiNLI that is kept out of training."""
    if not (corpus.FOLDER / "nli.parquet").exists():
        print(f"no {corpus.FOLDER / 'nli.parquet'}: the statements are left out")
        return
    rows = corpus.Corpus(corpus.FOLDER, held_out=True).rows("nli", "nli")
    frame = pl.DataFrame([(row.id, row.text, row.text2, row.label) for row in rows], STATEMENT, orient="row")
    pairs = each(frame.filter(pl.col("label") != "neutral"), "label", 60, limit).with_row_index("item")
    follows, denied = pl.col("label") == "entailment", pl.col("label") == "contradiction"
    left = pairs.select("item", "passage", pair="item", truth=follows)
    right = pairs.select("statement", partner="item", pair="item")
    yield joined("statements, join", engine, left, right, FOLLOWS, on="pair")
    yield pairs_yes_no("statements that follow", engine, pairs.with_columns(truth=follows), FOLLOWS)
    yield pairs_yes_no("statements contradicted", engine, pairs.with_columns(truth=denied), DENIED)


def contracts(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """Clauses of contracts, from their first pages; the experts' answer is about the whole contract."""
    texts = table("contracts").with_columns(pl.col("text").str.slice(0, CONTRACT_CHARACTERS))
    questions = {question: flag for flag, question in CLAUSES.items()}
    yield yes_no("contract clauses", engine, some(texts, 12, limit), questions)


def traces(engine: qf.Engine, limit: int | None) -> Iterator[Result]:
    """The end of a coding agent's log: did its last command fail? One snapshot of a run each."""
    logs = table("agent_traces").drop_nulls("last_returncode").with_columns(failed=pl.col("last_returncode") != 0)
    logs = (
        logs.sort("id").sample(fraction=1.0, seed=SEED, shuffle=True).unique(["trajectory_id", "failed"], keep="first")
    )
    logs = logs.with_columns(text=pl.col("trace").str.slice(-TRACE_CHARACTERS))
    yield yes_no(
        "agent's last command failed", engine, each(logs, "failed", 12, limit), dict.fromkeys(FAILED, "failed")
    )


TASKS: tuple[Task, ...] = (
    product_sentiment,
    statements,
    evidence,
    news_topics,
    intents,
    unread_intents,
    intent_join,
    traces,
    contracts,
)


def flips(engine: qf.Engine, shuffles: int = 5) -> dict[str, float | None]:
    """For each method the share of answers that another order of eight labels changes."""
    messages = bank_messages().filter(pl.col("truth").is_in(INTENTS))
    few, labels = each(messages, "truth", 1, None), list(INTENTS)
    return {method: order_flips(engine, few, labels, INTENT_QUESTION, method, shuffles) for method in METHODS}
