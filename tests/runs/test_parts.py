"""What earlier parts of a run were trained with is kept where that differs, and only there."""

from dataclasses import replace

import pytest
from small_runs import plain

from bayesticket.runs.header import Part
from bayesticket.runs.versions import parts_before

NOW = plain().header()
OTHER = replace(NOW, made_with=NOW.made_with | {"torch": "1.0"}, earlier=(Part(5, {"torch": "0.9"}),))


@pytest.mark.parametrize(
    ("header", "epoch", "kept"),
    [
        (OTHER, 20, (*OTHER.earlier, Part(20, OTHER.made_with))),
        (OTHER, 0, OTHER.earlier),
        (NOW, 20, ()),
        (NOW, 0, ()),
    ],
    ids=["other versions", "nothing trained by them", "the same", "the same, nothing trained"],
)
def test_a_part_is_what_other_versions_have_trained(header, epoch, kept, caplog):
    assert parts_before(header, epoch) == kept
    assert ("until epoch 20" in caplog.text) is (header is OTHER and epoch == 20)
