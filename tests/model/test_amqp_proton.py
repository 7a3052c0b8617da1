"""What Proton writes we read, and what we write Proton reads: types and values the same."""

from __future__ import annotations

import proton
from hypothesis import given, settings

from gateway.model.amqp_types import decode, encode
from tests.lanes import examples
from tests.model.amqp_strategies import proton_same, proton_values, same, to_proton


@given(proton_values)
@settings(max_examples=examples(500), deadline=None)
def test_what_proton_writes_is_read(value):
    data = proton.Data()
    data.put_object(to_proton(value))
    raw = bytes(data.encode())
    found, end = decode(raw, 0, len(raw))
    assert end == len(raw)
    assert same(found, value)


@given(proton_values)
@settings(max_examples=examples(500), deadline=None)
def test_proton_reads_what_is_written(value):
    raw = encode(value)
    data = proton.Data()
    assert data.decode(raw) == len(raw)
    data.rewind()
    data.next()
    assert proton_same(data.get_object(), to_proton(value))
