"""Plans that answer the same query in different ways, each with the work that the cost model expects of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from benchmarks.peers.shapes import ASPECTS
from benchmarks.plan_runs import (
    Alternative,
    Bench,
    Case,
    Run,
    chain_work,
    matched_anchors,
    pairs_work,
    rows_kept,
    run_answers,
    run_chain,
    run_join,
)
from benchmarks.prompts import filter_call, join_call, token_batch
from quail_frames.cost.work import NOTHING, AttentionPath, asks, label_scoring, prefill, question_first
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest
from quail_frames.plan.label_scoring import decode_program, letter_figures, tree_program
from quail_frames.plan.physical import Chain, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Ragged

TOPICS = ("billing", "refund request", "refund status", "shipping delay", "shipping damage", "product defect", "other")
MANY = tuple(f"the film is mainly about {name}" for name in ASPECTS)
COMEDY, ACTOR, DIRECTOR = (
    "Is the film a comedy?",
    "Does this review name an actor or an actress?",
    "Does the review mention a director?",
)


def cases(bench: Bench) -> Iterator[Case]:
    """All cases, one after the other."""
    for make in (
        order_of_documents,
        order_of_questions,
        anchors_long_and_short,
        anchors_few_and_many,
        attention_path,
        label_scorings,
        layouts_of_a_long_list,
        layouts_of_long_documents,
        retention,
        filter_around_a_join,
        questions_together,
    ):
        yield make(bench)


# Predicate order --------------------------------------------------------------------------


def order_of_documents(bench: Bench) -> Case:
    """A question about a long text and one about a short text."""
    long, short = bench.reviews(160, 16), bench.reviews(30, 16)
    calls = [filter_call(bench.engine, COMEDY), replace(filter_call(bench.engine, ACTOR), inputs=(1,))]
    return _orders("order: long text or short text first", bench, calls, [long, short], [Answer(0), Answer(1)])


def order_of_questions(bench: Bench) -> Case:
    """A short question and a classification with a long list, about the same short text."""
    labels = AiClassify(Template((Slot(0),)), ("text",), labels=MANY, scoring="letters", layout="document_first")
    calls = [bench.engine.resolve(labels, (0,)), filter_call(bench.engine, COMEDY)]
    tests = [LabelTest(0, MANY[:10]), Answer(1)]
    return _orders("order: long list or short question first", bench, calls, [bench.reviews(25, 16)], tests)


def _orders(
    name: str, bench: Bench, calls: list[PlannedCall], columns: list[Ragged], tests: Sequence[Condition]
) -> Case:
    inputs = tuple(f"t{n}" for n in range(len(columns)))
    arrays = [token_batch("t", column).column(0) for column in columns]
    batch = pa.record_batch(arrays, names=list(inputs))
    plan = Chain(inputs, (), tuple(calls), (0, 1), And(tuple(tests)), (), learn=False)
    shares = [len(rows_kept(bench.engine, replace(plan, keep=test), batch)) / len(columns[0]) for test in tests]

    def alternative(order: tuple[int, ...]) -> Alternative:
        work, alive, there = NOTHING, 1.0, set()
        for number in order:
            column = calls[number].inputs[0]
            document, instruction, question = bench.pieces(calls[number])
            lengths = columns[column].lengths + document
            work += (NOTHING if column in there else prefill(lengths)) * alive
            work += asks(lengths, instruction + question, 1, "unified", bench.head) * alive
            alive, there = alive * shares[number], there | {column}
        return Alternative(f"{order[0] + 1} first", work, run_chain(bench.engine, replace(plan, order=order), batch))

    return Case(name, (alternative((0, 1)), alternative((1, 0))))


# Joins ------------------------------------------------------------------------------------


def anchors_long_and_short(bench: Bench) -> Case:
    """Long reviews and short aspects: either side stays in memory."""
    aspects = bench.engine.tokenizer.encode(list(ASPECTS[:8]))
    return _anchors("anchor: long or short texts", bench, bench.reviews(140, 5), aspects)


def anchors_few_and_many(bench: Bench) -> Case:
    """Few and many texts of equal length."""
    return _anchors("anchor: few or many texts", bench, bench.reviews(50, 2), bench.reviews(40, 14))


def _anchors(name: str, bench: Bench, left: Ragged, right: Ragged) -> Case:
    sides = (("left", left, right, (0,)), ("right", right, left, (1,)))
    found = []
    for side, anchors, partners, slots in sides:
        inputs = (0, 1) if side == "left" else (1, 0)
        call = AiIf(Template(("Does the text ", Slot(0), " speak of ", Slot(1), "?")), ("anchor", "partner"))
        planned = bench.engine.resolve(call, inputs, slots)
        work = pairs_work(bench, planned, anchors, partners)
        found.append(Alternative(side, work, run_join(bench.engine, planned, anchors, partners)))
    return Case(name, tuple(found))


def attention_path(bench: Bench) -> Case:
    """Many short partners of a long text: its KV is read once for all, or once for each."""
    terms = [*ASPECTS, *(f"{name}?" for name in ASPECTS)]
    anchors, partners = bench.reviews(900, 2), bench.engine.tokenizer.encode(terms)
    call = join_call(bench.engine, "Does the review ", " discuss ", "?")
    paths: tuple[tuple[AttentionPath, Engine], ...] = (("tree", bench.engine), ("unified", bench.unified))
    made = [
        Alternative(path, pairs_work(bench, call, anchors, partners, path), run_join(engine, call, anchors, partners))
        for path, engine in paths
    ]
    return Case("attention: tree or unified", tuple(made))


# Classifications --------------------------------------------------------------------------


def label_scorings(bench: Bench) -> Case:
    """Three ways of reading one of ten labels."""
    rows = bench.reviews(30, 14)
    labels = LabelTokens.of(bench.engine.tokenizer, TOPICS)
    figures = {
        "letters": letter_figures(len(TOPICS)),
        "trie_decode": decode_program(labels.trie).figures,
        "trie_tree": tree_program(labels.trie, labels.word_ends).figures,
    }
    found = []
    for scoring, figure in figures.items():
        call = AiClassify(Template((Slot(0),)), ("text",), labels=TOPICS, scoring=scoring, layout="document_first")  # type: ignore[arg-type]
        planned = bench.engine.resolve(call, (0,))
        document, instruction, question = bench.pieces(planned)
        lengths = rows.lengths + document
        share = 1.0 if scoring == "trie_tree" else bench.target.head_share(figure.head_entries) / figure.head_rows
        work = prefill(lengths) + label_scoring(figure, lengths, instruction + question, 0, share)
        found.append(Alternative(scoring, work, run_answers(bench.engine, [planned], rows)))
    return Case("label scoring", tuple(found))


def layouts_of_a_long_list(bench: Bench) -> Case:
    """Short texts and a long list of labels."""

    def made(layout: str) -> list[PlannedCall]:
        call = AiClassify(Template((Slot(0),)), ("text",), labels=MANY, scoring="letters", layout=layout)  # type: ignore[arg-type]
        return [bench.engine.resolve(call, (0,))]

    return _layouts("layout: a long list, short texts", bench, made, bench.reviews(20, 14))


def layouts_of_long_documents(bench: Bench) -> Case:
    """Long texts and three short questions."""

    def made(layout: str) -> list[PlannedCall]:
        texts = [Template((question + "\n\n", Slot(0))) for question in (COMEDY, ACTOR, DIRECTOR)]
        return [bench.engine.resolve(AiIf(text, ("text",), layout=layout), (0,)) for text in texts]  # type: ignore[arg-type]

    return _layouts("layout: short questions, long texts", bench, made, bench.reviews(140, 5))


def _layouts(name: str, bench: Bench, made: Callable[[str], list[PlannedCall]], rows: Ragged) -> Case:
    first, second = made("document_first"), made("question_first")
    together = chain_work(bench, first, rows)
    once = [float(bench.pieces(call)[1]) for call in second]
    apart = question_first(rows.lengths, once, bench.pieces(second[0])[2], bench.head)
    return Case(
        name,
        (
            Alternative("document first", together, run_answers(bench.engine, first, rows)),
            Alternative("question first", apart, run_answers(bench.engine, second, rows)),
        ),
    )


# Operators that follow each other ---------------------------------------------------------


def retention(bench: Bench) -> Case:
    """A filter, then a join about the same texts: their KV stays, or is computed again."""
    rows, aspects = bench.reviews(150, 7), bench.engine.tokenizer.encode(list(ASPECTS[:3]))
    keep, call = filter_call(bench.engine, ACTOR), join_call(bench.engine, "Does the review ", " discuss ", "?")
    plan = Chain(("t",), (), (keep,), (0,), Answer(0), ())
    kept = rows.take(rows_kept(bench.engine, plan, token_batch("t", rows)))
    asked = chain_work(bench, [keep], rows)

    def run(retain: bool) -> Run:
        def both(report: RunReport) -> None:
            survivors = rows.take(rows_kept(bench.engine, replace(plan, retain=retain), token_batch("t", rows), report))
            run_join(bench.engine, call, survivors, aspects)(report)
            bench.engine.end(report)

        return both

    return Case(
        "retention",
        tuple(
            Alternative(name, asked + pairs_work(bench, call, kept, aspects, there=stays), run(stays))
            for name, stays in (("kept", True), ("computed again", False))
        ),
    )


def filter_around_a_join(bench: Bench) -> Case:
    """A filter on one side of a join, before it or behind it."""
    rows, aspects = bench.reviews(60, 8), bench.engine.tokenizer.encode(list(ASPECTS[:8]))
    keep, call = filter_call(bench.engine, COMEDY), join_call(bench.engine, "Does the review ", " discuss ", "?")
    plan = Chain(("t",), (), (keep,), (0,), Answer(0), ())
    kept = rows.take(rows_kept(bench.engine, plan, token_batch("t", rows)))
    matched = rows.take(matched_anchors(bench.engine, call, rows, aspects, RunReport()))

    def before(report: RunReport) -> None:
        survivors = rows.take(rows_kept(bench.engine, plan, token_batch("t", rows), report))
        run_join(bench.engine, call, survivors, aspects)(report)

    def behind(report: RunReport) -> None:
        found = rows.take(matched_anchors(bench.engine, call, rows, aspects, report))
        rows_kept(bench.engine, plan, token_batch("t", found), report)

    first = chain_work(bench, [keep], rows) + pairs_work(bench, call, kept, aspects)
    second = pairs_work(bench, call, rows, aspects) + chain_work(bench, [keep], matched)
    plans = (Alternative("before", first, before), Alternative("behind", second, behind))
    return Case("a filter before or behind a join", plans)


def questions_together(bench: Bench) -> Case:
    """Three questions in one chain, or one operator for each."""
    rows = bench.reviews(110, 7)
    calls = [filter_call(bench.engine, question) for question in (COMEDY, ACTOR, DIRECTOR)]
    together = chain_work(bench, calls, rows)
    apart = sum((chain_work(bench, [call], rows) for call in calls), NOTHING)

    def each(report: RunReport) -> None:
        for call in calls:
            run_answers(bench.engine, [call], rows)(report)

    one = run_answers(bench.engine, calls, rows)
    return Case("three questions", (Alternative("one chain", together, one), Alternative("three", apart, each)))
