"""The AMQP 1.0 type codec in one place: values, `decode`, `skip`, `encode` [AMQP 1].

The classes are in `amqp_values`, the two directions in `amqp_decode` and `amqp_encode`; everybody
imports from here.
"""

from gateway.model.amqp_decode import DEPTH_MAX, NODES_MAX, ZERO_WIDTH_MAX, decode, skip
from gateway.model.amqp_encode import encode
from gateway.model.amqp_values import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Byte,
    Char,
    DecodeError,
    Described,
    EncodeError,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

__all__ = [
    "DEPTH_MAX",
    "NODES_MAX",
    "ZERO_WIDTH_MAX",
    "AmqpArray",
    "AmqpDecimal",
    "AmqpMap",
    "Byte",
    "Char",
    "DecodeError",
    "Described",
    "EncodeError",
    "Float32",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Value",
    "decode",
    "encode",
    "skip",
]
