"""Plants long files in a small tree and expects check_lengths to find each of them, and nothing else."""

import pathlib
import tempfile
import unittest

from check_lengths import MOST_LINES, violations


class CheckLengths(unittest.TestCase):
    def found(self, lines_of):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, num_lines in lines_of.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x\n" * num_lines)
            return [line.split(":")[0] for line in violations(root)]

    def test_files_of_the_allowed_length_pass(self):
        self.assertEqual(self.found({"weft/spec/a.cpp": MOST_LINES, "bench/a.h": 1, "tests/a.py": 0}), [])

    def test_longer_files_are_found_in_every_folder(self):
        for name in ("weft/spec/a.cpp", "weft/comm/mpi/a.h", "weft/comm/tests.cmake", "tests/support/a.h", "tests/a.py",
                     "bench/a.cpp", "bench/CMakeLists.txt"):
            self.assertEqual(self.found({name: MOST_LINES + 1}), [name])

    def test_data_may_be_long(self):
        self.assertEqual(self.found({"tests/golden/a.json": 5000, "weft/README.md": 5000, "docs/a.cpp": 5000}), [])


if __name__ == "__main__":
    unittest.main()
