"""Senders are held to their rates: AMQP by credit, STOMP by what is read of it."""

from __future__ import annotations

from proton import Message

from gateway.model.quota import Quotas
from protocols.amqp.performatives import Disposition, Released
from tests.conformance.clients import bodies, credit_of, plain
from tests.conformance.test_transactions import Client, outcome
from tests.protocols.amqp.peer import of
from tests.quotas.house import House, table


def send_all(peer, came):
    """Use the credit that was given last; returns how many messages that were."""
    given = credit_of(came) or 0
    if given:
        peer.say(b"".join(peer.transfer(plain("x"), settled=True) for _ in range(given)))
    return given


def test_credit_is_what_the_bucket_has_and_the_rest_comes_as_it_fills():
    house = House(users=table(messages_in=100))
    peer = house.amqp()
    sent = send_all(peer, peer.sender() + peer.more())
    assert sent == 100
    for _ in range(200):
        sent += send_all(peer, house.wait(0.01, peer)[0])
    assert 290 <= sent <= 300
    assert house.count("q") == sent
    peer.cut()
    assert house.nothing_held


def test_bytes_are_a_limit_of_their_own():
    house = House(users=table(bytes_in=10_000))
    peer = house.amqp()
    came = peer.sender() + peer.more()
    sent = credit = 0
    one = plain("x" * 1000)
    for _ in range(300):
        told = credit_of(came)
        credit = credit if told is None else told
        if credit:
            credit -= 1
            sent += len(one)
            came = peer.say(peer.transfer(one, settled=True)) + peer.more()
        else:
            came = house.wait(0.05, peer)[0]
    # A second's worth at once, then by the rate, and the last one passed with something left.
    most = 10_000 + house.clock.seconds() * 10_000 + 1100
    assert most * 0.8 < sent <= most
    peer.cut()


def test_links_of_one_user_share_what_there_is_and_another_user_has_its_own():
    house = House(users=table(messages_in=100))
    one, two = house.amqp(), house.amqp()
    came = [peer.sender() + peer.more() for peer in (one, two)]
    assert [credit_of(each) for each in came] == [100, 50]
    sent = [send_all(peer, each) for peer, each in zip((one, two), came, strict=True)]
    other = house.amqp("ben")
    assert credit_of(other.sender() + other.more()) == 100
    for _ in range(300):
        came = house.wait(0.01, one, two)
        sent = [n + send_all(p, c) for n, p, c in zip(sent, (one, two), came, strict=True)]
    assert sum(sent) <= 100 + 300
    # Half each once the debt of the start is paid.
    assert min(sent) >= 100
    for peer in (one, two, other):
        peer.cut()
    assert house.nothing_held


def test_a_link_without_a_target_of_its_own_is_held_as_well():
    house = House(users=table(messages_in=10))
    peer = house.amqp()
    assert credit_of(peer.sender(address=None) + peer.more()) == 10
    one = Message(address="q", body=b"x").encode()
    came = peer.say(b"".join(peer.transfer(one, settled=True) for _ in range(10)))
    assert credit_of(came + peer.more()) is None
    assert credit_of(house.wait(0.2, peer)[0]) in (1, 2)
    peer.cut()
    assert house.nothing_held


def sends(count, to="/queue/q", size=1, **headers):
    lines = "".join(f"{k}:{v}\n" for k, v in headers.items())
    return f"SEND\ndestination:{to}\n{lines}\n{'x' * size}\0" * count


def test_stomp_is_read_as_fast_as_it_may_send():
    house = House(users=table(messages_in=100))
    peer = house.stomp()
    assert peer.say(sends(250)) == []
    assert house.count("q") == 100
    assert peer.session.paused_reading
    house.wait(1.0, peer)
    assert 190 <= house.count("q") <= 201
    house.wait(1.0, peer)
    assert house.count("q") == 250
    assert not peer.session.paused_reading
    peer.cut()
    assert house.nothing_held


def test_stomp_receipts_come_in_order_once_their_messages_are_taken():
    house = House(users=table(messages_in=5))
    peer = house.stomp()
    text = "".join(sends(1, receipt=str(n)) for n in range(12))
    first = [h["receipt-id"] for _, h, _ in peer.say(text)]
    later = [h["receipt-id"] for _, h, _ in house.wait(2.0, peer)[0]]
    assert first == [str(n) for n in range(5)]
    assert first + later == [str(n) for n in range(12)]
    peer.cut()


def test_acks_of_a_stomp_client_are_heard_while_its_sends_wait():
    house = House(users=table(messages_in=2))
    giver, peer = house.stomp("ben"), house.stomp()
    giver.send("/queue/in", "a", "b")
    came = peer.subscribe("/queue/in", ack="client-individual")
    assert bodies(came) == ["a", "b"]
    peer.say(sends(50))
    assert house.count("q") == 2
    assert not peer.session.paused_reading
    assert house.count("in") == 2
    for message in came:
        peer.say(f"ACK\nid:{message[1]['ack']}\n\n\0")
    assert house.count("in") == 0
    assert peer.session.paused_reading  # nothing more is to be heard
    house.wait(1.0, peer)
    assert 3 <= house.count("q") <= 4
    peer.cut()
    giver.cut()
    assert house.nothing_held


