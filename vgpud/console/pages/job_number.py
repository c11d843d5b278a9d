"""Numbers of jobs in addresses."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class JobNumber(Convertor[int]):
    """A number that a message can hold: others are no job's, and a page says so."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("job_id", JobNumber())
#: in the path of a route
JOB = "/job/{job_id:job_id}"
