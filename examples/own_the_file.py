"""Take a generated file with you: it needs torch and triton, and nothing of attnc.

    python examples/own_the_file.py

Compiles a spec, copies the file that came out into an empty folder, and runs it there in a fresh
Python process that never imports attnc.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import attnc

SPEC = """\
name: my_attention
heads: {q: 4, kv: 1}
head_dim: 64
mask: causal
"""

USE = """\
import sys
import torch
from my_attention import attention, reference

q, k, v = torch.randn(2, 4, 33, 64), torch.randn(2, 1, 33, 64), torch.randn(2, 1, 33, 64)
torch.testing.assert_close(attention(q, k, v), reference(q, k, v), rtol=1e-5, atol=1e-5)
assert not any(name.split(".")[0] == "attnc" for name in sys.modules)
print("ran", attention(q, k, v).shape, "without attnc")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "my_attention.yaml").write_text(SPEC)
        command = [sys.executable, "-m", "attnc", "compile", "my_attention.yaml"]
        here = Path(attnc.__file__).parent.parent  # installed, or the checkout this was started in
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(here)})
        mine = folder / "project"
        mine.mkdir()
        shutil.copy(folder / "generated" / "my_attention.py", mine)
        (mine / "use.py").write_text(USE)
        environment = {"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin"}
        environment |= {"HOME": name, "TRITON_CACHE_DIR": name}
        subprocess.run([sys.executable, "use.py"], cwd=mine, check=True, env=environment)


if __name__ == "__main__":
    main()
