"""A hypothesis strategy that mutates valid bytes: cut, flipped, doubled, lengthened, or with an unknown enum number."""

from hypothesis import strategies as st

_MUTATIONS_MAX = 3
_UNKNOWN_VALUES = (b"\x08\x7f", b"\x10\x80\x80\x80\x80\x08", b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
_REPEATS = (2, 50, 500)


@st.composite
def mutated(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    """Values of ``sources``, half of them with a few mutations."""
    data = draw(sources)
    if draw(st.booleans()):
        return data
    for _ in range(draw(st.integers(1, _MUTATIONS_MAX))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat", "unknown"]))
        if kind == "cut":
            data = data[:at]
        elif kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif kind == "insert":
            data = data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at:]
        elif kind == "remove":
            data = data[:at] + data[at + draw(st.integers(1, 4)) :]
        elif kind == "repeat" and len(data) < 1000:
            data *= draw(st.sampled_from(_REPEATS))
        else:
            data += draw(st.sampled_from(_UNKNOWN_VALUES))
    return data
