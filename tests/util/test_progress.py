"""Progress messages."""

from __future__ import annotations

from jtgpu.util.arguments import report, reporting


def test_messages_go_to_the_innermost_listener() -> None:
    messages: list[str] = []
    with reporting(messages.append):
        report("one")
        with reporting(None):
            report("two")
        report("three")
    report("four")
    assert messages == ["one", "three"]
