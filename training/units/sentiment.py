"""Opinions: short and long ones, mild and neutral ones, of whole texts and of one feature."""

from __future__ import annotations

from collections.abc import Sequence

from quail_frames.tuning.examples import Item
from training import wordings as w
from training.calls import CHOICES, ask, choose
from training.corpus import Row, cut
from training.units.builder import NEGATIVE_SIGN, Builder, Random, Unit, noun, ramp
from training.wordings import Wordings

PRODUCTS = ("product", "product", "item", "device", "phone", "camera", "purchase")
FILMS = ("film", "movie", "movie", "picture")
RATED = {"movie_snippet_sentiment": FILMS, "tweet_sentiment": (), "product_pros_or_cons": PRODUCTS}
NAMES_OF_TEXT = {
    "movie_snippet_sentiment": ("the review", "the snippet", "the sentence"),
    "tweet_sentiment": ("the tweet", "the message", "the post"),
    "product_pros_or_cons": ("the review", "the comment", "the customer's note"),
    "movie_review_long_sentiment": ("the review",),
    "review_sentence_opinion": ("the review", "the sentence"),
}


def sentiment(builder: Builder, rng: Random) -> Unit:
    """Short opinions: films, products, tweets, sentences of reviews; mild and neutral ones among them."""
    task = rng.choice(
        (
            "movie_snippet_sentiment",
            "movie_snippet_sentiment",
            "tweet_sentiment",
            "product_pros_or_cons",
            "review_sentence_opinion",
        )
    )
    file = "product_aspects" if task == "review_sentence_opinion" else "sentiment"
    groups = builder.corpus.labelled(file, task)
    label = rng.choices(list(groups), [SENTIMENT_SHARES[name] for name in groups])[0]
    row = rng.choice(groups[label])
    rating = float(row.extra.get("mean_rating", 0.0))
    sign = {"positive": 1, "pros": 1, "negative": -1, "cons": -1, "weak": 1 if rating > 0 else -1}.get(label, 0)
    things = RATED.get(task) or ((str(row.extra["product"]), "product", "item") if "product" in row.extra else ())
    return opinion(builder, rng, row, sign, label == "weak", noun(rng, *NAMES_OF_TEXT[task]), things, task)


SENTIMENT_SHARES = {
    "positive": 4.0,
    "negative": 4.0,
    "pros": 4.0,
    "cons": 4.0,
    "weak": 1.6,
    "neutral": 1.0,
    "mixed": 0.0,
    "no opinion on a feature": 0.0,
}


def opinion_wordings(positive: bool, of_thing: bool) -> Wordings:
    """Wordings about the sign of an opinion, with or without naming what it is about."""
    if of_thing:
        return w.POSITIVE_OF_THING if positive else w.NEGATIVE_OF_THING
    return w.POSITIVE if positive else w.NEGATIVE


def opinion(
    builder: Builder, rng: Random, row: Row, sign: int, weak: bool, doc: str, things: Sequence[str], task: str
) -> Unit:
    """Two to four questions about the sign of an opinion, and at times a choice."""
    text = cut(row.text, 330)
    unit: Unit = []
    for positive in rng.sample((True, False), 2) * rng.choice((1, 2, 2)):
        of_thing = bool(things) and rng.random() < 0.5
        wordings = (
            (w.POSITIVE_OF_THING if positive else w.NEGATIVE_OF_THING)
            if of_thing
            else (w.POSITIVE if positive else w.NEGATIVE)
        )
        thing = {"thing": rng.choice(things)} if of_thing else {}
        truth = sign > 0 if positive else sign < 0
        unit.append(
            builder.question(wordings, truth, rng, doc, f"sentiment {task}{' weak' if weak else ''}", text, **thing)
        )
    if not weak and rng.random() < 0.25:
        unit.append(builder.question(w.NEUTRAL, sign == 0, rng, doc, "sentiment neutral", text))
    if not weak and rng.random() < 0.3:
        unit.append(sentiment_choice(builder, rng, text, sign))
    return unit


def opposite_opinions(builder: Builder, rng: Random) -> Unit:
    """A clearly good and a clearly bad opinion, and the same straight question about both."""
    task, good, bad = rng.choice(CLEAR)
    groups = builder.corpus.labelled("sentiment", task)
    rows = {label: rng.choice(groups[label]) for label in rng.sample((good, bad), 2)}
    for label, row in rows.items():
        while abs(float(row.extra.get("mean_rating", 4.0))) < CLEAR_RATING:
            row = rows[label] = rng.choice(groups[label])
    unit: Unit = []
    for _ in range(2):
        positive = rng.random() >= 0.5 * ramp(builder.unit, *NEGATIVE_SIGN)
        of_thing = bool(RATED[task]) and rng.random() < 0.5
        wordings = opinion_wordings(positive, of_thing)
        thing = rng.choice(RATED[task] or ("thing",))
        question = builder.wording(wordings, rng, False).format(doc=noun(rng, *NAMES_OF_TEXT[task]), thing=thing)
        for label, row in rows.items():
            group = f"sentiment clear {'positive' if positive else 'negative'}"
            unit.append(ask(question, cut(row.text, 200), float((label == good) == positive), group))
    return unit


CLEAR = (
    ("movie_snippet_sentiment", "positive", "negative"),
    ("product_pros_or_cons", "pros", "cons"),
    ("tweet_sentiment", "positive", "negative"),
)
CLEAR_RATING = 1.7


def sentiment_choice(builder: Builder, rng: Random, text: str, sign: int) -> Item:
    """A choice of two or three names of sentiments, in any order."""
    names = list(rng.choice(w.SENTIMENT_NAMES))
    right = names[{1: 0, -1: 1, 0: 2}[sign]]
    if sign != 0 and rng.random() < 0.5:
        names = names[:2]
    rng.shuffle(names)
    scoring = rng.choice(CHOICES)
    question = rng.choice(w.SENTIMENT_CHOICE)
    return choose(question, text, names, names.index(right), f"sentiment {scoring}", scoring=scoring)


def long_review(builder: Builder, rng: Random) -> Unit:
    """A long film review, whole or cut anywhere, with several questions."""
    row = rng.choice(builder.corpus.rows("sentiment", "movie_review_long_sentiment"))
    long_text = row.text[-rng.choice((700, 1200, 2400, 3600)) :]
    doc = noun(rng, "the review")
    unit: Unit = []
    for positive in (True, False, True, False, True, False):
        of_thing = rng.random() < 0.5
        wordings = (
            (w.POSITIVE_OF_THING if positive else w.NEGATIVE_OF_THING)
            if of_thing
            else (w.POSITIVE if positive else w.NEGATIVE)
        )
        thing = {"thing": rng.choice(FILMS)} if of_thing else {}
        truth = (row.label == "positive") == positive
        unit.append(builder.question(wordings, truth, rng, doc, "sentiment long", long_text, **thing))
    return unit


def aspects(builder: Builder, rng: Random) -> Unit:
    """The opinion about one feature of a product."""
    groups = builder.corpus.labelled("product_aspects", "aspect_sentiment")
    row = rng.choice(groups[rng.choice(("positive", "negative"))])
    doc, good, text = noun(rng, "the review", "the sentence"), row.label == "positive", cut(row.text, 330)
    unit: Unit = []
    for positive in (True, False):
        wordings = w.ASPECT_POSITIVE if positive else w.ASPECT_NEGATIVE
        unit.append(builder.question(wordings, good == positive, rng, doc, "aspect", text, x=row.question or ""))
    return unit
