"""Builds the families of the manual's add-a-family.md against an installed Weft, and runs them: from describe to training.
It compiles the program that your-own-program.md writes in C++, too.

    check_own_family.py SOURCE_FOLDER BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("CMAKE_GENERATOR", "Ninja")  # which scripts/setup installs, and make it does not
SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
FAMILY = SOURCE / "tests/own_family/llava"
MODEL = FAMILY / "tiny-llava.json"
BESIDE = SOURCE / "tests/own_family/beside"

# A library that says that it is of another Weft, in plain C: what is compared before anything else is used.
OTHER = """
struct library { const char* version; unsigned long long layout; void (*list)(void*); };
static const struct library other = {"%s", 1, 0};
const struct library* weft_family_library(void) { return &other; }
"""


def run(*command, **settings):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **settings)


def must(*command, **settings):
    done = run(*command, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def linear(width_in, width_out):
    return width_in * width_out + width_out


def expected_parameters():
    """By hand, from the sizes of the configuration: of CLIP's tower two of three layers are run."""
    v = 48
    layer = 4 * linear(v, v) + linear(v, 96) + linear(96, v) + 4 * v
    vision = 3 * 14 * 14 * v + v + 17 * v + 2 * v + 2 * layer + linear(v, 64) + linear(64, 64)
    w = 64
    decoder = w * (64 + 2 * 32) + w * w + 3 * w * 128 + 2 * w
    return vision, 2 * 256 * w + 4 * decoder + w


def refusal(weft, libraries):
    done = run(weft, "describe", "--model", MODEL, env=os.environ | {"WEFT_FAMILIES": str(libraries)})
    expect(done.returncode != 0, f"a model was described with {libraries}")
    return done.stderr


