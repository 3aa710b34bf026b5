"""Reads configurations of OpenMMLab's libraries as data, without running them.

They are Python modules that mostly assign: numbers, text, lists and ``dict(…)``, names assigned earlier, and sums of
these. This module evaluates that much from the syntax tree. Any other expression gets the value `Unknown`, which is an
error only where it is needed. ``_base_`` files are merged as in mmengine: dicts are merged key by key, unless one
contains ``_delete_``.
"""

from __future__ import annotations

import ast
import json
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any

from nbdata.disk import open_regular
from nbdata.errors import BadOption, NbdataError, NotFound

__all__ = ["Unknown", "read_config", "run_config", "told"]

# Most files that include each other by _base_, in depth.
_DEEPEST = 16
# Most bytes of a file, and most characters or items of an evaluated value.
_MOST = 4 << 20
_BASE, _DELETE = "_base_", "_delete_"
_ASK = "--run-config runs the configuration with mmengine, as mmdet3d itself does"

_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


class Unknown:
    """A value that only running the configuration would reveal.

    Parameters
    ----------
    where : str
        The file and line.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def __repr__(self) -> str:
        return f"<unknown: {self.where}>"


def read_config(path: str) -> dict[str, Any]:
    """Return the values of a configuration; some may be `Unknown`.

    Raises
    ------
    NotFound
        If the file or its base does not exist.
    BadOption
        If it is not a readable configuration.
    """
    return _read(path, 0)


def run_config(path: str) -> dict[str, Any]:
    """Return the values by running the configuration with mmengine."""
    try:
        from mmengine.config import Config
    except ImportError:
        raise BadOption(
            "--run-config needs mmengine, which is not installed", remedy="pip install mmengine"
        ) from None
    found: dict[str, Any] = Config.fromfile(path).to_dict()
    return found


def _read(path: str, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise BadOption("the files of a configuration name each other as their base", path=path, remedy=_ASK)
    try:
        with open(open_regular(path), encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except NbdataError:
        raise
    except FileNotFoundError:
        raise NotFound("there is no such configuration", path=path, remedy="Check the spelling") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(
            f"this configuration cannot be read ({error})", path=path, remedy="Check the file"
        ) from None
    if len(text) > _MOST:
        raise BadOption(
            "this is too long for a configuration", path=path, expected=f"at most {_MOST:,} bytes"
        )
    own = _of_json(text, path) if path.endswith(".json") else _of_python(text, path)
    merged: dict[str, Any] = {}
    bases = own.pop(_BASE, [])
    for base in [bases] if isinstance(bases, str) else bases:
        if not isinstance(base, str):
            raise BadOption("the base of a configuration is no path", path=path, remedy=_ASK)
        merged = _merged(
            merged, _read(os.path.normpath(os.path.join(os.path.dirname(path), base)), depth + 1)
        )
    return _merged(merged, own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in own.items():
        before = found.get(key)
        if isinstance(value, dict):
            value = dict(value)
            if not value.pop(_DELETE, False) and isinstance(before, dict):
                value = _merged(before, value)
        found[key] = value
    return found


def _of_json(text: str, path: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(
            f"this configuration is no JSON ({error})", path=path, remedy="Check the file"
        ) from None
    if not isinstance(found, dict):
        raise BadOption("this configuration is no JSON object", path=path, remedy="Check the file")
    return found


def _of_python(text: str, path: str) -> dict[str, Any]:
    """Evaluate the assignments of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadOption(
            f"this configuration is no Python ({error})", path=path, remedy="Check the file"
        ) from None
    names: dict[str, Any] = {}
    for statement in tree.body:
        where = f"{os.path.basename(path)}, line {statement.lineno}"
        if isinstance(statement, ast.Assign) and all(
            isinstance(target, ast.Name) for target in statement.targets
        ):
            value = _worked_out(statement.value, names, where)
            for target in statement.targets:
                assert isinstance(target, ast.Name)
                names[target.id] = value
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        for name in _changed(statement):
            names[name] = Unknown(where)
    return {name: value for name, value in names.items() if not name.startswith("__")}


def _changed(statement: ast.stmt) -> list[str]:
    """List the names that a statement may change: all names in it."""
    found = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return found


def _worked_out(node: ast.expr, names: Mapping[str, Any], where: str) -> Any:
    try:
        return _value(node, names)
    except (_Untold, RecursionError, *_FAILS):
        return Unknown(where)


class _Untold(Exception):
    """Raised for an expression that only running it would evaluate."""


# The errors that a sum or a look-up can raise.
_FAILS = (TypeError, ValueError, KeyError, IndexError, ArithmeticError)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression; `_Untold` if this module does not support it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _known(names, node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_inner(one, names) for one in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_raise() if key is None else _value(key, names): _inner(value, names) for key, value in pairs}
    if isinstance(node, ast.Call):
        return _called(node, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        return _sum(_SUMS[type(node.op)], _value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.Subscript):
        found = _value(node.value, names)[_value(node.slice, names)]
        return _raise() if isinstance(found, Unknown) else found
    if isinstance(node, ast.Attribute):
        found = _value(node.value, names)
        return found[node.attr] if isinstance(found, dict) else _raise()
    if isinstance(node, ast.JoinedStr):
        return "".join(map(str, (_text(part, names) for part in node.values)))
    return _raise()


def _inner(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Evaluate a value inside another one; if it is unknown, the outer value is still known."""
    try:
        return _value(node, names)
    except (_Untold, *_FAILS):
        return Unknown(f"line {node.lineno}")


def _known(names: Mapping[str, Any], name: str) -> Any:
    found = names.get(name, _raise)
    return _raise() if found is _raise or isinstance(found, Unknown) else found


def _called(node: ast.Call, names: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate a call of ``dict(a=1, **b)``; no other call is supported."""
    if not isinstance(node.func, ast.Name) or node.func.id != "dict" or "dict" in names or len(node.args) > 1:
        raise _Untold
    found: dict[str, Any] = dict(_value(node.args[0], names)) if node.args else {}
    for keyword in node.keywords:
        if keyword.arg is None:
            found.update(_value(keyword.value, names))
        else:
            found[keyword.arg] = _inner(keyword.value, names)
    return found


def _sum(how: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compute a sum, a product or the like, of bounded size."""
    if how is operator.mod and not isinstance(left, (int, float)):
        return _raise()  # formatted text can be as long as its format says
    if how in (operator.add, operator.mul):
        numbers = [isinstance(one, (int, float)) for one in (left, right)]
        sizes = [one if number else len(one) for one, number in zip((left, right), numbers, strict=True)]
        if abs(how(*sizes)) > (1 << 63 if all(numbers) else _MOST):
            return _raise()
    return how(left, right)


def _text(part: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(part, ast.FormattedValue):
        return _value(part.value, names) if part.format_spec is None and part.conversion == -1 else _raise()
    return _value(part, names)


def _raise() -> Any:
    raise _Untold


def told(value: Any, name: str) -> Any:
    """Return the value, unless it is unknown.

    Raises
    ------
    BadOption
        If only running the configuration would reveal it.
    """
    if isinstance(value, Unknown):
        raise BadOption(f"the configuration computes {name} when it runs ({value.where})", remedy=_ASK)
    return value
