"""Checks Weft's schedules with other people's software: check_schedules.py PROGRAM

Every generated schedule must load and validate in torch.distributed.pipelining, compute-only and lowered, and HiGHS must find the
same makespan for 1F1B: as a linear program over start times with the order given, and on a small uniform instance as a
mixed-integer program that may choose any order that holds no more microbatches than 1F1B does.

    python -m venv env && env/bin/pip install torch==2.11.0 highspy
    env/bin/python tests/parity/check_schedules.py build/weft
"""

import csv
import itertools
import json
import random
import subprocess
import sys
import tempfile

import highspy
from torch.distributed.pipelining.schedules import FORWARD, _Action, _simulate_comms_compute, _validate_schedule


def weft(program, *arguments):
    run = subprocess.run([program, "schedule", *map(str, arguments), "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def read_rows(path):
    with open(path, newline="") as file:
        return {rank: [_Action.from_str(word) for word in row] for rank, row in enumerate(csv.reader(file))}


def check_with_torch(program, folder):
    shapes = [(name, pp, 1, m) for name in ("gpipe", "1f1b", "zb_h1") for pp in (1, 2, 3, 5, 8) for m in (1, 3, 8, 17)]
    shapes += [("interleaved_1f1b", pp, vpp, m) for pp in (1, 2, 4, 7) for vpp in (2, 3) for m in (1, 4, 7, 16)]
    shapes += [("zb_v", pp, 2, m) for pp in (1, 2, 4, 7) for m in (1, 4, 7, 16)]
    for name, pp, vpp, m in shapes:
        weft(program, "--name", name, "--pp", pp, "--vpp", vpp, "--microbatches", m, "--csv", f"{folder}/a.csv",
             "--csv-lowered", f"{folder}/b.csv")
        mapping = _validate_schedule(read_rows(f"{folder}/a.csv"), pp, pp * vpp, m)
        # Plays the rows with torch's own notion of when a send or receive may run; raises when they get stuck.
        _simulate_comms_compute(read_rows(f"{folder}/b.csv"), lambda stage: mapping[stage], pp * vpp)
    return len(shapes)


def solve(model):
    model.setOptionValue("output_flag", False)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        sys.exit(f"HiGHS found no optimum: {model.modelStatusToString(model.getModelStatus())}")
    return model.getObjectiveValue()


def start_times(model, costs, pp, m):
    """Variables and dependencies of forwards and backwards; the makespan is minimised by the caller's objective."""
    forward, backward, p2p = costs
    f = {(s, i): model.addVariable(0) for s in range(pp) for i in range(m)}
    b = {(s, i): model.addVariable(0) for s in range(pp) for i in range(m)}
    end = model.addVariable(0, obj=1)
    for s, i in itertools.product(range(pp), range(m)):
        if s > 0:
            model.addConstr(f[s, i] >= f[s - 1, i] + forward[s - 1][i] + p2p)
        if s + 1 < pp:
            model.addConstr(b[s, i] >= b[s + 1, i] + backward[s + 1][i] + p2p)
        model.addConstr(b[s, i] >= f[s, i] + forward[s][i])
        model.addConstr(end >= b[s, i] + backward[s][i])
    return f, b


def linear_makespan(rows, costs, pp, m):
    model = highspy.Highs()
    f, b = start_times(model, costs, pp, m)
    for rank, row in rows.items():
        for first, second in zip(row, row[1:]):
            is_forward = first.computation_type == FORWARD
            start = (f if is_forward else b)[rank, first.microbatch_index]
            other = (f if second.computation_type == FORWARD else b)[rank, second.microbatch_index]
            model.addConstr(other >= start + (costs[0] if is_forward else costs[1])[rank][first.microbatch_index])
    return solve(model)


def free_order_makespan(costs, pp, m):
    """Any order on a rank; microbatches in order; forward i + (pp - rank) waits for backward i."""
    model = highspy.Highs()
    forward, backward, _ = costs
    f, b = start_times(model, costs, pp, m)
    big = sum(map(sum, forward)) + sum(map(sum, backward))
    for s in range(pp):
        for i in range(m - 1):
            model.addConstr(f[s, i + 1] >= f[s, i] + forward[s][i])
            model.addConstr(b[s, i + 1] >= b[s, i] + backward[s][i])
        for i in range(m - (pp - s)):
            model.addConstr(f[s, i + pp - s] >= b[s, i] + backward[s][i])
        for i, j in itertools.product(range(m), range(m)):
            first = model.addBinary()
            model.addConstr(b[s, j] >= f[s, i] + forward[s][i] - big * (1 - first))
            model.addConstr(f[s, i] >= b[s, j] + backward[s][j] - big * first)
    return solve(model)


def check_with_highs(program, folder):
    rng = random.Random(3)
    for pp, m in ((2, 3), (4, 8), (6, 5), (8, 20)):
        times = [[[rng.uniform(1, 9) for _ in range(m)] for _ in range(pp)] for _ in range(3)]
        p2p = rng.uniform(0, 2)
        with open(f"{folder}/costs.json", "w") as file:
            json.dump({"forward_ms": times[0], "backward_input_ms": times[1], "backward_weight_ms": times[2], "p2p_ms": p2p}, file)
        ours = weft(program, "--name", "1f1b", "--pp", pp, "--microbatches", m, "--costs", f"{folder}/costs.json", "--csv", f"{folder}/a.csv")
        backward = [[i + w for i, w in zip(*rows)] for rows in zip(times[1], times[2])]
        theirs = linear_makespan(read_rows(f"{folder}/a.csv"), (times[0], backward, p2p), pp, m)
        if abs(ours["makespan_ms"] - theirs) > 1e-6 * theirs:
            sys.exit(f"1f1b pp {pp} m {m}: Weft {ours['makespan_ms']}, HiGHS {theirs}")
    pp, m = 3, 4
    ours = weft(program, "--name", "1f1b", "--pp", pp, "--microbatches", m)["makespan_ms"]
    theirs = free_order_makespan(([[1] * m] * pp, [[2] * m] * pp, 0), pp, m)
    if abs(ours - theirs) > 1e-6:
        sys.exit(f"1f1b uniform pp {pp} m {m}: Weft {ours}, HiGHS over all orders {theirs}")


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        print(f"torch.distributed.pipelining validates {check_with_torch(program, folder)} schedules")
        check_with_highs(program, folder)
        print("HiGHS agrees on the makespan of 1F1B, with the order given and over all orders")


if __name__ == "__main__":
    main(*sys.argv[1:])
