"""Parses Spark's type syntax to Iceberg types, and formats them. Pure; driver.

Input: the text of a type in a statement, `struct<a: int NOT NULL, b: array<string>>`. Output: PyIceberg types. Iceberg
types that Spark lacks have their Iceberg names: `uuid`, `fixed(16)`, `timestamp_ns`, `timestamptz_ns`. Field ids are
all 0; `dml.ddl.new_schema` assigns them when the position of a type in a schema is known. Source: Iceberg
specification, "Primitive Types" and "Nested Types"; Spark SQL reference, "Data Types".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean
from dml.model.arrow_types import primitive_name
from dml.pyiceberg_patch import VariantType
from dml.sqlparse.quoting import quote_identifier, quote_string, string_value, unquoted

__all__ = ["parse_type", "type_text"]

SPELLINGS: dict[PrimitiveType, tuple[str, ...]] = {
    BooleanType(): ("boolean",),
    IntegerType(): ("int", "integer", "tinyint", "byte", "smallint", "short"),
    LongType(): ("bigint", "long"),
    FloatType(): ("float", "real"),
    DoubleType(): ("double",),
    DateType(): ("date",),
    TimestamptzType(): ("timestamp", "timestamp_ltz", "timestamptz"),
    TimestampType(): ("timestamp_ntz",),
    TimestampNanoType(): ("timestamp_ns",),
    TimestamptzNanoType(): ("timestamptz_ns",),
    StringType(): ("string",),
    BinaryType(): ("binary",),
    UUIDType(): ("uuid",),
    VariantType(): ("variant",),
}
"""The names of types without parameters; the first one is `primitive_name`."""

PRIMITIVES = {word: kind for kind, words in SPELLINGS.items() for word in words}

REFUSED: dict[str, str] = {
    "interval": "Keep a number of units in a BIGINT column instead",
    "void": "Give the column a type; NULL fits any",
    "null": "Give the column a type; NULL fits any",
    "object": "Use STRUCT, ARRAY or MAP instead",
    "geometry": "Keep well-known binary in a BINARY column instead",
    "geography": "Keep well-known binary in a BINARY column instead",
}

TOKEN = re.compile(
    r"""\s*(?:(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")"""
    r"""|(?P<name>[^\W\d]\w*|\d+[^\W\d]\w*)|(?P<number>\d+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark><>|[<>(),:\[\]]))""",
    re.DOTALL,
)


@dataclass(slots=True)
class TypeParser:
    # Tokens of one type text: (kind, value, offset).
    text: str
    tokens: list[tuple[str, str, int]] = field(default_factory=list)
    at: int = 0

    def __post_init__(self) -> None:
        offset, end = 0, len(self.text.rstrip())
        while offset < end:
            match = TOKEN.match(self.text, offset)
            if match is None or match.lastgroup is None:
                raise self.error(
                    "a character that no type has", offset + len(self.text[offset:]) - len(self.text[offset:].lstrip())
                )
            value = match[match.lastgroup]
            self.tokens.append((match.lastgroup, value, match.start(match.lastgroup)))
            offset = match.end()

    def error(self, problem: str, offset: int | None = None) -> AnalysisError:
        if offset is None:
            offset = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        return AnalysisError(
            f"The type '{self.text.strip()}' is not valid: {problem} at character {offset + 1}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Write a Spark SQL type, such as int, decimal(10, 2), array<string> or struct<a: int>",
            type=self.text,
        )

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at][:2] if self.at < len(self.tokens) else ("end", "")

    def take_mark(self, mark: str) -> bool:
        if self.peek() == ("mark", mark):
            self.at += 1
            return True
        return False

    def take_words(self, *words: str) -> bool:
        ahead = self.tokens[self.at : self.at + len(words)]
        if [(kind, value.lower()) for kind, value, _ in ahead] == [("name", word) for word in words]:
            self.at += len(words)
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take_mark(mark):
            raise self.error(f"expected '{mark}'")

    def name(self) -> str:
        kind, value = self.peek()
        if kind not in {"name", "quoted"}:
            raise self.error("expected a name")
        self.at += 1
        return unquoted(f"`{value}`") if kind == "quoted" else value

    def number(self) -> int:
        kind, value = self.peek()
        if kind != "number":
            raise self.error("expected a whole number")
        self.at += 1
        return int(value)


def parse_type(text: str) -> IcebergType:
    """Parse a Spark type.

    Args:
        text: The text as written in the statement.

    Returns:
        The Iceberg type; nested fields have id 0.

    Raises:
        AnalysisError: The text is not a type.
        NotSupportedError: Iceberg cannot store the type.
    """
    reader = TypeParser(text)
    parsed = read_type(reader)
    if reader.peek()[0] != "end":
        raise reader.error(f"unexpected '{reader.peek()[1]}'")
    return parsed


