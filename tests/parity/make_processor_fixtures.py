"""What transformers' processors make of videos whose frames stand apart, of tiles, and of whole conversations with them.

    python3 -m venv env
    env/bin/pip install torch==2.11.0 torchvision==0.26.0 transformers==5.17.0 "pillow<13" soundfile
    env/bin/python tests/parity/make_processor_fixtures.py            # writes tests/parity/media/processors.json
    env/bin/python tests/parity/make_processor_fixtures.py --check    # computes it anew and compares

Pictures are the files of media/, and those by the formula of make_media_fixtures.py. Sizes and numbers of frames are as the
processors' own functions give them, values are checksums.
"""

import argparse
import json
import pathlib
import zlib

import numpy as np
import soundfile
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer
from transformers import (Qwen2_5_VLProcessor, Qwen2_5OmniProcessor, Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor,
                          WhisperFeatureExtractor)
from transformers.image_utils import load_image
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor, get_optimal_tiled_canvas
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor, smart_resize

HERE = pathlib.Path(__file__).parent
MEDIA = HERE / "media"
FRAMES = ["plain.jpg", "alpha.png", "grey.png", "palette.png", "plain.png", "lossless.webp", "lossy.webp"]


# Inks, turned by EXIF, with alpha of every kind, grey of every depth, one pixel, one row and one column.
AWKWARD = ["ink.jpg", "transformed_ink.jpg", "turned_3.jpg", "turned_8.jpg", "turned.png", "turned.webp", "alpha.png", "grey_alpha.png",
           "palette_alpha.png", "deep_alpha.png", "lossy_alpha.webp", "grey.jpg", "black_white.png", "deep_grey.png",
           "one_pixel.jpg", "one_pixel.png", "row.png", "column.jpg"]


