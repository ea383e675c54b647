"""The layer check finds each kind of violation and accepts what is allowed."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402

LAYERS = """\
# a comment
base:
text: base
data: base text
tensor*: base
train*: base data tensor
recipes*: base data
"""


class CheckLayers(unittest.TestCase):
    def violations(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in {"cmake/layers.txt": layers, **files}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            return check_layers.check(Path(folder))

    def assert_accepted(self, path, include):
        self.assertEqual(self.violations({path: f"#include {include}\n"}), [])

    def assert_refused(self, path, include, word):
        found = self.violations({path: f"#pragma once\n#include {include}\n"})
        self.assertEqual(len(found), 1, found)
        self.assertIn(f"{path}:2: includes {include[1:-1]}", found[0])
        self.assertIn(word, found[0])

    def test_accepts_own_folder_base_and_listed_folders(self):
        self.assert_accepted("src/lockstep/data/a.cpp", '"lockstep/data/a.h"')
        self.assert_accepted("src/lockstep/data/a.cpp", '"lockstep/text/a.h"')
        self.assert_accepted("src/lockstep/tensor/a.cpp", '"lockstep/base/error.h"')

    def test_refuses_a_folder_that_is_not_listed_for_it(self):
        self.assert_refused("src/lockstep/text/a.cpp", '"lockstep/data/a.h"', "text/ may not include data/")
        self.assert_refused("src/lockstep/base/a.h", '"lockstep/text/a.h"', "base/ may not include text/")

    def test_may_use_is_not_transitive(self):
        self.assert_refused("src/lockstep/train/a.cpp", '"lockstep/text/a.h"', "train/ may not include text/")

    def test_sub_folders_belong_to_their_folder(self):
        self.assert_refused("src/lockstep/text/deep/er/a.cpp", '"lockstep/data/a.h"', "text/ may not include data/")

    def test_refuses_torch_above_the_line(self):
        self.assert_accepted("src/lockstep/tensor/a.h", "<ATen/core/Tensor.h>")
        for header in ("<ATen/core/Tensor.h>", "<c10/core/ScalarType.h>", "<torch/csrc/api.h>"):
            self.assert_refused("src/lockstep/data/a.cpp", header, "above the libtorch line")

    def test_refuses_umbrella_headers_everywhere(self):
        headers = ["<torch/torch.h>", "<ATen/ATen.h>", "<torch/nn.h>", '"torch/nn/module.h"', "<ATen/Functions.h>"]
        for header in headers:
            for path in ("src/lockstep/tensor/a.cpp", "tests/tensor/a.cpp", "bench/a.cpp"):
                found = self.violations({path: f"  #  include {header}\n"})
                self.assertTrue(any("umbrella" in text for text in found), f"{path} {header}: {found}")

    def test_option_headers_are_free_of_torch_and_open_to_recipes(self):
        self.assert_accepted("src/lockstep/recipes/a.cpp", '"lockstep/train/options.h"')
        self.assert_refused("src/lockstep/recipes/a.cpp", '"lockstep/train/update.h"', "recipes/ may not include train/")
        self.assert_refused("src/lockstep/data/a.cpp", '"lockstep/train/options.h"', "data/ may not include train/")
        self.assert_refused("src/lockstep/train/options.h", "<ATen/core/Tensor.h>", "free of torch")
        self.assert_refused("src/lockstep/train/options.h", '"lockstep/tensor/a.h"', "only option headers")
        self.assert_refused("src/lockstep/recipes/sft_options.h", '"lockstep/data/a.h"', "only option headers")
        self.assert_accepted("src/lockstep/recipes/sft_options.h", '"lockstep/data/options.h"')

    def test_refuses_heavy_headers_in_headers_above_the_line(self):
        for header in ("<nlohmann/json.hpp>", "<yaml-cpp/yaml.h>", "<CLI/CLI.hpp>", "<spdlog/spdlog.h>"):
            self.assert_refused("src/lockstep/data/a.h", header, "belongs into a .cpp file")
            self.assert_accepted("src/lockstep/data/a.cpp", header)

    def test_refuses_relative_includes(self):
        self.assert_refused("src/lockstep/data/a.cpp", '"a.h"', "begins with lockstep/")
        self.assert_accepted("src/lockstep/text/a.cpp", '"lockstep_bridge.h"')
        self.assert_refused("src/lockstep/data/a.cpp", '"lockstep_bridge.h"', "begins with lockstep/")

    def test_refuses_a_folder_that_is_not_in_the_table(self):
        found = self.violations({"src/lockstep/extra/a.h": "#pragma once\n"})
        self.assertEqual(found, ["src/lockstep/extra: has sources and is not listed in cmake/layers.txt"])

    def test_refuses_a_table_with_upward_or_crossing_arrows(self):
        self.assertIn("is not listed above it", self.violations({}, "base:\ntext: data\ndata: base\n")[0])
        self.assertIn("above the libtorch line", self.violations({}, "base:\ntensor*: base\ndata: tensor\n")[0])
        self.assertIn("has no colon", self.violations({}, "base\n")[0])

    def test_comments_are_not_includes(self):
        self.assertEqual(self.violations({"src/lockstep/text/a.h": '// #include "lockstep/data/a.h"\n'}), [])


if __name__ == "__main__":
    unittest.main()
