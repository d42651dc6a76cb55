"""Plants forbidden lines in a small tree and expects check_includes to find each of them, and nothing else."""

import pathlib
import tempfile
import unittest

from check_includes import violations

FOLDERS = "base\nspec\nmesh\nplan spec mesh\n--- LibTorch ---\ntensor mesh\nengine tensor\n"


class CheckIncludes(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"folders.txt": FOLDERS, **files}.items():
                path = root / (name if name.startswith("tests/") else f"weft/{name}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [line.split(": ", 1)[1] for line in violations(root)]

    def test_allowed_edges_pass(self):
        self.assertEqual(self.found({
            "plan/a.h": '#include "weft/spec/model.h"\n#include "weft/base/error.h"\n#include "weft/plan/b.h"\n',
            "tensor/a.cpp": '#include <ATen/core/Tensor.h>\n#include "weft/mesh/mesh.h"\n',
            "engine/a.cpp": '#include "weft/mesh/mesh.h"\n',
            "cli/a.cpp": '#include "weft/plan/plan.h"\n#include "weft/engine/runtime_api.h"\nfmt::print("x");\n',
        }), [])

    def test_support_of_tests_follows_the_folders(self):
        self.assertEqual(self.found({
            "tests/support/spec/a.h": '#include "weft/spec/model.h"\n',
            "tests/support/plan/b.cpp": '#include "tests/support/spec/a.h"\n#include "weft/mesh/mesh.h"\n',
            "tests/support/draws.h": "",
            "plan/a_test.cpp": '#include "tests/support/draws.h"\n#include "tests/support/plan/b.h"\n',
        }), [])
        self.assertEqual(self.found({"tests/support/spec/a.h": '#include "weft/mesh/mesh.h"\n'}), ["spec may not use mesh"])
        self.assertEqual(self.found({"tests/support/mesh/a.h": '#include "tests/support/spec/a.h"\n'}),
                         ["mesh may not use spec"])
        self.assertEqual(self.found({"mesh/a_test.cpp": '#include "tests/support/plan/a.h"\n'}), ["mesh may not use plan"])
        self.assertEqual(self.found({"plan/a.cpp": '#include "tests/support/plan/a.h"\n'}),
                         ["only tests and their headers may include tests/support"])
        self.assertEqual(self.found({"tests/support/other/a.h": ""}), ["the folder other is not in weft/folders.txt"])

    def test_forbidden_edges_are_found(self):
        self.assertEqual(self.found({"spec/a.h": '#include "weft/mesh/mesh.h"\n'}), ["spec may not use mesh"])
        self.assertEqual(self.found({"base/a.cpp": '#include "weft/spec/x.h"\n'}), ["base may not use spec"])
        self.assertEqual(self.found({"plan/a.h": "\n# include <torch/version.h>\n"}),
                         ["plan is above the LibTorch line and includes torch"])
        self.assertEqual(self.found({"cli/a.h": '#include "weft/engine/trainer.h"\n'}),
                         ["cli is torch-free and may include only an *_api.h of engine"])
        self.assertEqual(self.found({"extra/a.h": ""}), ["the folder extra is not in weft/folders.txt"])
        self.assertEqual(self.found({"spec/a.cpp": '#include "weft/mesh/layout2.hpp"\n'}), ["spec may not use mesh"])
        self.assertEqual(self.found({"spec/a.cpp": '#include "../mesh/a.h"\n'}), ["includes of the project start with weft/"])
        for line in ("std::cout << 1;", "std::cerr << 1;", 'std::fprintf(stderr, "x");', "std::abort();", 'fmt::print("x");'):
            self.assertEqual(self.found({"spec/a.cpp": f"  {line}\n"}), ["only cli prints and exits"])


if __name__ == "__main__":
    unittest.main()
