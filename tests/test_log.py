import logging
import re
import sys

import pytest

from refluid import log as module
from refluid.log import Log, level_from_environment


@pytest.fixture(autouse=True)
def fresh_logger(monkeypatch):
    """A logger of its own, as the process-wide one is before its first line in a script without logging."""
    monkeypatch.setattr(module, "_logger", logging.Logger("refluid.runtime"))
    monkeypatch.delenv("REFLUID_LOG", raising=False)
    monkeypatch.delenv("GLOG_v", raising=False)


def test_a_line_is_made_of_pairs(capsys):
    log = Log(role="server", endpoint="127.0.0.1:6174")
    log.info("trainer joined", trainer=1, waited=0.12345678, round=None)
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} level=info role=server endpoint=127\.0\.0\.1:6174 "
        r'msg="trainer joined" trainer=1 waited=0\.123457\n',
        capsys.readouterr().err,
    )


def test_values_with_spaces_and_quotes_can_be_cut_apart(capsys):
    Log().warning("gone", reason='said "no"\nand left', path="a=b", nothing="")
    assert 'msg=gone reason="said \\"no\\"\\nand left" path="a=b" nothing=""\n' in capsys.readouterr().err


def test_a_bound_log_says_more_about_its_writer(capsys):
    Log(role="trainer", trainer=0).bind(job="x").error("lost")
    assert "level=error role=trainer trainer=0 job=x msg=lost\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({}, logging.INFO),
        ({"GLOG_v": "0"}, logging.INFO),
        ({"GLOG_v": "3"}, logging.DEBUG),
        ({"GLOG_v": "3", "REFLUID_LOG": "warning"}, logging.WARNING),
        ({"REFLUID_LOG": "DEBUG"}, logging.DEBUG),
    ],
)
def test_the_environment_chooses_the_level(monkeypatch, variables, level):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert level_from_environment() == level


def test_lines_below_the_level_are_not_written(monkeypatch, capsys):
    monkeypatch.setenv("REFLUID_LOG", "warning")
    log = Log(role="server")
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in (text := capsys.readouterr().err) and "loud" in text


def test_an_unknown_level_is_an_error(monkeypatch):
    monkeypatch.setenv("REFLUID_LOG", "chatty")
    with pytest.raises(ValueError, match="REFLUID_LOG is 'chatty'; expected one of debug, info"):
        Log()


def test_logging_that_the_script_has_set_up_is_used(capsys):
    handler = logging.StreamHandler(sys.stdout)
    module._logger.addHandler(handler)
    Log(role="server").info("hello")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("role=server msg=hello\n", "")
