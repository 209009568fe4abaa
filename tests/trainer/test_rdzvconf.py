"""What torchrun hands on about its rendezvous."""

import pytest

from rankpulse.trainer import rdzvconf


def test_nothing_given() -> None:
    assert rdzvconf.parse({"timeout": 900}) == (rdzvconf.Conf(30.0, 600.0, 30.0), [])


def test_texts_and_numbers() -> None:
    conf, warnings = rdzvconf.parse({"last_call_timeout": "5", "join_timeout": 60, "agent_wait_s": " 0.5 "})
    assert (conf, warnings) == (rdzvconf.Conf(5.0, 60.0, 0.5), [])


def test_unknown_keys_are_named_beside_the_known_ones() -> None:
    _, (warning,) = rdzvconf.parse({"is_host": "1", "read_timeout": 3})
    assert "is_host, read_timeout" in warning
    assert all(key in warning for key in rdzvconf.Conf._fields)


@pytest.mark.parametrize("bad", ["soon", "", "-1", "nan", "inf", "1e9", None, [], "1s"])
def test_bad_values(bad: object) -> None:
    with pytest.raises(rdzvconf.BadConf, match=r"--rdzv-conf join_timeout=.*a number of seconds"):
        rdzvconf.parse({"join_timeout": bad})


def test_labels() -> None:
    assert rdzvconf.label("a job, ☃", 4, "host:1", "x") == "a job, ☃"
    assert rdzvconf.label("none", 1, "host:1", "x") == "unnamed-x"
    assert rdzvconf.label("none", 4, "host:1", "x") == "host:1"


@pytest.mark.parametrize("endpoint", ["", "/run/rankpulse"])
@pytest.mark.parametrize("unnamed", ["none", ""])
def test_several_nodes_need_a_name(unnamed: str, endpoint: str) -> None:
    with pytest.raises(rdzvconf.BadConf, match="--rdzv-id NAME"):
        rdzvconf.label(unnamed, 2, endpoint, "x")


def test_an_endless_name() -> None:
    with pytest.raises(rdzvconf.BadConf, match="240 bytes"):
        rdzvconf.label("☃" * 100, 2, "", "x")


@pytest.mark.parametrize("name", ["team/job", "/", "../x"])
def test_torchrun_could_not_make_its_folder(name: str) -> None:
    with pytest.raises(rdzvconf.BadConf, match="folder of that name"):
        rdzvconf.label(name, 2, "", "x")
    assert rdzvconf.label("none", 2, "host:1/x", "x") == "host:1/x"


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(rdzvconf.BadConf, match="UTF-8"):
        rdzvconf.label("\udcff", 2, "", "x")
