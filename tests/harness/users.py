"""Running something as a user without rights."""

NOBODY_ID = 65534
_READ_ONLY = "-all,+dac_read_search"
# It may read every file, because a checkout can lie in a directory that is closed to others;
# it has none of the rights that tracing needs.
AS_NOBODY = (
    "setpriv",
    f"--reuid={NOBODY_ID}",
    f"--regid={NOBODY_ID}",
    "--clear-groups",
    f"--bounding-set={_READ_ONLY}",
    f"--inh-caps={_READ_ONLY}",
    f"--ambient-caps={_READ_ONLY}",
)
"""Put before a command; needs root."""
