"""Has HiGHS solve what weft balance solves: check_balance.py PROGRAM [INSTANCES] [SEED]

Random instances as mixed-integer programs that share nothing with Weft's search: whole numbers of blocks and of recomputed
blocks for every stage and kind, the order of the chain as constraints between neighbouring kinds, a start time for every
action, and the memory of every rank after every forward. Both must find the same makespan, or both that nothing fits. What Weft
prints is also checked on its own: the blocks, their order, and the memory that follows from them. The rows of 1F1B are made
here; those of the other schedules come from `weft schedule`, which check_schedules.py judges.

    python -m venv env && env/bin/pip install highspy
    env/bin/python tests/parity/check_balance.py build/weft
"""

import csv
import json
import random
import re
import subprocess
import sys
import tempfile

import highspy

TOLERANCE = 1e-5  # HiGHS is told to stop at 1e-7, its feasibility tolerance is larger


SCHEDULES = ["1f1b", "1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zb_v"]


def random_instance(rng):
    schedule = rng.choice(SCHEDULES)
    splits = schedule.startswith("zb")
    vpp = 2 if schedule in ("interleaved_1f1b", "zb_v") else 1
    pp = rng.randint(2, 4) if vpp == 1 else rng.randint(1, 3)
    kinds = rng.randint(1, 3)
    low, high = (0.5, 1.5) if splits else (1, 3)

    def backward(forward):
        parts = [round(forward * rng.uniform(low, high), 2) for _ in range(2)]
        return {"backward_input_ms": parts[0], "backward_weight_ms": parts[1]} if splits else {"backward_ms": parts[0]}

    chain = []
    for k in range(kinds):
        forward = round(rng.uniform(0.5, 10), 2)
        activation = round(rng.uniform(0.1, 1.0), 2)
        fewest = max(1, pp * vpp // kinds + 1)
        chain.append({"name": f"kind{k}", "count": rng.randint(fewest, max(fewest, 10 // kinds + 2)), "forward_ms": forward,
                      "activation_gib": activation, "recompute_saves_gib": round(activation * rng.uniform(0, 1), 2),
                      "static_gib": round(rng.uniform(0, 1), 2)} | backward(forward))
    costs = {"schedule": schedule, "pp": pp, "vpp": vpp, "microbatches": rng.randint(1, 8),
             "p2p_ms": rng.choice([0, round(rng.uniform(0, 5), 2)]), "chain": chain}
    if rng.random() < 0.7:
        costs["first_stage"] = {"forward_ms": 1.5, "static_gib": 0.5} | backward(1.0)
    if rng.random() < 0.7:
        costs["last_stage"] = {"forward_ms": 6.0, "static_gib": 0.6} | backward(6.0)
    held = costs["microbatches"] if schedule == "gpipe" else min(pp, costs["microbatches"])
    need = sum(c["count"] * (c["static_gib"] + c["activation_gib"] * held * 0.7) for c in chain) / pp
    if rng.random() < 0.9:
        costs["memory_gib"] = round(need * rng.uniform(0.5, 1.6), 3)
    return costs


def extra(costs, stage, key):
    """What the first and the last stage have on top."""
    value = costs.get("first_stage", {}).get(key, 0) if stage == 0 else 0
    return value + (costs.get("last_stage", {}).get(key, 0) if stage == costs["pp"] * costs["vpp"] - 1 else 0)


def rows_of(program, costs):
    """The rows of the schedule, a list of (stage, kind, microbatch) for each rank."""
    if costs["schedule"] == "1f1b":
        return [[(stage, kind, i) for kind, i in one_f_one_b(costs, stage)] for stage in range(costs["pp"])]
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as file:
        subprocess.run([program, "schedule", "--name", costs["schedule"], "--pp", str(costs["pp"]), "--vpp", str(costs["vpp"]),
                        "--microbatches", str(costs["microbatches"]), "--csv", file.name], check=True, capture_output=True)
        with open(file.name, newline="") as rows:
            words = [[re.fullmatch(r"(\d+)([FBIW])(\d+)", word) for word in row] for row in csv.reader(rows)]
    return [[(int(word[1]), word[2], int(word[3])) for word in row] for row in words]


def in_flight(row):
    """After every forward of a row: how many microbatches each stage holds."""
    held = {stage: 0 for stage, _, _ in row}
    for stage, kind, _ in row:
        held[stage] += {"F": 1, "B": -1, "I": 0, "W": -1}[kind]
        if kind == "F":
            yield dict(held)


def one_f_one_b(costs, stage):
    """The row of a stage: ("F" or "B", microbatch)."""
    m = costs["microbatches"]
    ahead = min(costs["pp"] - stage - 1, m)
    row = [("F", i) for i in range(ahead)]
    for i in range(m):
        if ahead + i < m:
            row.append(("F", ahead + i))
        row.append(("B", i))
    return row


def solve(costs, rows):
    """The smallest makespan, or None when nothing fits."""
    stages, chain = range(costs["pp"] * costs["vpp"]), costs["chain"]
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 1e-7)
    kinds = range(len(chain))
    blocks = {(s, k): model.addIntegral(0, chain[k]["count"]) for s in stages for k in kinds}
    again = {(s, k): model.addIntegral(0, chain[k]["count"]) for s in stages for k in kinds}
    for k in kinds:
        model.addConstr(sum(blocks[s, k] for s in stages) == chain[k]["count"])
    for s in stages:
        model.addConstr(sum(blocks[s, k] for k in kinds) >= 1)
        for k in kinds:
            model.addConstr(again[s, k] <= blocks[s, k])
    # Order: a later kind starts on a stage or before only when all blocks of the kind before it are placed by then.
    for k in kinds[1:]:
        for s in stages:
            has_begun = model.addBinary()
            model.addConstr(sum(blocks[t, k] for t in range(s + 1)) <= chain[k]["count"] * has_begun)
            model.addConstr(sum(blocks[t, k - 1] for t in range(s + 1)) >= chain[k - 1]["count"] * has_begun)
    if "memory_gib" in costs:
        for row in rows:
            for held in in_flight(row):
                model.addConstr(sum((n * c["activation_gib"] + c["static_gib"]) * blocks[s, k]
                                    - n * c["recompute_saves_gib"] * again[s, k]
                                    for s, n in held.items() for k, c in enumerate(chain))
                                <= costs["memory_gib"] - sum(extra(costs, s, "static_gib") for s in held))

    def time(stage, kind):
        key = {"F": "forward_ms", "B": "backward_ms", "I": "backward_input_ms", "W": "backward_weight_ms"}[kind]
        own = sum(c[key] * blocks[stage, k] for k, c in enumerate(chain)) + extra(costs, stage, key)
        return own + (sum(c["forward_ms"] * again[stage, k] for k, c in enumerate(chain)) if kind in "BI" else 0)

    rank_of = {stage: rank for rank, row in enumerate(rows) for stage, _, _ in row}
    start = {action: model.addVariable(0) for row in rows for action in row}
    makespan = model.addVariable(0)
    for row in rows:
        for before, after in zip(row, row[1:]):
            model.addConstr(start[after] >= start[before] + time(before[0], before[1]))
        model.addConstr(makespan >= start[row[-1]] + time(row[-1][0], row[-1][1]))
        for stage, kind, i in row:
            if kind == "W" or (source := (stage + (-1 if kind == "F" else 1), kind, i)) not in start:
                continue
            delay = 0 if rank_of[source[0]] == rank_of[stage] else costs["p2p_ms"]
            model.addConstr(start[stage, kind, i] >= start[source] + time(source[0], kind) + delay)
    model.minimize(makespan)
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        sys.exit(f"HiGHS found no optimum: {model.modelStatusToString(status)}")
    return model.getObjectiveValue()


def weft(program, costs):
    """What Weft prints, or None when it says that nothing fits."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(costs, file)
        file.flush()
        run = subprocess.run([program, "balance", "--costs", file.name, "--json"], capture_output=True, text=True)
    if run.returncode == 1 and "no placement fits" in run.stderr:
        return None
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def check_placement(costs, found, rows):
    """Blocks, order and memory of what was printed."""
    def of_stage(counts):
        """By stage what is printed by rank, or by rank and chunk."""
        by_stage = {}
        for row, value in zip(rows, counts):
            chunks = sorted({stage for stage, _, _ in row})
            by_stage.update(zip(chunks, value if costs["vpp"] > 1 else [value]))
        return by_stage

    placed = [of_stage(found["placement"][c["name"]]) for c in costs["chain"]]
    again = [of_stage(found["recompute"][c["name"]]) for c in costs["chain"]]
    order = []
    for s in range(costs["pp"] * costs["vpp"]):
        run = [k for k, stages in enumerate(placed) for _ in range(stages[s])]
        assert run, f"stage {s} is empty"
        assert all(0 <= again[k][s] <= placed[k][s] for k in range(len(placed)))
        order += run
    assert order == [k for k, c in enumerate(costs["chain"]) for _ in range(c["count"])], "blocks are missing or out of order"
    for rank, row in enumerate(rows):
        peak = max(sum(extra(costs, s, "static_gib")
                       + sum(placed[k][s] * (n * c["activation_gib"] + c["static_gib"]) - again[k][s] * n * c["recompute_saves_gib"]
                             for k, c in enumerate(costs["chain"]))
                       for s, n in held.items())
                   for held in in_flight(row))
        assert abs(peak - found["memory_gib"][rank]) < 1e-6, f"rank {rank} holds {peak} GiB"
        assert peak <= costs.get("memory_gib", peak) + 1e-6


def main(program, instances="100", seed="1"):
    rng = random.Random(int(seed))
    num_infeasible = 0
    for index in range(int(instances)):
        costs = random_instance(rng)
        rows = rows_of(program, costs)
        expected, found = solve(costs, rows), weft(program, costs)
        if (expected is None) != (found is None):
            sys.exit(f"instance {index}: HiGHS {expected}, Weft {found and found['makespan_ms']}\n{json.dumps(costs)}")
        if expected is None:
            num_infeasible += 1
            continue
        check_placement(costs, found, rows)
        if not found["optimal"] or abs(found["makespan_ms"] - expected) > TOLERANCE * expected:
            sys.exit(f"instance {index}: HiGHS {expected}, Weft {found['makespan_ms']} ({found['proof']})\n{json.dumps(costs)}")
    print(f"HiGHS and Weft agree on {instances} instances, {num_infeasible} of them without a placement that fits")


if __name__ == "__main__":
    main(*sys.argv[1:])
