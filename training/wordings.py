"""Question wordings: many ways to ask the same fact, straight and negated, so that no wording has a favourite answer.

`{x}` stands for a label in words, `{doc}` for what the text is ("the review", "the document"). A straight wording is
TRUE where the label applies, a negated one where it does not. Every sixth wording of a list is held out of training;
calibration is fitted on those.
"""

from __future__ import annotations

from dataclasses import dataclass

HELD_OUT = 6


@dataclass(frozen=True)
class Wordings:
    """Straight and negated wordings of one fact."""

    yes: tuple[str, ...]
    no: tuple[str, ...] = ()

    def part(self, held_out: bool) -> Wordings:
        """The wordings of training, or those held out."""
        return Wordings(_part(self.yes, held_out), _part(self.no, held_out))


def _part(wordings: tuple[str, ...], held_out: bool) -> tuple[str, ...]:
    return tuple(text for number, text in enumerate(wordings) if (number % HELD_OUT == HELD_OUT - 1) == held_out)


POSITIVE = Wordings(
    (
        "Is {doc} positive?",
        "Does {doc} express a positive opinion?",
        "Is the sentiment of {doc} positive?",
        "Is the writer pleased?",
        "Does the author speak well of it?",
        "Is the overall tone favourable?",
        "Is this a good opinion?",
        "positive sentiment",
        "The writer is happy about it.",
        "Does {doc} contain praise?",
        "Would the writer say that they liked it?",
        "Is the author satisfied rather than disappointed?",
        "Decide whether the author, all in all, has a good opinion. Is the opinion favourable?",
        "Does the writer feel good about this?",
        "Was it a good experience?",
        "Is the impression that {doc} gives a good one?",
        "Is {doc} approving in tone?",
        "Does the text sound enthusiastic or content?",
    ),
    (
        "Is {doc} anything but positive?",
        "Does the writer fail to say anything good?",
        "Is it wrong to call {doc} favourable?",
        "Is praise missing from {doc}?",
        "The writer is not satisfied.",
        "Is {doc} not a positive one?",
    ),
)

NEGATIVE = Wordings(
    (
        "Is {doc} negative?",
        "Does {doc} express a negative opinion?",
        "Is the sentiment of {doc} negative?",
        "Is the writer unhappy?",
        "Does the author speak badly of it?",
        "Is the overall tone unfavourable?",
        "Is this a bad opinion?",
        "negative sentiment",
        "The writer is dissatisfied.",
        "Does {doc} contain criticism?",
        "Would the writer say that they disliked it?",
        "Is the author disappointed rather than satisfied?",
        "Decide whether the author, all in all, has a bad opinion. Is the opinion unfavourable?",
        "Does the writer feel bad about this?",
        "Was it a bad experience?",
        "Is the impression that {doc} gives a bad one?",
        "Is {doc} a complaint?",
        "Does the text sound annoyed, sad or let down?",
    ),
    (
        "Is {doc} free of criticism?",
        "Does the writer have nothing bad to say?",
        "Is it wrong to call {doc} unfavourable?",
        "Is there no complaint in {doc}?",
        "The writer is not disappointed.",
        "Is {doc} not a negative one?",
    ),
)

POSITIVE_OF_THING = Wordings(
    (
        "Does the writer like the {thing}?",
        "Would the reviewer recommend the {thing}?",
        "Is the reviewer happy with the {thing}?",
        "Does {doc} praise the {thing}?",
        "Did the reviewer enjoy the {thing}?",
        "Does the writer think that the {thing} is good?",
        "The reviewer would tell a friend to get or see the {thing}.",
        "Is this a point in favour of the {thing}?",
        "Is the {thing} described as worth the money or time?",
        "According to {doc}, is the {thing} any good?",
        "Would {doc} make somebody want the {thing}?",
        "Does the writer have a high opinion of the {thing}?",
    ),
    (
        "Would the reviewer be reluctant to recommend the {thing}?",
        "Does the writer have no good word for the {thing}?",
        "Does the writer not like the {thing}?",
        "The reviewer did not enjoy the {thing}.",
        "Is the {thing} described as not worth it?",
        "Is the reviewer less than happy with the {thing}?",
    ),
)

NEGATIVE_OF_THING = Wordings(
    (
        "Does the writer dislike the {thing}?",
        "Would the reviewer advise against the {thing}?",
        "Is the reviewer unhappy with the {thing}?",
        "Does {doc} criticise the {thing}?",
        "Was the reviewer bored, annoyed or let down by the {thing}?",
        "Does the writer think that the {thing} is bad?",
        "The reviewer would warn a friend about the {thing}.",
        "Is this a point against the {thing}?",
        "Is the {thing} described as a waste of money or time?",
        "According to {doc}, does the {thing} have a problem?",
        "Would {doc} put somebody off the {thing}?",
        "Is something wrong with the {thing}?",
    ),
    (
        "Is the reviewer fine with the {thing}?",
        "Does the writer have no complaint about the {thing}?",
        "Does the writer not dislike the {thing}?",
        "The reviewer had no trouble with the {thing}.",
        "Is the {thing} described without any criticism?",
        "Is the reviewer anything but unhappy with the {thing}?",
    ),
)

