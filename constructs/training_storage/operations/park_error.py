"""Why a job could not be parked."""


class ParkError(Exception):
    """One line: what stands in the way, and what helps."""