def read_type(reader: TypeParser) -> IcebergType:
    start = reader.at
    kind, value = reader.peek()
    if kind != "name":
        raise reader.error("expected the name of a type")
    reader.at += 1
    word = value.lower()
    if word in REFUSED:
        raise NotSupportedError(f"Iceberg tables have no type '{word}' here", hint=REFUSED[word], type=value)
    if word in SHAPES:
        return SHAPES[word](reader)
    if word in PRIMITIVES:
        if word == "timestamp" and reader.take_words("without", "time", "zone"):
            return TimestampType()
        if word == "string" and reader.take_words("collate"):
            check_collation(reader)
        return PRIMITIVES[word]
    reader.at = start
    raise AnalysisError(
        f"There is no type '{value}'",
        kind=ErrorKind.TYPE_MISMATCH,
        hint=did_you_mean(word, (*PRIMITIVES, *SHAPES)),
        type=value,
    )


def check_collation(reader: TypeParser) -> None:
    if (collation := reader.name()).upper() != "UTF8_BINARY":
        raise NotSupportedError(
            f"Iceberg keeps no collation '{collation}'", hint="Leave COLLATE out, and collate in queries"
        )


def read_struct(reader: TypeParser) -> IcebergType:
    if reader.take_mark("<>"):
        raise reader.error("a struct needs at least one field")
    reader.expect("<")
    if reader.take_mark(">"):
        raise reader.error("a struct needs at least one field")
    fields = [read_field(reader)]
    while reader.take_mark(","):
        fields.append(read_field(reader))
    reader.expect(">")
    folded: set[str] = set()
    for nested in fields:
        if nested.name.lower() in folded:
            raise reader.error(f"the field '{nested.name}' is repeated in a struct")
        folded.add(nested.name.lower())
    return StructType(*fields)


def read_field(reader: TypeParser) -> NestedField:
    name = reader.name()
    reader.take_mark(":")
    kind = read_type(reader)
    required = reader.take_words("not", "null")
    comment = None
    if reader.take_words("comment"):
        if reader.peek()[0] != "string":
            raise reader.error("expected the comment in quotes")
        comment = string_value(reader.peek()[1])
        reader.at += 1
    return NestedField(0, name, kind, required=required, doc=comment)


def read_array(reader: TypeParser) -> IcebergType:
    reader.expect("<")
    element = read_type(reader)
    reader.expect(">")
    return ListType(element_id=0, element=element, element_required=False)


def read_map(reader: TypeParser) -> IcebergType:
    reader.expect("<")
    key = read_type(reader)
    reader.expect(",")
    value = read_type(reader)
    reader.expect(">")
    return MapType(key_id=0, key_type=key, value_id=0, value_type=value, value_required=False)


def read_decimal(reader: TypeParser) -> IcebergType:
    precision, scale = 10, 0
    if reader.take_mark("("):
        precision = reader.number()
        if reader.take_mark(","):
            scale = reader.number()
        reader.expect(")")
    if not 1 <= precision <= 38 or scale > precision:
        raise AnalysisError(
            f"There is no type decimal({precision}, {scale})",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="The precision is 1 to 38, and the scale not larger than the precision",
            type=f"({precision}, {scale})",
        )
    return DecimalType(precision, scale)


def text_with_length(reader: TypeParser) -> IcebergType:
    # Iceberg has no lengths: its Spark connector also stores char and varchar as string.
    reader.expect("(")
    reader.number()
    reader.expect(")")
    return StringType()


def read_fixed(reader: TypeParser) -> IcebergType:
    closing = ")" if reader.take_mark("(") else "]"
    if closing == "]":
        reader.expect("[")
    length = reader.number()
    reader.expect(closing)
    if length == 0:
        raise reader.error("a fixed type needs a length")
    return FixedType(length)


def read_time(reader: TypeParser) -> IcebergType:
    precision = 6
    if reader.take_mark("("):
        precision = reader.number()
        reader.expect(")")
    if precision > 6:
        raise NotSupportedError(f"Iceberg has no time({precision})", hint="Use time(6): it counts microseconds")
    reader.take_words("without", "time", "zone")
    return TimeType()


SHAPES: dict[str, Callable[[TypeParser], IcebergType]] = {
    "struct": read_struct,
    "array": read_array,
    "map": read_map,
    "decimal": read_decimal,
    "dec": read_decimal,
    "numeric": read_decimal,
    "varchar": text_with_length,
    "char": text_with_length,
    "character": text_with_length,
    "fixed": read_fixed,
    "time": read_time,
}


def type_text(kind: IcebergType) -> str:
    """Format an Iceberg type in Spark's syntax, so that `parse_type` can parse it.

    Returns:
        For example `struct<a:int NOT NULL COMMENT 'x',b:array<string>>`.
    """
    match kind:
        case StructType():
            return f"struct<{','.join(field_text(nested) for nested in kind.fields)}>"
        case ListType():
            return f"array<{type_text(kind.element_type)}>"
        case MapType():
            return f"map<{type_text(kind.key_type)},{type_text(kind.value_type)}>"
        case _:
            return primitive_name(kind)


def field_text(nested: NestedField) -> str:
    required = " NOT NULL" if nested.required else ""
    comment = f" COMMENT {quote_string(nested.doc)}" if nested.doc else ""
    return f"{quote_identifier(nested.name)}:{type_text(nested.field_type)}{required}{comment}"
