"""Destinations in the words of other brokers, over the real broker, in each version of STOMP."""

from __future__ import annotations

import pytest

from gateway.model.address import Destination
from gateway.model.objects import Kind
from tests.broker.core import ANYCAST, MULTICAST, Core
from tests.conformance.clients import VERSIONS, Amqp, Stomp, bodies, plain, read, took

pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def core() -> Core:
    return Core()


def ask(client: Stomp, body: str = "what?", **headers: str) -> None:
    client.send("/queue/service", body, reply_to="/temp-queue/answers", **headers)


def heard(client: Stomp) -> list[tuple[str, str]]:
    """Return (subscription, body) of the MESSAGE frames that came."""
    return [(f[1]["subscription"], f[2].decode()) for f in client.more()]


# ---- one address, many words


@pytest.mark.parametrize("written", ["q", "/queue/q", "queue://q", "/amq/queue/q", "q::q"])
@pytest.mark.parametrize("heard_at", ["q", "/queue/q", "queue://q", "/amq/queue/q", "q::q"])
def test_a_queue_has_many_words(core, version, written, heard_at):
    core.directory.make_queue("q", "q", ANYCAST)
    sender, receiver = Stomp(core, version), Stomp(core, version)
    assert receiver.subscribe(heard_at) == []
    sender.send(written, "x")
    ((_, headers, body),) = receiver.more()
    assert body == b"x"
    # A MESSAGE says what its sender wrote [STOMP 1.2 MESSAGE].
    assert headers["destination"] == (written.replace(":", "\\c") if version != "1.0" else written)


@pytest.mark.parametrize("written", ["/topic/a.b", "topic://a.b", "/exchange/amq.topic/a.b"])
@pytest.mark.parametrize(
    "pattern",
    [
        "/topic/a.b",
        "topic://a.*",
        "/exchange/amq.topic/*.b",
        "/exchange/amq.topic/a.b.#",
        "/topic/#",
    ],
)
def test_a_topic_has_many_words_and_patterns(core, version, written, pattern):
    sender, receiver = Stomp(core, version), Stomp(core, version)
    receiver.subscribe(pattern)
    sender.send(written, "x")
    assert bodies(receiver.more()) == ["x"]


def test_a_pattern_of_rabbitmq_takes_what_it_says(core, version):
    sender, receiver = Stomp(core, version), Stomp(core, version)
    receiver.subscribe("/exchange/amq.topic/stocks.*.usd.#")
    for key in ("stocks.a.usd", "stocks.a.usd.x.y", "stocks.usd", "stocks.a.b.usd", "stocks.a.eur"):
        sender.send(f"/exchange/amq.topic/{key}", key)
    assert bodies(receiver.more()) == ["stocks.a.usd", "stocks.a.usd.x.y"]


def test_a_queue_that_is_not_there_is_not_made(core, version):
    for command, more in (("SEND", {}), ("SUBSCRIBE", {"id": "s"})):
        client = Stomp(core, version)
        refusal = client.refused(command, destination="/amq/queue/q", **more)
        assert refusal["error-code"] == "not-found"
        assert "/queue/q" in refusal["message"].replace("\\c", ":")
    assert not core.gateway.queues
    assert not core.gateway.addresses


def test_a_queue_that_was_deleted_is_not_made_again(core, version):
    core.directory.make_queue("q", "q", ANYCAST)
    client = Stomp(core, version)
    client.send("/amq/queue/q", "x")
    core.administration.delete_queue("q")
    core.administration.delete_address("q")
    core.turn()
    refusal = client.refused("SEND", destination="/amq/queue/q")
    assert refusal["error-code"] == "not-found"
    assert not core.gateway.queues
    other = Stomp(core, version)
    other.send("/queue/q", "y")
    if version != "1.2":
        client.send("/amq/queue/q", "z")
        assert core.queue("q").message_count == 2


def test_a_subscription_queue_is_named_as_one_that_is_there(core, version):
    owner = Stomp(core, version, connect="client-id:c\n")
    owner.subscribe("/topic/t", durable_subscription_name="n")
    owner.leave()
    sender = Stomp(core, version)
    sender.send("/topic/t", "x")
    assert bodies(Stomp(core, version).subscribe("/amq/queue/c.n")) == ["x"]


@pytest.mark.parametrize(
    "destination",
    [
        "/exchange/amq.direct/k",
        "/exchange/orders/k",
        "jms.queue.q",
        "jms.topic.q",
        "temp-queue://q",
        "/queue/a,/queue/b",
        "/topic/a.>",
        "/queue/a?consumer.exclusive=true",
    ],
)
def test_what_is_not_offered_is_refused_by_name_everywhere(core, version, destination):
    for command, more in (
        ("SEND", {"destination": destination}),
        ("SUBSCRIBE", {"destination": destination, "id": "s"}),
        ("SEND", {"destination": "q", "reply-to": destination}),
    ):
        client = Stomp(core, version)
        refusal = client.refused(command, **{k.replace("-", "_"): v for k, v in more.items()})
        assert refusal["error-code"] == "not-implemented"
        assert "which is not offered" in refusal["body"]
        assert client.session.closing == (version == "1.2")
    assert core.gateway.find("q") is None or not core.queue("q").message_count


def test_the_acceptors_prefix_is_another_word_for_the_same(core, version):
    limits = {"anycast_prefixes": ("jms.queue.",), "multicast_prefixes": ("jms.topic.",)}
    old = Stomp(core, version, **limits)
    new = Stomp(core, version)
    new.subscribe("/queue/q")
    old.send("jms.queue.q", "x")
    assert bodies(new.more()) == ["x"]


