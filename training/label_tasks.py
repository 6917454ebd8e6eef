"""The plain labelling tasks: a text, one or more labels, and how to ask about them. One table, a line a task."""

from __future__ import annotations

from dataclasses import dataclass, field

from training.wordings import ABOUT, FEELING, KIND, MENTIONS, ROLE, Wordings


@dataclass(frozen=True)
class LabelTask:
    """How the rows of a task become questions.

    Attributes
    ----------
    share
        Weight in the mixture.
    names
        Labels in words where the label itself is not; a label mapped to "" is never asked about.
    nouns
        What the text is called besides "the document" and "the text".
    chars
        Longest text; a longer one is cut at a word.
    exclusive
        False where several labels may apply and missing ones mean no.
    """

    name: str
    file: str
    share: float
    wordings: Wordings
    choose: tuple[str, ...] = ("Which category fits?", "", "What is the text about?")
    nouns: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    chars: int = 360
    exclusive: bool = True


def _kinds(*names: str) -> dict[str, str]:
    articles = {name: ("an " if name[0] in "aeiou" else "a ") + name for name in names}
    return articles | {"jokes": "a collection of jokes", "tweets": "a tweet or several", "fiction": "fiction"}


ROLES = {"method": "method", "result": "results", "background": "background", "objective": "aim", "other": ""}
LABEL_TASKS = (
    LabelTask(
        "emotion",
        "emotions",
        5,
        FEELING,
        ("Which emotion does it express?", "", "How does the writer feel?"),
        ("the comment",),
        {"neutral": ""},
        exclusive=False,
    ),
    LabelTask(
        "subjective_or_objective",
        "subjectivity",
        1.5,
        KIND,
        ("Opinion or fact?", "What kind of sentence is it?"),
        ("the sentence",),
        {"objective": "an objective statement", "subjective": "a subjective opinion"},
    ),
    LabelTask(
        "arxiv_field",
        "topics_genres",
        3,
        ABOUT,
        ("Which field is the paper from?", "", "What is the subject?"),
        ("the abstract", "the paper"),
        chars=400,
    ),
    LabelTask(
        "genre",
        "topics_genres",
        3,
        KIND,
        ("What kind of text is it?", ""),
        (),
        _kinds(
            "blog post",
            "court transcript",
            "email",
            "essay",
            "face-to-face conversation",
            "fundraising or personal letter",
            "government document",
            "magazine article",
            "non-fiction book",
            "political debate",
            "scientific article",
            "spam email",
            "travel guide",
        ),
        chars=400,
    ),
    LabelTask(
        "presidential_speech",
        "topics_genres",
        0.3,
        KIND,
        ("Which speech is it from?",),
        ("the passage",),
        {"State of the Union address": "a State of the Union address", "inaugural address": "an inaugural address"},
    ),
    LabelTask(
        "language",
        "languages",
        1,
        Wordings(
            (
                "Is {doc} written in {x}?",
                "Is the language {x}?",
                "{x}",
                "Is this {x}?",
                "The text is in {x}.",
                "Is it {x} text?",
            ),
            ("Is {doc} in a language other than {x}?", "The text is not in {x}."),
        ),
        ("Which language is it?", ""),
        chars=120,
    ),
    LabelTask(
        "abstract_sentence_role",
        "abstract_roles",
        2,
        ROLE,
        ("Which part of the abstract is it?",),
        ("the sentence",),
        ROLES,
    ),
    LabelTask(
        "abstract_section_role", "abstract_roles", 1.5, ROLE, ("Which section is it?",), ("the paragraph",), ROLES
    ),
    LabelTask(
        "health_text_kind",
        "health_texts",
        4,
        ABOUT,
        ("Which aspect does the text describe?", "", "What is it about?"),
        ("the passage",),
        {
            "considerations": "things to consider",
            "information": "general information",
            "exams and tests": "exams and tests",
            "susceptibility": "who is at risk",
            "frequency": "how common a disease is",
            "inheritance": "how a disease is inherited",
        },
    ),
    LabelTask(
        "visit_conversation_topic",
        "dialogues",
        1.5,
        ABOUT,
        ("What do they talk about?", "Which section is it for?"),
        ("the conversation",),
        {
            "history of present illness": "the present illness",
            "disposition": "",
            "other history": "",
            "assessment": "",
            "plan": "the plan",
        },
    ),
    LabelTask(
        "coffee_bar_request",
        "dialogues",
        1.5,
        Wordings(
            (
                "In {doc}, is it true that the customer {x}?",
                "the customer {x}",
                "Does this happen: the customer {x}?",
                "What happens is that the customer {x}.",
                "Is this a conversation in which the customer {x}?",
                "Is it right that the customer {x}?",
            ),
            ("Is it false that the customer {x}?", "Does something else happen than that the customer {x}?"),
        ),
        ("What happens in the conversation?", "What does the customer do?"),
        ("the conversation",),
        {
            "off topic": "talks about something off topic",
            "the item asked for is not available": "asks for an item that is not available",
        },
    ),
    LabelTask(
        "terms_of_service_clause",
        "legal",
        2,
        ABOUT,
        ("What kind of clause is it?", ""),
        ("the clause",),
        {
            "other": "",
            "contract by using": "accepting the terms by using the service",
            "unilateral change": "changing the terms unilaterally",
            "choice of law": "the governing law",
            "unilateral termination": "ending the service unilaterally",
            "content removal": "removing content",
        },
    ),
    LabelTask(
        "booking_message_mentions",
        "booking_messages",
        3,
        MENTIONS,
        ("What is mentioned?",),
        ("the message",),
        {
            "none": "",
            "date": "a date",
            "time": "a time",
            "number of people": "a number of people",
            "first name": "a first name",
            "last name": "a last name",
        },
        exclusive=False,
    ),
    LabelTask(
        "drug_event",
        "drug_reports",
        1.5,
        Wordings(
            (
                "Does {doc} describe {x}?",
                "Is {x} reported?",
                "{x}",
                "Is this a report of {x}?",
                "There is {x} here.",
                "Does it tell of {x}?",
            ),
            ("Is there no {x} in {doc}?", "Is {x} absent?"),
        ),
        ("What is reported?",),
        ("the report", "the sentence"),
        {"adverse event": "an adverse drug effect", "both": "", "therapeutic event": "a wanted effect of a drug"},
    ),
    LabelTask(
        "comment_toxicity",
        "safety",
        1.2,
        Wordings(
            (
                "Does {doc} contain {x}?",
                "Are there {x} in {doc}?",
                "Does the writer use {x}?",
                "{x}",
                "There are {x} here.",
                "Can {x} be found in this?",
            ),
            ("Is {doc} free of {x}?", "Is it untrue that the comment has {x}?"),
        ),
        ("Is the comment toxic?",),
        ("the comment",),
        {"no toxic words": ""},
    ),
    LabelTask(
        "hateful_or_not",
        "safety",
        1.2,
        Wordings(
            (
                "Is {doc} {x}?",
                "Would a moderator call this {x}?",
                "{x}",
                "Is this {x} towards a group of people?",
                "The text is {x}.",
                "Should this be removed as {x}?",
            ),
            ("Is {doc} not {x}?", "Is it wrong to call this {x}?"),
        ),
        ("Is it hateful?",),
        ("the post",),
        {"non-hateful": ""},
    ),
    LabelTask(
        "moderation_category",
        "safety",
        0.8,
        Wordings(
            ("Should {doc} be {x} by a moderator?", "Would this be {x} for its content?", "Is this to be {x}?"),
            ("Is {doc} harmless?", "Is this content fine as it is?"),
        ),
        ("Is it harmful?",),
        ("the post",),
        {"not flagged": ""},
    ),
    LabelTask(
        "overruling",
        "legal",
        0.8,
        Wordings(
            (
                "Does {doc} overrule a previous case?",
                "Is an earlier decision overruled?",
                "A previous case is overruled.",
                "Does the court depart from an earlier ruling?",
                "overrules a case",
                "Is a precedent thrown out here?",
            ),
            ("Does {doc} leave earlier decisions in force?", "Is no case overruled in {doc}?"),
        ),
        (),
        ("the sentence",),
        {"no": "", "yes": "overruling"},
    ),
    LabelTask(
        "review_sentence_opinion",
        "product_aspects",
        1,
        Wordings(
            ("Does {doc} contain {x}?", "Is there {x} in {doc}?", "{x}", "Does the writer offer {x}?"),
            ("Does {doc} contain nothing like {x}?", "Is {x} missing?"),
        ),
        ("What does the sentence do?",),
        ("the sentence",),
        {
            "mixed": "",
            "no opinion on a feature": "",
            "positive": "praise of the product",
            "negative": "criticism of the product",
        },
    ),
)
"""`names` of "" marks what is only ever a wrong answer or a choice."""
