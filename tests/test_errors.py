"""Exceptions: one module, one base, and a stop that notebooks can catch."""

import importlib
import inspect
import pkgutil

import pytest

import onepair
from onepair import errors
from onepair.errors import OnepairError, Stopped, UserError


def test_every_exception_is_in_one_module_and_has_one_base():
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, BaseException)]
    assert all(issubclass(each, OnepairError | Stopped) for each in classes)
    assert UserError is OnepairError
    for module in pkgutil.walk_packages(onepair.__path__, "onepair."):
        if module.name.startswith("onepair.cli") or module.name.endswith("__main__"):
            continue
        for name, each in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(each) and issubclass(each, OnepairError):
                assert each.__module__ == "onepair.errors", f"{module.name}.{name}"


def test_a_stop_is_a_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt, match="stopped by Ctrl-C") as stop:
        raise Stopped("stopped by Ctrl-C", code=130)
    assert not isinstance(stop.value, Exception)  # so that nothing that handles errors gets it