NEUTRAL = Wordings(
    (
        "Is {doc} neutral?",
        "Does {doc} express neither a good nor a bad opinion?",
        "Is {doc} free of any opinion?",
        "Is the tone of {doc} matter-of-fact?",
        "neutral sentiment",
        "Does the writer stay impartial?",
    ),
    ("Does {doc} express a clear opinion?", "Does the writer take a side, for or against?"),
)

ASPECT_POSITIVE = Wordings(
    (
        "Is the opinion about the {x} positive?",
        "Does the reviewer like the {x}?",
        "Is the {x} praised?",
        "Is the reviewer happy with the {x}?",
        "The {x} is described as good.",
        "Does {doc} say something good about the {x}?",
    ),
    ("Is the opinion about the {x} not positive?", "Does the reviewer not like the {x}?"),
)

ASPECT_NEGATIVE = Wordings(
    (
        "Is the opinion about the {x} negative?",
        "Does the reviewer complain about the {x}?",
        "Is the {x} criticised?",
        "Is the reviewer unhappy with the {x}?",
        "The {x} is described as bad.",
        "Does {doc} say something bad about the {x}?",
    ),
    ("Is the opinion about the {x} not negative?", "Is the reviewer fine with the {x}?"),
)

INTENT_NAME = Wordings(
    (
        "Is the user asking about {x}?",
        "Is this message about {x}?",
        "Is the intent of {doc} {x}?",
        "Does {doc} concern {x}?",
        "{x}",
        "Is the topic {x}?",
        "Should this be routed to the team for {x}?",
        "The customer needs help with {x}.",
        "Is it a request about {x}?",
        "Does the request fall under '{x}'?",
        "Would you file {doc} under {x}?",
        "Is {x} what the person is after?",
        "Is the customer writing about {x}?",
        "Does this query belong to the category {x}?",
        "Is {doc} related to {x}?",
        "Does the customer's question deal with {x}?",
        "Read the message and decide what the sender is after. Is it {x}?",
        "Is the main subject of {doc} {x}?",
    ),
    (
        "Is {doc} about something other than {x}?",
        "Is {x} not what the user is asking about?",
        "Does {doc} have nothing to do with {x}?",
        "Is it wrong to file {doc} under {x}?",
        "The user does not ask about {x}.",
        "Is the intent anything other than {x}?",
    ),
)

INTENT_PHRASE = Wordings(
    (
        "Does the user want to {x}?",
        "Is the user trying to {x}?",
        "Is this a request to {x}?",
        "The user would like to {x}.",
        "Is the purpose of {doc} to {x}?",
        "Does the customer wish to {x}?",
        "Does the sender intend to {x}?",
        "Is somebody asking how to {x}, or asking to {x}?",
        "Did the person write because they want to {x}?",
        "Would it help this user to {x}?",
        "user wants to {x}",
        "Is the goal of the person to {x}?",
    ),
    (
        "Does the user want something other than to {x}?",
        "Is the user not trying to {x}?",
        "The user has no wish to {x}.",
        "Is this anything but a request to {x}?",
        "Is the purpose of {doc} something else than to {x}?",
        "Is it wrong to say that the user wants to {x}?",
    ),
)

INTENT_JOIN = (
    "Does the message {0} match the intent {1}?",
    "Is the customer in {0} asking about {1}?",
    "Does {1} describe what {0} is about?",
    "Should the request {0} be routed to {1}?",
    "Is {1} the right category for {0}?",
    "Is the topic of {0} {1}?",
    "{1} is the reason why the user wrote {0}.",
)

INTENT_CHOICE = (
    "What is the intent of the message?",
    "Which intent does the request have?",
    "What does the user want?",
    "What is the customer asking about?",
    "Route the message to the right topic.",
    "Which category fits the request?",
    "",
    "What is this about?",
    "Which of these is the user asking for?",
)

SENTIMENT_CHOICE = (
    "What is the sentiment?",
    "Which sentiment does the text express?",
    "How does the writer feel about it?",
    "Classify the sentiment of the review.",
    "",
    "Is the opinion good or bad?",
    "What is the tone of the text?",
)

SENTIMENT_NAMES = (
    ("positive", "negative", "neutral"),
    ("good", "bad", "mixed"),
    ("favourable", "unfavourable", "neither"),
    ("happy", "unhappy", "indifferent"),
    ("praise", "complaint", "no opinion"),
    ("satisfied", "dissatisfied", "undecided"),
)