def drawn(height, width, seed=0):
    """As make_media_fixtures.py has it, which needs more packages."""
    y, x, c = (v.astype(np.uint64) for v in np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij"))
    noise = (x * 2654435761 + y * 40503 + c * 97 + seed * 131) % 65521
    noise = noise * noise % 65521
    kind = (x // 16 + y // 16) % 3
    value = np.where(kind == 0, noise % 256, np.where(kind == 1, (x * 5 + y * 3 + c * 60) % 256, ((x // 7 + y // 5 + c) % 2) * 255))
    return value.astype(np.uint8)


def checksum(tensor):
    return zlib.crc32(np.ascontiguousarray(tensor.numpy()).tobytes())


def apart_sizes():
    random = np.random.default_rng(11)
    limits = [(128 * 32 * 32, 32 * 32 * 768, 0), (4096, 25165824, 0), (72, 1440, 0), (65536, 16777216, 768), (4096, 25165824, 9)]
    expected = []
    for i in range(250):
        frames, height, width = (int(2 ** random.uniform(*r)) for r in ((0, 8), (0, 12), (0, 12)))
        low, high, cap = limits[i % len(limits)]
        try:
            most = high
            if cap:
                most = max(min(cap * 32 * 32, high // frames), int(low * 1.05)) * frames
            size = list(smart_resize(frames, height, width, 2, 32, low, most))
        except ValueError:
            size = None
        expected.append([frames, height, width, low, high, cap, size])
    return expected


def chosen_frames():
    """Of Qwen3-VL from the first to the last, of InternVL in the middle of equal parts."""
    random = np.random.default_rng(12)
    apart, middles = Qwen3VLVideoProcessor(), InternVLVideoProcessor()
    expected = []
    for _ in range(60):
        total = int(2 ** random.uniform(1, 11))
        wanted = int(random.integers(1, total + 1))
        metadata = transformers.video_utils.VideoMetadata(total_num_frames=total)
        expected.append([total, wanted, apart.sample_frames(metadata, num_frames=wanted, fps=None).tolist(),
                         middles.sample_frames(metadata, num_frames=wanted).tolist()])
    return expected


def apart_videos():
    expected = []
    for frames, height, width in [(2, 60, 90), (3, 60, 90), (5, 300, 500), (4, 9, 40), (7, 33, 47)]:
        video = torch.stack([torch.from_numpy(drawn(height, width, i)).permute(2, 0, 1) for i in range(frames)])
        out = Qwen3VLVideoProcessor()(videos=[video], return_tensors="pt", do_sample_frames=False)
        expected.append({"frames": frames, "height": height, "width": width, "grid": out["video_grid_thw"][0].tolist(),
                         "patches": checksum(out["pixel_values_videos"])})
    return expected


def tile_grids():
    random = np.random.default_rng(13)
    expected = []
    cases = [(448, 448), (896, 448), (100, 100), (1, 1), (1, 300), (300, 1), (672, 448), (448, 672), (1344, 1344)]
    cases += [tuple(int(2 ** random.uniform(0, 12)) for _ in range(2)) for _ in range(200)]
    for i, (height, width) in enumerate(cases):
        side, low, high = [(448, 1, 12), (24, 1, 12), (384, 2, 6), (448, 1, 1), (336, 3, 40)][i % 5]
        columns, rows = get_optimal_tiled_canvas((height, width), (side, side), low, high)
        expected.append([height, width, side, low, high, rows, columns])
    return expected


def as_patches(tiles, patch, merge):
    """Tiles [count, 3, side, side] as rows of patches, merged square by merged square."""
    count, channels, side, _ = tiles.shape
    units = side // (patch * merge)
    split = tiles.reshape(count, channels, units, merge, patch, units, merge, patch)
    return split.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(-1, channels * patch * patch)


def cut_tiles():
    expected = []
    for height, width, side, patch in [(60, 90, 24, 4), (23, 37, 24, 4), (24, 24, 24, 3), (300, 500, 56, 14), (500, 120, 56, 7)]:
        processor = GotOcr2ImageProcessor(size={"height": side, "width": side}, crop_to_patches=True, max_patches=9)
        out = processor(images=[Image.fromarray(drawn(height, width))], return_tensors="pt")
        expected.append({"height": height, "width": width, "side": side, "patch": patch, "tiles": len(out["pixel_values"]),
                         "patches": checksum(as_patches(out["pixel_values"], patch, 2))})
    return expected


def tokenizer_with(names):
    form = json.loads((HERE / "text/qwen2_form/tokenizer.json").read_text())
    for number, name in enumerate(names):
        form["added_tokens"].append(form["added_tokens"][0] | {"id": 428 + number, "content": name})
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(form)))


def parts(question):
    """A user's text with <image> and <video> in it, as parts."""
    made = []
    for kind in ("image", "video", "audio"):
        question = question.replace(f"<{kind}>", f"\0{kind}\0")
    for piece in question.split("\0"):
        if piece in ("image", "video", "audio"):
            made.append({"type": piece})
        elif piece:
            made.append({"type": "text", "text": piece})
    return made


CONVERSATIONS = [
    {"question": "<video> What moves?", "images": [], "videos": [FRAMES[:4]], "fps": 2.0},
    {"question": "First <video>then <image>", "images": ["turned_6.jpg"], "videos": [FRAMES[:5]], "fps": 1.5},
    {"question": "<video>and<video>.", "images": [], "videos": [FRAMES[:2], FRAMES[:7]], "fps": 24.0},
    {"question": "<image>\n<image> Both?", "images": ["row.png", "plain.jpg"], "videos": [], "fps": 24.0},
    {"question": "<image>word <video>\nword<image>", "images": ["column.jpg", "grey.png"], "videos": [FRAMES[:3]], "fps": 30.0},
    {"question": "<image>" * len(AWKWARD) + "All?", "images": AWKWARD, "videos": [], "fps": 24.0, "system": "Look <b>closely</b>.\n"},
]


def converse(make, case, template):
    system = [{"role": "system", "content": case["system"]}] if "system" in case else []
    text = make.tokenizer.apply_chat_template(
        system + [{"role": "user", "content": parts(case["question"])}, {"role": "assistant", "content": "Yes, frame 2."}],
        chat_template=(HERE / "text/templates" / template).read_text(), tokenize=False)
    inputs = {}
    if case["images"]:
        inputs["images"] = [load_image(str(MEDIA / name)) for name in case["images"]]
    if case["videos"]:
        videos = [torch.stack([torch.tensor(np.asarray(load_image(str(MEDIA / name)))).permute(2, 0, 1) for name in frames])
                  for frames in case["videos"]]
        metadata = [{"total_num_frames": len(v), "fps": case["fps"], "frames_indices": list(range(len(v)))} for v in videos]
        inputs |= {"videos": videos, "do_sample_frames": False, "video_metadata": metadata}
    if case.get("audios"):
        inputs["audio"] = [soundfile.read(MEDIA / name)[0] for name in case["audios"]]
    return make(text=[text], return_tensors="pt", **inputs)


def vision_tokenizer():
    names = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|audio_bos|>",
             "<|audio_eos|>", "<|AUDIO|>"]
    tokenizer = tokenizer_with(names)
    for name, token in (("image", "<|image_pad|>"), ("video", "<|video_pad|>"), ("audio", "<|AUDIO|>"), ("vision_bos", "<|vision_start|>"),
                        ("vision_eos", "<|vision_end|>"), ("audio_bos", "<|audio_bos|>"), ("audio_eos", "<|audio_eos|>")):
        setattr(tokenizer, f"{name}_token", token)
        setattr(tokenizer, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
    return tokenizer


def with_patches(case, out):
    entry = case | {"ids": out["input_ids"][0].tolist()}
    if case["images"]:
        entry |= {"image_patches": checksum(out["pixel_values"]), "image_grids": out["image_grid_thw"].tolist()}
    if case["videos"]:
        entry |= {"video_patches": checksum(out["pixel_values_videos"]), "video_grids": out["video_grid_thw"].tolist()}
    return entry


def family_conversations():
    """Of the families whose videos are one block of tokens: Qwen2-VL, Qwen2.5-VL and Qwen2.5-Omni."""
    sizes = {"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2}
    images = Qwen2VLImageProcessor(**sizes, min_pixels=72, max_pixels=720)
    videos = Qwen2VLVideoProcessor(**sizes, min_pixels=72, max_pixels=144)
    tokenizer = vision_tokenizer()
    sound = WhisperFeatureExtractor(feature_size=9, chunk_length=1, return_attention_mask=True)
    expected = {}
    for name, make in (("qwen2_vl", Qwen2VLProcessor(images, tokenizer, videos)),
                       ("qwen2_5_vl", Qwen2_5_VLProcessor(images, tokenizer, videos)),
                       ("qwen2_5_omni", Qwen2_5OmniProcessor(images, videos, sound, tokenizer))):
        cases = CONVERSATIONS
        if name == "qwen2_5_omni":
            # Its processor has limits of its own for videos, which no folder can change.
            cases = [case for case in CONVERSATIONS if not case["videos"]] + [{"question": "<audio>word<image> <audio>?", "images": ["ink.jpg"], "videos": [], "fps": 24.0,
                              "audios": ["plain.wav", "deep.wav"]}]
        expected[name] = [with_patches(case, converse(make, case, "vision_parts.jinja")) for case in cases]
    return expected


def apart_conversations():
    tokenizer = tokenizer_with(["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
    sizes = {"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2}
    make = Qwen3VLProcessor(
        Qwen2VLImageProcessor(**sizes, size={"shortest_edge": 72, "longest_edge": 720}, image_mean=[0.5] * 3, image_std=[0.5] * 3),
        tokenizer, Qwen3VLVideoProcessor(**sizes, size={"shortest_edge": 72, "longest_edge": 1440}))
    return [with_patches(case, converse(make, case, "vision_parts.jinja")) for case in CONVERSATIONS]


def tile_conversations():
    tokenizer = tokenizer_with(["<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"])
    for name, token in (("start_image", "<img>"), ("end_image", "</img>"), ("context_image", "<IMG_CONTEXT>"), ("video", "<video>")):
        setattr(tokenizer, f"{name}_token", token)
        setattr(tokenizer, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
    size = {"height": 24, "width": 24}
    colours = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    make = InternVLProcessor(GotOcr2ImageProcessor(size=size, max_patches=6, **colours), tokenizer,
                             InternVLVideoProcessor(size=size, **colours), image_seq_length=9)
    expected = []
    for case in CONVERSATIONS:
        if len({len(frames) for frames in case["videos"]}) > 1:
            continue  # which this processor does not take in one call
        out = converse(make, case, "tile_parts.jinja")
        tiles = out["pixel_values"]
        expected.append(case | {"ids": out["input_ids"][0].tolist(), "tiles": len(tiles), "patches": checksum(as_patches(tiles, 4, 2))})
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    document = {make.__name__: make() for make in (apart_sizes, chosen_frames, apart_videos, tile_grids, cut_tiles,
                                                   apart_conversations, tile_conversations, family_conversations)}
    path = MEDIA / "processors.json"
    if arguments.check:
        assert json.loads(path.read_text()) == json.loads(json.dumps(document)), "processors.json differs"
        print("all as committed")
        return
    lines = json.dumps(document, separators=(",", ":"))
    path.write_text(lines.replace("},", "},\n").replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