def test_a_flood_behind_unacknowledged_messages_is_not_an_error_but_waits():
    house = House(users=table(messages_in=1))
    giver, peer = house.stomp("ben"), house.stomp(spool_bytes_max=100_000)
    giver.send("/queue/in", "a")
    (message,) = peer.subscribe("/queue/in", ack="client-individual")
    for _ in range(30):
        if peer.session.paused_reading:
            break
        assert peer.say(sends(10, size=1000)) == []
    assert peer.session.paused_reading
    assert house.count("in") == 1
    house.wait(120.0, peer, step=0.5)
    peer.say(f"ACK\nid:{message[1]['ack']}\n\n\0")
    assert house.count("in") == 0
    peer.cut()
    giver.cut()


def test_an_address_has_a_rate_for_all_who_send_there():
    house = House(addresses=table("hot.#", messages_in=10))
    one, two = house.amqp("ann", "10.0.0.1"), house.stomp("ben", "10.0.0.2")
    sent = send_all(one, one.sender(address="hot.a") + one.more())
    two.say(sends(20, to="/queue/hot.a"))
    assert house.count("hot.a") == 10
    two.say(sends(20, to="/queue/cold"))
    assert house.count("cold") == 0  # in order behind what waits
    for _ in range(500):
        sent += send_all(one, house.wait(0.01, one, two)[0])
    assert house.count("hot.a") <= 60
    assert house.count("hot.a") >= 55
    assert sent >= 20
    one.cut()
    two.cut()
    assert house.nothing_held


def test_what_a_relay_sends_to_an_address_beyond_its_rate_is_given_back():
    house = House(addresses=table("hot", messages_in=2))
    peer = house.amqp()
    peer.sender(address=None)
    one = Message(address="hot", body=b"x").encode()
    came = peer.say(b"".join(peer.transfer(one) for _ in range(5))) + peer.more()
    states = [told.state for told in of(came, Disposition)]
    assert states.count(Released()) >= 1
    assert house.count("hot") == 2
    peer.cut()


def test_users_who_share_an_address_each_have_their_rate():
    house = House(users=table(messages_in=10))
    one, two = house.stomp("ann"), house.stomp("ben")
    one.say(sends(30))
    two.say(sends(30))
    assert house.count("q") == 20
    one.cut()
    two.cut()


def test_connections_of_one_remote_share_its_rate_whoever_logs_in():
    house = House(remotes=table(messages_in=10))
    one, two = house.stomp("ann", "10.0.0.1"), house.stomp("ben", "10.0.0.1")
    far = house.stomp("cid", "10.0.0.2")
    for peer in (one, two, far):
        peer.say(sends(30))
    assert house.count("q") == 20
    for peer in (one, two, far):
        peer.cut()
    assert house.nothing_held


def test_where_nobody_logs_in_all_are_one_user():
    house = House(users=table(messages_in=10))
    one, two = house.stomp(None, "10.0.0.1"), house.stomp(None, "10.0.0.2")
    one.say(sends(30))
    two.say(sends(30))
    assert house.count("q") == 10
    one.cut()
    two.cut()


def test_a_named_user_has_its_own_limits():
    tables = table("*", messages_in=10) | table("ann", messages_in=3, burst=2000)
    house = House(users=tables)
    one, two = house.stomp("ann"), house.stomp("ben")
    one.say(sends(30))
    assert house.count("q") == 6
    two.say(sends(30))
    assert house.count("q") == 16
    one.cut()
    two.cut()


def test_sends_of_a_transaction_count_when_they_come():
    house = House(users=table(messages_in=5))
    peer = house.stomp()
    peer.do("BEGIN", transaction="t")
    text = "".join(sends(1, transaction="t") for _ in range(8))
    peer.say(text + "COMMIT\ntransaction:t\nreceipt:done\n\n\0")
    assert house.count("q") == 0
    came = house.wait(1.0, peer)[0]
    assert [h["receipt-id"] for _, h, _ in came] == ["done"]
    assert house.count("q") == 8
    peer.cut()
    assert house.nothing_held


def test_who_is_held_back_and_goes_leaves_nothing_behind():
    house = House(users=table(messages_in=1), remotes=table(messages_in=1))
    amqp, stomp = house.amqp(), house.stomp()
    send_all(amqp, amqp.sender() + amqp.more())
    stomp.say(sends(20))
    amqp.cut()
    stomp.cut()
    assert house.nothing_held


def test_rates_that_a_reload_sets_hold_at_once_and_are_gone_at_once():
    house = House()
    amqp, stomp = house.amqp(), house.stomp("ben")
    assert credit_of(amqp.sender() + amqp.more()) == 1000
    stomp.say(sends(50))
    assert house.count("q") == 50
    house.meters.use(Quotas(users=table(messages_in=10)))
    stomp.say(sends(50))
    assert house.count("q") == 60
    house.meters.use(Quotas())
    house.wait(0.02, stomp)
    assert house.count("q") == 100
    amqp.cut()
    stomp.cut()
    assert house.nothing_held


def test_posts_of_an_amqp_transaction_use_credit_and_are_committed_whole():
    house = House(users=table(messages_in=10))
    one = Client(house.amqp())
    assert credit_of(one.peer.sender() + one.peer.more()) == 10
    name = one.declare()
    for _ in range(10):
        one.post(name, b"x")
    assert credit_of(one.peer.more()) is None
    assert house.count("q") == 0
    assert outcome(one.end(name)) == "accepted"
    assert house.count("q") == 10
    assert credit_of(house.wait(0.3, one.peer)[0]) in (1, 2, 3)
    one.peer.cut()
    assert house.nothing_held
