"""Has HiGHS solve what weft balance solves: check_balance.py PROGRAM [INSTANCES] [SEED]

Random 1F1B instances as mixed-integer programs that share nothing with Weft: whole numbers of blocks and of recomputed
blocks for every stage and kind, the order of the chain as constraints between neighbouring kinds, a start time for every
forward and backward, and the memory of every stage. Both must find the same makespan, or both that nothing fits. What Weft
prints is also checked on its own: the blocks, their order, and the memory that follows from them.

    python -m venv env && env/bin/pip install highspy
    env/bin/python tests/parity/check_balance.py build/weft
"""

import json
import random
import subprocess
import sys
import tempfile

import highspy

TOLERANCE = 1e-5  # HiGHS is told to stop at 1e-7, its feasibility tolerance is larger


def random_instance(rng):
    pp = rng.randint(2, 4)
    kinds = rng.randint(1, 3)
    chain = []
    for k in range(kinds):
        forward = round(rng.uniform(0.5, 10), 2)
        activation = round(rng.uniform(0.1, 1.0), 2)
        chain.append({"name": f"kind{k}", "count": rng.randint(max(1, pp // kinds + 1), 10 // kinds + 2), "forward_ms": forward,
                      "backward_ms": round(forward * rng.uniform(1, 3), 2), "activation_gib": activation,
                      "recompute_saves_gib": round(activation * rng.uniform(0, 1), 2), "static_gib": round(rng.uniform(0, 1), 2)})
    costs = {"schedule": "1f1b", "pp": pp, "microbatches": rng.randint(1, 8),
             "p2p_ms": rng.choice([0, round(rng.uniform(0, 5), 2)]), "chain": chain}
    if rng.random() < 0.7:
        costs["first_stage"] = {"forward_ms": 1.5, "backward_ms": 1.0, "static_gib": 0.5}
    if rng.random() < 0.7:
        costs["last_stage"] = {"forward_ms": 6.0, "backward_ms": 11.0, "static_gib": 0.6}
    need = sum(c["count"] * (c["static_gib"] + c["activation_gib"] * min(pp, costs["microbatches"]) * 0.7) for c in chain) / pp
    if rng.random() < 0.9:
        costs["memory_gib"] = round(need * rng.uniform(0.5, 1.6), 3)
    return costs


def in_flight(costs, stage):
    return min(costs["pp"] - stage, costs["microbatches"])


def extra(costs, stage, key):
    """What the first and the last stage have on top."""
    value = costs.get("first_stage", {}).get(key, 0) if stage == 0 else 0
    return value + (costs.get("last_stage", {}).get(key, 0) if stage == costs["pp"] - 1 else 0)


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


def solve(costs):
    """The smallest makespan, or None when nothing fits."""
    pp, m, chain = costs["pp"], costs["microbatches"], costs["chain"]
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 1e-7)
    kinds = range(len(chain))
    blocks = {(s, k): model.addIntegral(0, chain[k]["count"]) for s in range(pp) for k in kinds}
    again = {(s, k): model.addIntegral(0, chain[k]["count"]) for s in range(pp) for k in kinds}
    for k in kinds:
        model.addConstr(sum(blocks[s, k] for s in range(pp)) == chain[k]["count"])
    for s in range(pp):
        model.addConstr(sum(blocks[s, k] for k in kinds) >= 1)
        for k in kinds:
            model.addConstr(again[s, k] <= blocks[s, k])
    # Order: a later kind starts on a stage or before only when all blocks of the kind before it are placed by then.
    for k in kinds[1:]:
        for s in range(pp):
            has_begun = model.addBinary()
            model.addConstr(sum(blocks[t, k] for t in range(s + 1)) <= chain[k]["count"] * has_begun)
            model.addConstr(sum(blocks[t, k - 1] for t in range(s + 1)) >= chain[k - 1]["count"] * has_begun)
    if "memory_gib" in costs:
        for s in range(pp):
            held = in_flight(costs, s)
            model.addConstr(sum((held * c["activation_gib"] + c["static_gib"]) * blocks[s, k]
                                - held * c["recompute_saves_gib"] * again[s, k] for k, c in enumerate(chain))
                            <= costs["memory_gib"] - extra(costs, s, "static_gib"))
    start = {(s, kind, i): model.addVariable(0) for s in range(pp) for kind in "FB" for i in range(m)}
    forward = [sum(c["forward_ms"] * blocks[s, k] for k, c in enumerate(chain)) + extra(costs, s, "forward_ms") for s in range(pp)]
    backward = [sum(c["backward_ms"] * blocks[s, k] + c["forward_ms"] * again[s, k] for k, c in enumerate(chain))
                + extra(costs, s, "backward_ms") for s in range(pp)]
    time = {"F": forward, "B": backward}
    for s in range(pp):
        row = one_f_one_b(costs, s)
        for (kind, i), (next_kind, j) in zip(row, row[1:]):
            model.addConstr(start[s, next_kind, j] >= start[s, kind, i] + time[kind][s])
        for i in range(m):
            if s > 0:
                model.addConstr(start[s, "F", i] >= start[s - 1, "F", i] + forward[s - 1] + costs["p2p_ms"])
                model.addConstr(start[s - 1, "B", i] >= start[s, "B", i] + backward[s] + costs["p2p_ms"])
    makespan = model.addVariable(0)
    model.addConstr(makespan >= start[0, "B", m - 1] + backward[0])
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


def check_placement(costs, found):
    """Blocks, order and memory of what was printed."""
    stages = range(costs["pp"])
    order = []
    for s in stages:
        run = [k for k, c in enumerate(costs["chain"]) for _ in range(found["placement"][c["name"]][s])]
        assert run, f"stage {s} is empty"
        order += run
    assert order == [k for k, c in enumerate(costs["chain"]) for _ in range(c["count"])], "blocks are missing or out of order"
    for s in stages:
        held = in_flight(costs, s)
        memory = extra(costs, s, "static_gib")
        for c in costs["chain"]:
            blocks, again = found["placement"][c["name"]][s], found["recompute"][c["name"]][s]
            assert 0 <= again <= blocks
            memory += blocks * (held * c["activation_gib"] + c["static_gib"]) - again * held * c["recompute_saves_gib"]
        assert abs(memory - found["memory_gib"][s]) < 1e-6, f"stage {s} holds {memory} GiB"
        assert memory <= costs.get("memory_gib", memory) + 1e-6


def main(program, instances="100", seed="1"):
    rng = random.Random(int(seed))
    num_infeasible = 0
    for index in range(int(instances)):
        costs = random_instance(rng)
        expected, found = solve(costs), weft(program, costs)
        if (expected is None) != (found is None):
            sys.exit(f"instance {index}: HiGHS {expected}, Weft {found and found['makespan_ms']}\n{json.dumps(costs)}")
        if expected is None:
            num_infeasible += 1
            continue
        check_placement(costs, found)
        if not found["optimal"] or abs(found["makespan_ms"] - expected) > TOLERANCE * expected:
            sys.exit(f"instance {index}: HiGHS {expected}, Weft {found['makespan_ms']} ({found['proof']})\n{json.dumps(costs)}")
    print(f"HiGHS and Weft agree on {instances} instances, {num_infeasible} of them without a placement that fits")


if __name__ == "__main__":
    main(*sys.argv[1:])
