"""Pictures to patches and sound to features, against transformers' processors, on one core.

    env as for tests/parity/make_media_fixtures.py
    cmake --build build --target weft_media_bench
    env/bin/python bench/media_bench.py [--program build/bench/weft_media_bench] [--rounds 7]

Both sides take turns, and each says its processor time; the table has medians of all repetitions and their ratio.
transformers runs with one thread on pictures that Pillow has decoded, or decodes them itself. Features are compared twice:
as Qwen2.5-Omni's processor makes them, which pads every clip to 300 s, and for a chunk as long as the clip, which leaves
the padding out.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import soundfile
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor, WhisperFeatureExtractor
from transformers.image_utils import load_image


def photograph(side):
    """Slopes, edges and some noise: compressed, about as large as a photograph."""
    random = np.random.default_rng(side)
    small = random.uniform(0, 255, (side // 16, side // 16, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((side, side), Image.BICUBIC), dtype=np.float64)
    return Image.fromarray(np.clip(smooth + random.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8))


def timed(work, repetitions):
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/weft_media_bench")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor()
    whole = WhisperFeatureExtractor(feature_size=128, chunk_length=300)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cases = []
        for side in (448, 1024):
            picture = photograph(side)
            jpeg, png = str(folder / f"{side}.jpg"), str(folder / f"{side}.png")
            picture.save(jpeg, quality=90)
            picture.save(png, compress_level=1)
            decoded = load_image(png)
            cases.append((f"decoded {side} x {side} to patches", "patches", png, 20,
                          lambda decoded=decoded: processor(images=[decoded], return_tensors="pt")))
            cases.append((f"JPEG {side} x {side} to patches", "picture", jpeg, 20,
                          lambda jpeg=jpeg: processor(images=[load_image(jpeg)], return_tensors="pt")))
        random = np.random.default_rng(1)
        for seconds in (10, 30):
            wave = (0.3 * np.sin(np.arange(seconds * 16000) * 0.1) + random.normal(0, 0.05, seconds * 16000)).astype(np.float32)
            path = str(folder / f"{seconds}.wav")
            soundfile.write(path, wave, 16000, subtype="FLOAT")
            exact = WhisperFeatureExtractor(feature_size=128, chunk_length=seconds)
            for name, extractor, repetitions in (("without padding", exact, 10), ("padded to 300 s", whole, 2)):
                cases.append((f"{seconds} s at 16 kHz, {name}", "features", path, repetitions,
                              lambda wave=wave, extractor=extractor: extractor(
                                  wave, sampling_rate=16000, padding="max_length", return_attention_mask=True,
                                  return_tensors="pt")))
        print(f"{'':40} {'transformers':>14} {'weft':>10} {'ratio':>7}")
        for name, kind, path, repetitions, theirs in cases:
            timed(theirs, 2)
            their_times, our_times = [], []
            for _ in range(arguments.rounds):
                their_times += timed(theirs, repetitions)
                output = subprocess.run([arguments.program, kind, path, str(repetitions + 2)], check=True, capture_output=True,
                                        text=True).stdout
                our_times += [float(line) for line in output.split()][2:]
            a, b = statistics.median(their_times), statistics.median(our_times)
            print(f"{name:40} {a:11.2f} ms {b:7.2f} ms {a / b:7.2f}")


if __name__ == "__main__":
    main()
