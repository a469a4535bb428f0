"""Iceberg's functions as Spark's catalogs have functions: `lake.system.bucket(16, id)`. Driver, classic Spark only.

Input: the arguments of a call, analysed. Output: an expression of Spark's own in the place of the call, the one that
`dml.spark.iceberg_functions` has for it in SQL: nothing of ours runs with each row. So the functions are there wherever
Spark resolves one: in `expr`, in conditions of DataFrames, in `call_function`, in views.

A function of Spark's connector API would be a Java object that goes to executors, which Python cannot be. What Spark
makes of its own catalog's functions is another thing: a builder, which gives an expression when a call is analysed.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from dml.spark.handlers import running
from dml.spark.iceberg_functions import FUNCTIONS, NAMESPACE, with_iceberg_functions
from dml.spark.internals import internals
from dml.spark.java import CATALOG, array, companion, java_class, java_error, strings
from dml.spark.jvm import analyzed_plan, scala_list, scala_tuple
from dml.spark.proxies import Proxy
from dml.spark.versions import Feature, require
from dml.spark_scan.expressions import EXPRESSIONS, held, marked

__all__ = ["list_functions", "load_function"]

FUNCTION: Final = "org.apache.spark.sql.internal.connector.V1Function"
REPLACING_RULE: Final = "org.apache.spark.sql.catalyst.optimizer.PushPredicateThroughNonJoin"
ARGUMENT: Final = "__rowdelta_argument_"


def list_functions(namespace: Sequence[str]) -> JavaObject:
    """The identifiers of the functions of a namespace, which are all in one."""
    names = sorted(FUNCTIONS) if [part.lower() for part in namespace] == [NAMESPACE] else []
    return array(CATALOG + "Identifier", (identifier(name) for name in names))


def identifier(name: str) -> JavaObject:
    """A function's identifier."""
    return java_class(CATALOG + "Identifier").of(strings((NAMESPACE,)), name)


def load_function(session: Callable[[], SparkSession], wanted: JavaObject) -> JavaObject:
    """A function, as Spark's analyser calls it.

    Args:
        session: Gives the session that analyses calls.
        wanted: The function's identifier.

    Raises:
        CallbackError: there is none of the name: Java's NoSuchFunctionException.
        NotSupportedError: this Spark takes no builders from catalogs.
    """
    name = str(wanted.name()).lower()
    if [str(part).lower() for part in wanted.namespace()] != [NAMESPACE] or name not in FUNCTIONS:
        raise java_error("org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException", wanted)
    require(Feature.CATALOG_FUNCTIONS)
    info = java_class(EXPRESSIONS + "ExpressionInfo")("org.apache.iceberg", NAMESPACE, name)
    builder = FunctionBuilder(session, name)
    with internals(FUNCTION):
        return java_class(FUNCTION).apply(info, builder)


class FunctionBuilder(Proxy):
    """`Seq[Expression] => Expression`.

    Args:
        session: Gives the session that analyses calls.
        name: The function.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("scala.Function1",)

    def __init__(self, session: Callable[[], SparkSession], name: str) -> None:
        self.session = session
        self.name = name

    def apply(self, arguments: JavaObject) -> JavaObject:
        """The expression of a call: analysed over columns of the arguments' types, which the arguments then replace."""
        given = [arguments.apply(place) for place in range(arguments.size())]
        texts = [constant_text(argument) or f"{ARGUMENT}{place}" for place, argument in enumerate(given)]
        columns = [
            f"CAST(NULL AS {argument.dataType().sql()}) AS {ARGUMENT}{place}" for place, argument in enumerate(given)
        ]
        call = f"SELECT {NAMESPACE}.{self.name}({', '.join(texts)}) FROM (SELECT {', '.join(columns) or '1'})"
        spark = self.session()
        with running():
            text = with_iceberg_functions(call, lambda probe: spark.sql(probe).schema, ())
            plan = analyzed_plan(spark.sql(text))
        (result,) = named_expressions(plan)
        if not given:
            return result.child()
        *widths, source = given
        given = [*widths, held(source)]
        aliases = named_expressions(plan.child().child())  # below the name of the subquery
        replaced = [
            scala_tuple(alias.toAttribute(), alias.withNewChildren(scala_list([argument])))
            for alias, argument in zip(aliases, given, strict=True)
        ]
        with internals(REPLACING_RULE):
            mapped = companion(EXPRESSIONS + "AttributeMap").apply(scala_list(replaced))
            return marked(self.name, given, companion(REPLACING_RULE).replaceAlias(result.child(), mapped))


def constant_text(argument: JavaObject) -> str | None:
    """A whole number that an argument is, as SQL; None where it is no constant."""
    if not argument.foldable() or str(argument.dataType().sql()) not in {"TINYINT", "SMALLINT", "INT"}:
        return None
    value = argument.eval(None)
    return None if value is None else str(value)


def named_expressions(plan: JavaObject) -> list[JavaObject]:
    """What a projection gives."""
    listed = plan.projectList()
    return [listed.apply(place) for place in range(listed.size())]