def check_refusals(weft, folder, version):
    message = refusal(weft, "")
    expect("'llava'" in message and "internvl" in message and "add-a-family.md" in message, message)
    message = refusal(weft, folder / "none.so")
    expect("none.so" in message and "WEFT_FAMILIES" in message, message)
    for claimed, words in (("0.0.9", ["0.0.9", version, "Build it again"]), (version, ["other headers", version])):
        source, library = folder / "other.c", folder / f"other-{claimed}.so"
        source.write_text(OTHER % claimed)
        must(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source)
        message = refusal(weft, library)
        expect(library.name in message and all(word in message for word in words), message)
    source.write_text("int nothing;\n")
    must(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", folder / "empty.so", source)
    expect("weft_family_library" in refusal(weft, folder / "empty.so"), "a library without families was taken")


def build(folder, source):
    must("cmake", "-S", source, "-B", folder / source.name, f"-DCMAKE_PREFIX_PATH={folder / 'weft'}", "-DCMAKE_BUILD_TYPE=Release")
    must("cmake", "--build", folder / source.name)


def train_text(weft, folder, name, model, space, environment):
    """The losses of a run with a model of text, by step."""
    plan, own = folder / f"{name}.json", {"env": os.environ | environment}
    (folder / "space.yaml").write_text(space + "\nschedule: [1f1b]\n")
    (folder / "short.yaml").write_text("global_batch_samples: 8\nsequence_tokens: 48\nprecision: fp32\noptimizer: adamw\n")
    must(weft, "plan", "--model", model, "--cluster", "local_cpu", "--workload", folder / "short.yaml", "--space",
         folder / "space.yaml", "--out", plan, **own)
    must(weft, "train", "--plan", plan, "--config", BESIDE / "train.yaml", "--run", folder / f"run-{name}", **own)
    lines = (folder / f"run-{name}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]


def check_own_layers(weft, folder):
    """Layers of a library of their own: those that do as transformer layers do give the same losses as these; others are the
    same by every plan."""
    build(folder, BESIDE)
    own = {"WEFT_FAMILIES": str(folder / "beside/libbeside.so"), "WEFT_LAYERS": str(folder / "beside/libbeside_layers.so")}
    config = json.loads((BESIDE / "tiny-beside.json").read_text())
    plain, in_turn = folder / "plain.json", folder / "in-turn.json"
    plain.write_text(json.dumps(config | {"model_type": "llama"}))
    in_turn.write_text(json.dumps(config | {"layers": "in turn"}))
    one, several = "llm: {tp: 1, pp: 1, dp: 8, cp: 1}", "llm: {tp: 2, pp: 2, dp: 2, cp: 1}"
    known = train_text(weft, folder, "known", plain, one, {})
    expect(len(known) == 6 and train_text(weft, folder, "turn", in_turn, one, own) == known, "layers in turn differ from transformer layers")
    alone = train_text(weft, folder, "alone", BESIDE / "tiny-beside.json", one, own)
    spread = train_text(weft, folder, "spread", BESIDE / "tiny-beside.json", several, own)
    expect(all(abs(a - b) < 1e-4 for a, b in zip(alone, spread, strict=True)), f"{alone} by dp alone, {spread} by tp, pp and dp")
    expect(alone[-1] < alone[0] - 0.1, f"the loss did not fall: {alone}")
    expect(all(abs(a - b) > 1e-3 for a, b in zip(alone[1:], known[1:])), "layers beside each other are those in turn")

    families = {"env": os.environ | {"WEFT_FAMILIES": own["WEFT_FAMILIES"]}}
    done = run(weft, "train", "--plan", folder / "alone.json", "--config", BESIDE / "train.yaml", "--run", folder / "none", **families)
    expect(done.returncode != 0 and "'beside'" in done.stderr and "WEFT_LAYERS" in done.stderr, done.stderr)
    families["env"]["WEFT_LAYERS"] = own["WEFT_FAMILIES"]
    done = run(weft, "train", "--plan", folder / "alone.json", "--config", BESIDE / "train.yaml", "--run", folder / "none", **families)
    expect(done.returncode != 0 and "weft_layer_library" in done.stderr, done.stderr)


def block_of(page, language):
    """The one block of a page in a language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    expect(len(blocks) == 1, f"{page} has {len(blocks)} blocks of {language}")
    return blocks[0]


def check_program_in_code(folder):
    """The program that the manual writes in C++ is compiled as the manual says, and is the one that the manual has as a file."""
    source = folder / "regression"
    source.mkdir()
    page = SOURCE / "docs/manual/your-own-program.md"
    (source / "regression.cpp").write_text(block_of(page, "cpp"))
    (source / "CMakeLists.txt").write_text(block_of(page, "cmake"))
    must("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={folder / 'weft'}")
    must("cmake", "--build", source / "build")
    must(source / "build/regression", cwd=folder)
    written, expected = folder / "regression.txt", SOURCE / "docs/manual/regression.txt"
    expect(written.read_text() == expected.read_text(), f"the manual's code writes\n{written.read_text()}")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        must("cmake", "--install", BUILD, "--prefix", folder / "weft")
        weft = folder / "weft/bin/weft"
        check_program_in_code(folder)
        build(folder, FAMILY)
        library = folder / "llava/libllava.so"
        own = {"env": os.environ | {"WEFT_FAMILIES": str(library)}}

        version = must(weft, "--version").split()[-1]
        check_refusals(weft, folder, version)
        expect("known already" in refusal(weft, f"{library}:{library}"), "a family was taken twice")

        described = json.loads(must(weft, "describe", "--model", MODEL, "--json", **own))
        modules = described["parameters"]
        expect((modules["vision"], modules["llm"]) == expected_parameters(), f"parameters are {modules}")

        if not (folder / "weft/lib/libweft_runtime.so").exists():
            return
        plan, space = folder / "plan.json", folder / "space.yaml"
        space.write_text("llm: {tp: 2, pp: 2, dp: 2, cp: 1}\nvision: {placement: inline}\nschedule: [1f1b]\n")
        must(weft, "plan", "--model", MODEL, "--cluster", "local_cpu", "--workload", "tiny_vl", "--space", space, "--out", plan, **own)
        must(weft, "check", "--plan", plan, **own)
        must(weft, "simulate", "--plan", plan, **own)
        trained = json.loads(must(weft, "train", "--plan", plan, "--config", FAMILY / "train.yaml", "--run", folder / "run", "--json", **own))
        expect(trained["last"]["loss"] < trained["first_loss"] - 0.1, f"the loss did not fall: {trained}")
        check_own_layers(weft, folder)


if __name__ == "__main__":
    main()
