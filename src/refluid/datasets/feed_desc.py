"""DataFeedDesc, the protobuf message in which Fluid describes the input of a dataset.

Only its text form is used, so the message is declared here instead of in a .proto file.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

_PACKAGE = "paddle.framework"
# message -> (name, number, type, label, default) of each field
_FIELDS: dict[str, list[tuple[str, int, int | str, int, str]]] = {
    "Slot": [
        ("name", 1, Field.TYPE_STRING, Field.LABEL_REQUIRED, ""),
        ("type", 2, Field.TYPE_STRING, Field.LABEL_REQUIRED, ""),
        ("is_dense", 3, Field.TYPE_BOOL, Field.LABEL_OPTIONAL, "false"),
        ("is_used", 4, Field.TYPE_BOOL, Field.LABEL_OPTIONAL, "false"),
        ("shape", 5, Field.TYPE_INT32, Field.LABEL_REPEATED, ""),
    ],
    "MultiSlotDesc": [("slots", 1, "Slot", Field.LABEL_REPEATED, "")],
    "DataFeedDesc": [
        ("name", 1, Field.TYPE_STRING, Field.LABEL_OPTIONAL, ""),
        ("batch_size", 2, Field.TYPE_INT32, Field.LABEL_OPTIONAL, "32"),
        ("multi_slot_desc", 3, "MultiSlotDesc", Field.LABEL_OPTIONAL, ""),
        ("pipe_command", 4, Field.TYPE_STRING, Field.LABEL_OPTIONAL, ""),
        ("thread_num", 5, Field.TYPE_INT32, Field.LABEL_OPTIONAL, ""),
        ("rank_offset", 6, Field.TYPE_STRING, Field.LABEL_OPTIONAL, ""),
        ("pv_batch_size", 7, Field.TYPE_INT32, Field.LABEL_OPTIONAL, "32"),
    ],
}


def new_desc() -> Any:
    """An empty DataFeedDesc."""
    return _message_class()()


def read_desc(text: str, file: str) -> Any:
    """A DataFeedDesc from its text form; ``file`` is where it is from, for errors."""
    try:
        return text_format.Parse(text, new_desc())
    except text_format.ParseError as error:
        raise ValueError(f"{file}: {error}") from error


def desc_text(desc: Any) -> str:
    """The text form of a DataFeedDesc."""
    return text_format.MessageToString(desc)


@cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="data_feed.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, label, default in fields:
            field = declared.field.add(name=name, number=number, label=label)  # pyright: ignore[reportArgumentType]
            if isinstance(kind, str):
                field.type, field.type_name = Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind  # pyright: ignore[reportAttributeAccessIssue]
            if default:
                field.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.DataFeedDesc"))
