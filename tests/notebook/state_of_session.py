"""A script for a running IPython: prints, as JSON, all of the session that an extension could change.

`exec` runs it with a namespace of its own, so that it leaves no names. Objects are told apart by their identity.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import faulthandler
import gc
import json
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings

from IPython import get_ipython  # type: ignore[attr-defined]

shell = get_ipython()  # type: ignore[no-untyped-call]


def named(value):
    return (
        f"{getattr(value, '__qualname__', type(value).__qualname__)} {id(getattr(value, '__func__', value))}"
    )


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    policy = type(asyncio.get_event_loop_policy()).__name__
transforms = shell.input_transformer_manager
display = shell.display_formatter
completer = shell.Completer
state = {
    "line magics": {name: named(magic) for name, magic in shell.magics_manager.magics["line"].items()},
    "cell magics": {name: named(magic) for name, magic in shell.magics_manager.magics["cell"].items()},
    "aliases": sorted(shell.alias_manager.aliases),
    "event hooks": {name: [named(one) for one in found] for name, found in shell.events.callbacks.items()},
    "hooks": {
        name: repr(list(hook)) if hasattr(hook, "__iter__") else named(hook)
        for name, hook in shell.hooks.items()
    },
    "input transformers": [
        [named(one) for one in found]
        for found in (
            transforms.cleanup_transforms,
            transforms.line_transforms,
            transforms.token_transformers,
            shell.input_transformers_post,
            shell.ast_transformers,
        )
    ],
    "prefilter": [
        [named(one) for one in shell.prefilter_manager.transformers],
        [named(one) for one in shell.prefilter_manager.checkers],
        sorted(shell.prefilter_manager.handlers),
    ],
    "matchers": [getattr(one, "matcher_identifier", named(one)) for one in completer.matchers],
    "completers": repr(completer.custom_completers.__dict__.keys() if completer.custom_completers else None),
    "disabled matchers": list(completer.disable_matchers),
    "custom exceptions": repr(shell.custom_exceptions),
    "settings": {
        each.__class__.__name__: {name: repr(getattr(each, name)) for name in each.trait_names(config=True)}
        for each in (shell, completer, shell.alias_manager, shell.history_manager, display)
    },
    "displays": {
        kind: sorted(
            [named(one) for one in found.type_printers] + [".".join(one) for one in found.deferred_printers]
        )
        for kind, found in [
            *display.formatters.items(),
            ("ipython_display", display.ipython_display_formatter),
        ]
    },
    "names": sorted(name for name in shell.user_ns if not name.startswith("_")),
    "hidden names": sorted(name for name in shell.user_ns_hidden if not name.startswith("_")),
    "built-ins": sorted(vars(builtins)),
    "signals": {
        one.name: named(signal.getsignal(one))
        for one in signal.Signals
        if one.name not in ("SIGKILL", "SIGSTOP")
    },
    "system hooks": {
        name: named(getattr(sys, name))
        for name in (
            "excepthook",
            "displayhook",
            "unraisablehook",
            "breakpointhook",
            "stdin",
            "stdout",
            "stderr",
        )
    },
    "thread hooks": [named(threading.excepthook), repr(threading.gettrace()), repr(threading.getprofile())],
    "tracing": [repr(sys.gettrace()), repr(sys.getprofile()), faulthandler.is_enabled()],
    "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold(), gc.isenabled()],
    "warnings": [[str(part) for part in one] for one in warnings.filters] + [named(warnings.showwarning)],
    "logging": {
        name: [
            logger.level,
            logger.propagate,
            [repr(one) for one in logger.handlers],
            [repr(one) for one in logger.filters],
        ]
        for name, logger in [("root", logging.getLogger()), *sorted(logging.root.manager.loggerDict.items())]
        if isinstance(logger, logging.Logger) and (logger.handlers or logger.filters or logger.level)
    },
    "logging's defaults": [
        logging.raiseExceptions,
        logging.root.manager.disable,
        named(logging.getLoggerClass()),
    ],
    "at exit": atexit._ncallbacks(),
    "import": [
        sys.path,
        [named(one) for one in sys.meta_path],
        [named(one) for one in sys.path_hooks],
        sys.argv,
    ],
    "environment": dict(os.environ),
    "process": [os.getcwd(), os.umask(os.umask(0o22)), locale.setlocale(locale.LC_ALL), policy],
    "random": hash(random.getstate()),
    "threads": sorted(thread.name for thread in threading.enumerate()),
    "children": children(),
}
print(json.dumps(state))
