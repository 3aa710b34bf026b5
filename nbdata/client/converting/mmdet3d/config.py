"""Reads configurations of OpenMMLab's libraries as data, without running them.

They are Python modules that mostly assign: numbers, text, lists and ``dict(…)``, names assigned earlier, and sums of
these. This module evaluates that much from the syntax tree. Any other expression gets the value `Unknown`, which is an
error only where it is needed. ``_base_`` files are merged as in mmengine: dicts are merged key by key, unless one
contains ``_delete_``.

A configuration may be somebody else's. A few lines can double a text again and again, and name the same bases a
thousand times. So all files, and all values that are made of them, have one bound.
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
# Most characters and items of all files and of all values that are made of them. Each file counts as _FILE more.
_MOST, _FILE = 1 << 20, 4096
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


class _Untold(Exception):
    """Raised for an expression that only running it would evaluate."""


class _TooMuch(_Untold):
    """Raised by `_Budget.spend`."""


class _Budget:
    """The characters and items that may still be read or made."""

    def __init__(self) -> None:
        self._left = _MOST

    def spend(self, count: int) -> None:
        """Count what is about to be made.

        Raises
        ------
        _TooMuch
            If it is too much. It is then not counted, so that smaller values can still be made.
        """
        if count > self._left:
            raise _TooMuch
        self._left -= count


def read_config(path: str) -> dict[str, Any]:
    """Return the values of a configuration; some may be `Unknown`.

    Raises
    ------
    NotFound
        If the file or its base does not exist.
    BadOption
        If it is not a readable configuration, or too large.
    """
    try:
        return _read(path, 0, _Budget())
    except _TooMuch:
        raise BadOption(
            "this configuration, with its bases, is too large",
            path=path,
            expected=f"at most {_MOST:,} characters and items, and {_MOST // _FILE} files",
            remedy=_ASK,
        ) from None


def run_config(path: str) -> dict[str, Any]:
    """Return the values by running the configuration with mmengine."""
    try:
        from mmengine.config import Config
    except ImportError:
        raise BadOption(
            "--run-config needs mmengine, which is not installed", remedy="pip install mmengine"
        ) from None
    config: dict[str, Any] = Config.fromfile(path).to_dict()
    return config


def _read(path: str, depth: int, budget: _Budget) -> dict[str, Any]:
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
    budget.spend(_FILE + len(text))
    own = _of_json(text, path) if path.endswith(".json") else _of_python(text, path, budget)
    merged: dict[str, Any] = {}
    bases = own.pop(_BASE, [])
    for base in [bases] if isinstance(bases, str) else bases:
        if not isinstance(base, str):
            raise BadOption("the base of a configuration is no path", path=path, remedy=_ASK)
        beside = os.path.normpath(os.path.join(os.path.dirname(path), base))
        merged = _merged(merged, _read(beside, depth + 1, budget), budget)
    return _merged(merged, own, budget)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any], budget: _Budget) -> dict[str, Any]:
    budget.spend(1 + len(base) + len(own))
    merged = dict(base)
    for key, value in own.items():
        before = merged.get(key)
        if isinstance(value, dict):
            budget.spend(len(value))
            value = dict(value)
            if not value.pop(_DELETE, False) and isinstance(before, dict):
                value = _merged(before, value, budget)
        merged[key] = value
    return merged


def _of_json(text: str, path: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(
            f"this configuration is no JSON ({error})", path=path, remedy="Check the file"
        ) from None
    if not isinstance(config, dict):
        raise BadOption("this configuration is no JSON object", path=path, remedy="Check the file")
    return config


def _of_python(text: str, path: str, budget: _Budget) -> dict[str, Any]:
    """Evaluate the assignments of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadOption(
            f"this configuration is no Python ({error})", path=path, remedy="Check the file"
        ) from None
    names: dict[str, Any] = {}
    expressions = _Expressions(names, budget)
    for statement in tree.body:
        where = f"{os.path.basename(path)}, line {statement.lineno}"
        if isinstance(statement, ast.Assign) and all(
            isinstance(target, ast.Name) for target in statement.targets
        ):
            value = expressions.worked_out(statement.value, where)
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
    names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return names