# ---- temporary ones


def test_an_answer_comes_back_on_a_subscription_of_its_own(core, version):
    """As in RabbitMQ: the requester subscribes to nothing."""
    requester, service = Stomp(core, version), Stomp(core, version)
    ask(requester, correlation_id="7")
    ((_, question, _),) = service.subscribe("/queue/service")
    assert question["reply-to"].startswith("/reply-queue/")
    service.send(question["reply-to"], "that", correlation_id=question["correlation-id"])
    ((_, answer, body),) = requester.more()
    assert (answer["subscription"], answer["correlation-id"], body) == (
        "/temp-queue/answers",
        "7",
        b"that",
    )


def test_one_word_of_two_connections_is_two_queues(core, version):
    requesters = [Stomp(core, version), Stomp(core, version)]
    service = Stomp(core, version)
    service.subscribe("/queue/service")
    for number, requester in enumerate(requesters):
        ask(requester, f"{number}?")
    questions = service.more()
    for (_, question, _), body in zip(questions, ("to 0", "to 1"), strict=True):
        service.send(question["reply-to"], body)
    assert [heard(one) for one in requesters] == [
        [("/temp-queue/answers", "to 0")],
        [("/temp-queue/answers", "to 1")],
    ]


def test_a_client_of_activemq_subscribes_itself_and_may_send_to_itself(core, version):
    client = Stomp(core, version)
    client.subscribe("/temp-queue/mine", id="me")
    ((_, headers, body),) = client.do("SEND", "x", destination="/temp-queue/mine")
    assert (headers["subscription"], body) == ("me", b"x")
    ask(client)
    ((_, question, _),) = Stomp(core, version).subscribe("/queue/service")
    assert question["reply-to"] != "/temp-queue/mine"


def test_a_temporary_topic_gives_each_subscription_a_copy(core, version):
    client, other = Stomp(core, version), Stomp(core, version)
    client.subscribe("/temp-topic/t", id="one")
    client.subscribe("/temp-topic/t", id="two")
    client.send("q", "?", reply_to="/temp-topic/t")
    ((_, question, _),) = other.subscribe("/queue/q")
    assert question["reply-to"].startswith("/remote-temp-topic/")
    other.send(question["reply-to"], "all")
    assert sorted(heard(client)) == [("one", "all"), ("two", "all")]


def test_nobody_else_reads_the_answers(core, version):
    requester = Stomp(core, version)
    ask(requester)
    ((_, question, _),) = Stomp(core, version).subscribe("/queue/service")
    real = question["reply-to"].removeprefix("/reply-queue/")
    for word in (question["reply-to"], real, f"/amq/queue/{real}", f"{real}::{real}"):
        thief = Stomp(core, version)
        refusal = thief.refused("SUBSCRIBE", destination=word, id="s")
        assert refusal["error-code"] == "not-authorized"


@pytest.mark.parametrize("how", ["leave", "cut"])
def test_what_is_temporary_ends_with_its_connection(core, version, how):
    requester, service = Stomp(core, version), Stomp(core, version)
    ask(requester)
    ((_, question, _),) = service.subscribe("/queue/service")
    known = set(core.gateway.queues)
    getattr(requester, how)()
    core.turn()
    real = question["reply-to"].removeprefix("/reply-queue/")
    assert known - set(core.gateway.queues) == {real}
    assert real not in core.gateway.addresses
    # The answer comes too late: it is dropped, and nothing is made for it.
    service.send(question["reply-to"], "late", "later")
    service.do("BEGIN", transaction="t")
    assert service.do("SEND", "x", destination=question["reply-to"], transaction="t") == []
    assert service.do("COMMIT", transaction="t") == []
    assert real not in core.gateway.addresses
    core.check()


def test_a_sender_that_had_answered_before_is_not_cut_when_the_requester_leaves(core, version):
    requester, service = Stomp(core, version), Stomp(core, version)
    ask(requester)
    ((_, question, _),) = service.subscribe("/queue/service")
    service.send(question["reply-to"], "in time")
    assert heard(requester) == [("/temp-queue/answers", "in time")]
    requester.leave()
    service.send(question["reply-to"], "late")
    assert core.gateway.find(question["reply-to"].removeprefix("/reply-queue/")) is None


def test_an_amqp_service_answers_to_a_temporary_queue(core, version):
    requester = Stomp(core, version)
    ask(requester, correlation_id="7")
    service = Amqp.at(core)
    came = service.receiver(1, "service", credit=10) + service.more()
    ((_, message),) = took(came)
    question = read(message)
    assert question.message_annotations["x-opt-jms-reply-to"] == 2
    assert core.gateway.find(question.reply_to) == Destination(question.reply_to, question.reply_to)
    service.sender(0, question.reply_to)
    service.give(plain("that"), handle=0)
    assert heard(requester) == [("/temp-queue/answers", "that")]


def test_what_is_temporary_counts_and_goes(core, version):
    client = Stomp(core, version)
    for number in range(5):
        client.send("q", "?", reply_to=f"/temp-queue/{number}")
    assert core.directory.objects.held(Kind.QUEUES) == 6
    core.check_objects()
    client.leave()
    assert core.directory.objects.held(Kind.QUEUES) == 1
    core.check_objects()
    assert MULTICAST not in core.gateway.addresses["q"].routing_types