ENTAILS = (
    "Does {0} entail {1}?",
    "Does {0} support {1}?",
    "If {0} is true, must {1} be true?",
    "Can {1} be concluded from {0}?",
    "According to {0}, is {1} true?",
    "Does {0} confirm the claim {1}?",
    "Is the statement {1} backed by {0}?",
    "{1} follows from {0}.",
    "Is {1} correct, given {0}?",
    "Does the evidence {0} show that the claim {1} is right?",
    "Do {0} and {1} say the same or does {0} say more?",
    "Does {0} prove {1}?",
)
CONTRADICTS = (
    "Does {0} contradict {1}?",
    "Does {0} refute {1}?",
    "If {0} is true, must {1} be false?",
    "Do {0} and {1} contradict each other?",
    "According to {0}, is {1} false?",
    "Does {0} disprove the claim {1}?",
    "Is the statement {1} at odds with {0}?",
    "{1} cannot be true if {0} is.",
    "Is {1} wrong, given {0}?",
    "Does the evidence {0} show that the claim {1} is wrong?",
    "Are {0} and {1} incompatible?",
    "Does {0} speak against {1}?",
)
UNDECIDED = (
    "Does {0} leave open whether {1} is true?",
    "Is it impossible to tell from {0} whether {1} is true?",
    "Are {0} and {1} neither in agreement nor in conflict?",
    "Does {0} say nothing that decides {1}?",
)
STATED = Wordings(
    (
        "Is it true that: {x}",
        "According to {doc}, is this true? {x}",
        "Does {doc} support this statement? {x}",
        "{x}",
        "Does it follow from {doc} that: {x}",
        "Is the following correct, given {doc}? {x}",
        "Can this be concluded from {doc}? {x}",
    ),
    ("Does {doc} fail to support this statement? {x}", "Is this not said by {doc}? {x}"),
)
DENIED = Wordings(
    (
        "Does {doc} contradict this statement? {x}",
        "According to {doc}, is this false? {x}",
        "Is it untrue, given {doc}, that: {x}",
        "Does {doc} rule this out? {x}",
        "Is this claim at odds with {doc}? {x}",
        "Does {doc} refute this? {x}",
    ),
    ("Is this statement compatible with {doc}? {x}", "Could this be true, given {doc}? {x}"),
)
RELATION_CHOICE = (
    "How does {1} relate to {0}?",
    "What does {0} say about {1}?",
    "Which relation holds between {0} and {1}?",
    "Compare {0} with {1}.",
)
RELATION_NAMES = (
    ("entailment", "contradiction", "neutral"),
    ("supports", "contradicts", "says nothing about it"),
    ("true", "false", "cannot be told"),
    ("agrees", "conflicts", "unrelated"),
)

ABOUT = Wordings(
    (
        "Is {doc} about {x}?",
        "Is the topic of {doc} {x}?",
        "Does {doc} deal with {x}?",
        "{x}",
        "Does {doc} discuss {x}?",
        "Does {doc} belong to the category {x}?",
        "Is {x} the subject of {doc}?",
        "Would {doc} be filed under {x}?",
        "Does this concern {x}?",
        "The text is about {x}.",
        "Is it mainly about {x}?",
        "Does {doc} cover the topic {x}?",
    ),
    (
        "Is {doc} about something other than {x}?",
        "Does {doc} have nothing to do with {x}?",
        "Is {x} not the topic of {doc}?",
        "Is it wrong to file {doc} under {x}?",
        "The text is not about {x}.",
        "Does {doc} leave {x} out?",
    ),
)
KIND = Wordings(
    (
        "Is {doc} {x}?",
        "Is this {x}?",
        "Would you call {doc} {x}?",
        "Is {x} the right name for this kind of text?",
        "This is {x}.",
        "Does {doc} look like {x}?",
    ),
    ("Is {doc} something other than {x}?", "Is it wrong to call this {x}?", "This is not {x}."),
)
FEELING = Wordings(
    (
        "Does {doc} express {x}?",
        "Is the emotion of {doc} {x}?",
        "Does the writer show {x}?",
        "Is there {x} in {doc}?",
        "{x}",
        "Does the person who wrote this feel {x}?",
        "The comment conveys {x}.",
    ),
    ("Is {x} absent from {doc}?", "Does the writer show no {x}?", "Is the emotion something other than {x}?"),
)
MENTIONS = Wordings(
    (
        "Does {doc} mention {x}?",
        "Is {x} mentioned?",
        "Does {doc} contain {x}?",
        "Is {x} given in {doc}?",
        "Does the writer name {x}?",
        "Can {x} be found in {doc}?",
        "{x} is mentioned.",
    ),
    ("Is {x} missing from {doc}?", "Does {doc} leave out {x}?", "There is no mention of {x}."),
)
ROLE = Wordings(
    (
        "Does {doc} state the {x}?",
        "Is {doc} about the {x} of the study?",
        "Is this the {x}?",
        "The passage gives the {x}.",
        "Would this stand under the heading {x}?",
        "Is the role of {doc} in the abstract: {x}?",
    ),
    ("Is this something other than the {x}?", "The passage does not give the {x}."),
)
PLAIN = Wordings(
    ("{x}", "Answer this from {doc}: {x}", "Given {doc}: {x}", "Question: {x} Is the answer yes?"),
    ("Is the answer to this question no? {x}", "Should this be answered with no? {x}"),
)
