import logging
import re
import sys

import pytest

from refluid.log import Log, level_from_environment


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    """Loggers as in a script that has not configured logging and in which nothing was logged yet."""
    ours = logging.getLogger("refluid")
    monkeypatch.setattr(ours, "parent", logging.RootLogger(logging.WARNING))  # pytest has handlers at the real one
    monkeypatch.setattr(ours, "handlers", [])
    before = ours.level
    ours.setLevel(logging.NOTSET)
    monkeypatch.delenv("REFLUID_LOG", raising=False)
    monkeypatch.delenv("GLOG_v", raising=False)
    yield ours.parent
    ours.setLevel(before)


def test_a_line_is_made_of_pairs(capsys):
    Log("server", endpoint="127.0.0.1:6174").info("trainer joined", trainer=1, waited=0.12345678, round=None)
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} level=info role=server endpoint=127\.0\.0\.1:6174 "
        r'msg="trainer joined" trainer=1 waited=0\.123457\n',
        capsys.readouterr().err,
    )


def test_values_with_spaces_and_quotes_can_be_cut_apart(capsys):
    Log("server").warning("gone", reason='said "no"\nand left', path="a=b", nothing="")
    assert 'msg=gone reason="said \\"no\\"\\nand left" path="a=b" nothing=""\n' in capsys.readouterr().err


def test_values_neither_begin_lines_nor_steer_terminals(capsys):
    Log("server").info("joined", host="a\r\x1b[2K\x85\u2028b\\", name="\ud800", word="é")
    assert r'host="a\r\x1b[2K\x85\u2028b\\" name="\ud800" word=é' in capsys.readouterr().err


def test_records_carry_the_pairs_as_a_dict():
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    logging.getLogger("refluid").addHandler(handler)
    Log("trainer", trainer=0).error("lost", server="a:1", nothing=None)

    (record,) = seen
    assert record.fields == {"role": "trainer", "trainer": 0, "msg": "lost", "server": "a:1"}
    assert (record.name, record.filename) == ("refluid.trainer", "test_log.py")


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({}, None),
        ({"GLOG_v": "0"}, None),
        ({"GLOG_v": "3"}, logging.DEBUG),
        ({"GLOG_v": "3", "REFLUID_LOG": "warning"}, logging.WARNING),
        ({"REFLUID_LOG": "DEBUG"}, logging.DEBUG),
    ],
)
def test_the_environment_chooses_the_level(monkeypatch, variables, level):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert level_from_environment() == level


def test_messages_below_the_level_are_not_written(monkeypatch, capsys):
    monkeypatch.setenv("REFLUID_LOG", "warning")
    log = Log("server")
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in (text := capsys.readouterr().err) and "loud" in text


def test_nothing_is_written_when_logging_is_off(monkeypatch, capsys):
    monkeypatch.setenv("REFLUID_LOG", "off")
    Log("server").error("loud")
    assert capsys.readouterr().err == ""


def test_an_unknown_level_is_an_error(monkeypatch):
    monkeypatch.setenv("REFLUID_LOG", "chatty")
    with pytest.raises(ValueError, match="REFLUID_LOG is 'chatty'; expected one of debug, info"):
        Log("server")


@pytest.mark.parametrize("name", ["refluid", "refluid.server"])
def test_a_script_can_silence_messages(capsys, name):
    Log("server").info("before")
    logging.getLogger(name).setLevel(logging.ERROR)
    try:
        Log("server").warning("after")
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)
    assert "before" in (text := capsys.readouterr().err) and "after" not in text


@pytest.mark.parametrize("name", ["", "refluid", "refluid.server"])
@pytest.mark.parametrize("logged_before", [True, False])
def test_handlers_of_the_script_replace_the_error_stream(capsys, unconfigured, name, logged_before):
    log = Log("server") if logged_before else None
    handler, logger = logging.StreamHandler(sys.stdout), logging.getLogger(name) if name else unconfigured
    logger.addHandler(handler)
    try:
        (log or Log("server")).warning("hello")
    finally:
        logger.removeHandler(handler)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("role=server msg=hello\n", "")


def test_a_configured_script_chooses_the_level_too(capsys, unconfigured):
    unconfigured.addHandler(logging.StreamHandler(sys.stdout))  # as logging.basicConfig does
    Log("server").info("quiet")
    Log("server").warning("loud")
    assert capsys.readouterr().out == "role=server msg=loud\n"
