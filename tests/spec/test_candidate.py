from __future__ import annotations

from sweeper.spec.candidate import Candidate


def test_unset_and_false_start_the_same_server() -> None:
    left_alone = Candidate({"args.a": "unset", "env.B": "unset"})
    switched_off = Candidate({"args.a": False})
    assert left_alone.key() == switched_off.key()
    assert left_alone.label() == "engine defaults"


def test_label_names_what_changes() -> None:
    candidate = Candidate({"env.NCCL_PROTO": "LL", "args.flag": True, "args.steps": 4})
    assert candidate.label() == "NCCL_PROTO=LL flag steps=4"
    assert candidate.env() == {"NCCL_PROTO": "LL"}
