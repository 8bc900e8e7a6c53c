"""A simulator of a speculative-decoding engine with several ranks, which writes traces as SPEC describes them."""

from simulator.drafting import Acceptance
from simulator.faults import At, Change, Halt, NoFault, Several
from simulator.files import FORMS, Form, write_lines, write_parquet, write_run
from simulator.recorder import Record
from simulator.run import Run, simulate
from simulator.scenario import Algorithm, RequestPlan, Scenario, two_requests
from simulator.tokens import Model
from simulator.topology import Topology

__all__ = [
    "FORMS",
    "Acceptance",
    "Algorithm",
    "At",
    "Change",
    "Form",
    "Halt",
    "Model",
    "NoFault",
    "Record",
    "RequestPlan",
    "Run",
    "Scenario",
    "Several",
    "Topology",
    "simulate",
    "two_requests",
    "write_lines",
    "write_parquet",
    "write_run",
]