# The errors that a sum or a look-up can raise.
_FAILS = (TypeError, ValueError, KeyError, IndexError, ArithmeticError)
# Plain values: all that keys can be, as the hash of a tuple of tuples may never end, and what f-strings show.
_PLAIN = (str, int, float, type(None))


class _Expressions:
    """Evaluates the expressions of a file.

    Parameters
    ----------
    names : dict
        The values that are assigned so far; it may grow.
    budget : _Budget
        Counts what is made.
    """

    def __init__(self, names: Mapping[str, Any], budget: _Budget) -> None:
        self._names, self._budget = names, budget

    def worked_out(self, node: ast.expr, where: str) -> Any:
        """Return the value of an expression, or `Unknown`."""
        try:
            return self._value(node)
        except (_Untold, RecursionError, *_FAILS):
            return Unknown(where)

    def _value(self, node: ast.expr) -> Any:
        """Evaluate an expression; `_Untold` if this module does not support it."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return _known(self._names[node.id])
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self._inner(one) for one in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {self._key(key): self._inner(value) for key, value in pairs}
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            return self._sum(_SUMS[type(node.op)], self._value(node.left), self._value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
            return _SIGNS[type(node.op)](self._value(node.operand))
        if isinstance(node, ast.Subscript):
            return _known(self._value(node.value)[self._key(node.slice)])
        if isinstance(node, ast.Attribute):
            found = self._value(node.value)
            return found[node.attr] if isinstance(found, dict) else _raise()
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(part) for part in node.values]
            self._budget.spend(sum(map(len, parts)))
            return "".join(parts)
        return _raise()

    def _inner(self, node: ast.expr) -> Any:
        """Evaluate a value inside another one; if it is unknown, the outer value is still known."""
        try:
            return self._value(node)
        except (_Untold, *_FAILS):
            return Unknown(f"line {node.lineno}")

    def _key(self, node: ast.expr | None) -> Any:
        key = _raise() if node is None else self._value(node)
        return key if isinstance(key, _PLAIN) else _raise()

    def _called(self, node: ast.Call) -> dict[str, Any]:
        """Evaluate a call of ``dict(a=1, **b)``; no other call is supported."""
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict" and "dict" not in self._names
        if not is_dict or len(node.args) > 1:
            raise _Untold
        made: dict[str, Any] = self._copied(node.args[0]) if node.args else {}
        for keyword in node.keywords:
            if keyword.arg is None:
                made.update(self._copied(keyword.value))
            else:
                made[keyword.arg] = self._inner(keyword.value)
        return made

    def _copied(self, node: ast.expr) -> dict[str, Any]:
        value = self._value(node)
        if not isinstance(value, dict):
            raise _Untold
        self._budget.spend(len(value))
        return dict(value)

    def _sum(self, how: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """Compute a sum, a product or the like, of bounded size."""
        if how is operator.mod and not isinstance(left, (int, float)):
            return _raise()  # formatted text can be as long as its format says
        if how in (operator.add, operator.mul):
            numbers = [isinstance(one, (int, float)) for one in (left, right)]
            sizes = [one if number else len(one) for one, number in zip((left, right), numbers, strict=True)]
            size = abs(how(*sizes))
            if not all(numbers):
                self._budget.spend(int(size))  # an error for "x" * nan
            elif size > 1 << 63:
                return _raise()
        return how(left, right)

    def _text(self, part: ast.expr) -> str:
        """Evaluate a part of an f-string: text, or a plain value in braces without a format."""
        if isinstance(part, ast.FormattedValue):
            if part.format_spec is not None or part.conversion != -1:
                raise _Untold
            part = part.value
        value = self._value(part)
        return str(value) if isinstance(value, _PLAIN) else _raise()


def _known(value: Any) -> Any:
    return _raise() if isinstance(value, Unknown) else value


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
