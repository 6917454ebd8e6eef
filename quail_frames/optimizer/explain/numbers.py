"""Figures as people read them."""

from __future__ import annotations

from quail_frames.cost.choices import Alternative, Target


def count(value: float) -> str:
    """A count of rows, asks or tokens.

    >>> count(1234.4), count(0.26)
    ('1,234', '0.3')
    """
    return f"{value:,.1f}" if 0 < value < 9.95 and abs(value - round(value)) > 0.05 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds, in a unit that fits.

    >>> duration(0.00042), duration(12.345), duration(4000)
    ('0.42 ms', '12.3 s', '4,000 s (1.1 h)')
    """
    if seconds < 0.1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 1000:
        return f"{seconds:.3g} s"
    return f"{seconds:,.0f} s ({seconds / 3600:,.1f} h)"


def money(value: float) -> str:
    """An amount, with enough digits to see it.

    >>> money(12.345), money(0.0000518)
    ('12.35', '0.000052')
    """
    return f"{value:,.2f}" if value >= 0.095 or value == 0 else f"{value:.{_leading_zeros(value) + 2}f}"


def _leading_zeros(value: float) -> int:
    """Zeros behind the point, before the first other digit."""
    digits = f"{value:.8f}"[2:]
    return len(digits) - len(digits.lstrip("0"))


def priced(alternative: Alternative) -> str:
    """An alternative's price, or why it is not possible."""
    if alternative.refused is not None:
        return alternative.refused
    if alternative.work is None:
        return duration(alternative.seconds)
    return f"{duration(alternative.seconds)} for {count(alternative.work.new_tokens)} tokens"


def rate(value: float, unit: str) -> str:
    """A rate with its prefix.

    >>> rate(1.979e15, "FLOP/s"), rate(12e9, "B/s")
    ('1.98 PFLOP/s', '12 GB/s')
    """
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e6:.3g} M{unit}"


def target_lines(target: Target) -> list[str]:
    """The model, the device and the budgets that prices rest on."""
    shape, device, budgets = target.shape, target.device, target.budgets
    matrices = "" if shape.matrix_dtype == shape.dtype else f", projections and MLP in {shape.matrix_dtype}"
    peak = rate(device.peak(shape.matrix_dtype), "FLOP/s")
    flops = (shape.flops_per_token, shape.flops_per_pair, shape.flops_per_head_row)
    token, pair, row = (rate(each, "FLOP") for each in flops)
    return [
        f"model {shape.name} ({shape.dtype}{matrices}): {token} a token, {pair} an attention pair, {row} a head row",
        f"device {device.name}: {peak} ({shape.matrix_dtype}), {rate(device.bandwidth, 'B/s')}",
        f"batches of {budgets.tokens:,} tokens, memory for {budgets.kv_tokens:,}",
    ]
