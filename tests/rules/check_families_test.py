"""Plants lines in a small tree and expects check_families to find those that name a family, and nothing else."""

import pathlib
import tempfile
import unittest

from check_families import violations

TREE = {
    "weft/families/registry.cpp": "#define ALL(add) add(gpt2) add(qwen2_vl) add(internvl)\n",
    "weft/families/gpt2/gpt2.cpp": "",
    "weft/families/qwen2_vl/a.cpp": "",
    "weft/families/internvl/a.cpp": "",
    "scenarios/models/qwen2-vl-7b.json": "{}",
    "weft/plan/empty.cpp": "",
}


class CheckFamilies(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (TREE | files).items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [":".join(line.split(":")[:2]) for line in violations(root)]

    def test_names_are_found_however_they_are_written(self):
        for line in ('if (family == "qwen2_vl") f();', "bool is_qwen2vl = true;", "constexpr int kQwen2Vl = 1;",
                     'return "Qwen2-VL";', "int gpt2_layers;", "enum { kInternVl };", 'say("Qwen");', 'say("GPT-2");'):
            self.assertEqual(self.found({"weft/cost/a.cpp": "int x;\n" + line + "\n"}), ["weft/cost/a.cpp:2"], line)

    def test_shared_parts_of_families_name_none_either(self):
        self.assertEqual(self.found({"weft/families/parts/a.cpp": "int gpt2;\n"}), ["weft/families/parts/a.cpp:1"])

    def test_a_familys_own_folder_names_it(self):
        self.assertEqual(self.found({"weft/families/gpt2/b.cpp": "int gpt2;\n"}), [])

    def test_comments_tests_scenarios_and_other_systems_are_free(self):
        self.assertEqual(self.found({
            "weft/cost/a.cpp": "int x;  // as GPT-2 has it\n/* GPT-2\n and Qwen */ int y;\n",
            "weft/cost/a_test.cpp": "int gpt2;\n",
            "weft/cli/a.cpp": 'say("weft plan --model qwen2-vl-7b");\n',
            "weft/exchange/a.cpp": 'say("qwen2vl");\n',
        }), [])

    def test_other_words_are_no_families(self):
        self.assertEqual(self.found({"weft/cost/a.cpp": "int gpt; int internal; int vl; int qw2;\n"}), [])


if __name__ == "__main__":
    unittest.main()
