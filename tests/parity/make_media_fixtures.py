"""Pictures and sounds of awkward kinds, and what Pillow, transformers and soundfile make of them.

    python3 -m venv env
    env/bin/pip install torch==2.11.0 torchvision==0.26.0 transformers==5.17.0 "pillow<13" soundfile librosa
    env/bin/python tests/parity/make_media_fixtures.py                  # writes tests/parity/media
    env/bin/python tests/parity/make_media_fixtures.py --check          # computes the expectations of the files anew

Pictures are as transformers' load_image gives them, patches as Qwen2-VL's default processor (torchvision's) makes them,
features as the feature extractor of Qwen2.5-Omni does. media/expected.json has sizes and checksums; NAME.rgb the pixels
and NAME.f32 the samples or features themselves, where they are small.
"""

import argparse
import io
import json
import math
import pathlib
import struct
import zlib

import librosa
import numpy as np
import soundfile
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor, WhisperFeatureExtractor
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

FOLDER = pathlib.Path(__file__).parent / "media"
KEPT_PIXELS = 4000  # a picture with more is kept as a checksum only


def drawn(height, width, seed=0):
    """A picture by a formula that the tests have, too: edges, slopes and noise."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    y, x, c = (v.astype(np.uint64) for v in (y, x, c))
    noise = (x * 2654435761 + y * 40503 + c * 97 + seed * 131) % 65521
    noise = noise * noise % 65521
    slope = x * 5 + y * 3 + c * 60
    edge = ((x // 7 + y // 5 + c) % 2) * 255
    kind = (x // 16 + y // 16) % 3
    return np.where(kind == 0, noise % 256, np.where(kind == 1, slope % 256, edge)).astype(np.uint8)


def tone(count, kind, rate=16000):
    """A sound by a formula, float32."""
    t = np.arange(count, dtype=np.float64)
    if kind == "chirp":
        return (0.5 * np.sin(2 * math.pi * (200 * t / rate + 900 * (t / rate) ** 2))).astype(np.float32)
    if kind == "noise":
        n = (t.astype(np.uint64) * 2654435761 + 12345) % 65521
        return ((n * n % 65521).astype(np.float64) / 65521 - 0.5).astype(np.float32)
    if kind == "click":
        wave = np.zeros(count, np.float32)
        wave[-1] = 0.9
        return wave
    if kind == "quiet":
        return (1e-4 * np.sin(2 * math.pi * 440 * t / rate) + 3e-6 * tone(count, "noise")).astype(np.float32)
    return np.zeros(count, np.float32)


def exif(orientation, little=True):
    order, mark = ("<", b"II*\0") if little else (">", b"MM\0*")
    entries = [(0x0100, 4, 1, 7), (0x0112, 3, 1, orientation)]
    body = mark + struct.pack(order + "I", 8) + struct.pack(order + "H", len(entries))
    for tag, kind, count, value in entries:
        body += struct.pack(order + "HHI", tag, kind, count)
        body += struct.pack(order + ("HH" if kind == 3 else "I"), *((value, 0) if kind == 3 else (value,)))
    return b"Exif\0\0" + body + b"\0\0\0\0"


def png(width, height, bits, colours, rows, extra=b"", interlace=0):
    """A PNG file of raw rows, for kinds that Pillow does not write."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, interlace)
    body = b"".join(b"\0" + row for row in rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")


def picture_files():
    """Name to bytes."""
    files = {}

    def save(name, image, **settings):
        out = io.BytesIO()
        kind = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.rsplit(".", 1)[1]]
        image.save(out, kind, **settings)
        files[name] = out.getvalue()

    colour = Image.fromarray(drawn(23, 37))
    save("plain.jpg", colour, quality=90)
    save("full_chroma.jpg", colour, quality=95, subsampling=0)
    save("half_chroma.jpg", colour, quality=70, subsampling=1)
    save("progressive.jpg", colour, quality=80, progressive=True)
    save("grey.jpg", colour.convert("L"), quality=85)
    save("ink.jpg", colour.convert("CMYK"), quality=90)
    save("one_pixel.jpg", Image.fromarray(drawn(1, 1)), quality=90)
    save("column.jpg", Image.fromarray(drawn(61, 1)), quality=90)
    for orientation in range(1, 9):
        save(f"turned_{orientation}.jpg", colour, quality=90, exif=exif(orientation, little=orientation % 2 == 0))
    save("turned_9.jpg", colour, quality=90, exif=exif(9))
    # YCCK: the same, with Adobe's mark saying that the colours are a transformed ink.
    ink = bytearray(files["ink.jpg"])
    at = ink.find(b"Adobe")
    ink[at + 11] = 2
    files["transformed_ink.jpg"] = bytes(ink)
    # RGB without a transform.
    plain = bytearray(files["full_chroma.jpg"])
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    files["untransformed.jpg"] = bytes(plain[:2]) + adobe + bytes(plain[2:])

    alpha = np.dstack([drawn(23, 37), drawn(23, 37, 5)[:, :, 0]])
    save("plain.png", colour)
    save("alpha.png", Image.fromarray(alpha))
    save("grey.png", colour.convert("L"))
    save("grey_alpha.png", Image.fromarray(alpha).convert("LA"))
    save("black_white.png", colour.convert("1"))
    save("palette.png", colour.quantize(11))
    save("palette_alpha.png", colour.quantize(11), transparency=3)
    save("turned.png", colour, exif=exif(6))
    save("one_pixel.png", Image.fromarray(drawn(1, 1)))
    save("row.png", Image.fromarray(drawn(1, 150)))
    words = drawn(9, 13).astype(">u2") * 257 + drawn(9, 13, 3)
    files["deep.png"] = png(13, 9, 16, 2, [row.astype(">u2").tobytes() for row in words])
    files["deep_grey.png"] = png(13, 9, 16, 0, [(row[:, 0] // 128).astype(">u2").tobytes() for row in words])
    four = np.dstack([words, words[:, :, :1]])
    files["deep_alpha.png"] = png(13, 9, 16, 6, [row.astype(">u2").tobytes() for row in four])
    files["deep_grey_alpha.png"] = png(13, 9, 16, 4, [row[:, :2].astype(">u2").tobytes() for row in words])
    for bits in (2, 4):
        per_byte = 8 // bits
        grey = drawn(9, 16)[:, :, 0] >> (8 - bits)
        packed = [bytes(sum(int(v) << (bits * (per_byte - 1 - i)) for i, v in enumerate(row[k : k + per_byte]))
                        for k in range(0, 16, per_byte)) for row in grey]
        files[f"grey_{bits}_bits.png"] = png(16, 9, bits, 0, packed)

    save("lossless.webp", colour, lossless=True)
    save("lossy.webp", colour, quality=80)
    save("lossy_alpha.webp", Image.fromarray(alpha), quality=80)
    save("lossless_alpha.webp", Image.fromarray(alpha), lossless=True, exact=True)
    save("turned.webp", colour, lossless=True, exif=exif(8))
    return files


def sound_files():
    files = {}

    def save(name, wave, rate, subtype, kind):
        out = io.BytesIO()
        soundfile.write(out, wave, rate, subtype=subtype, format=kind)
        files[name] = out.getvalue()

    chirp, noise = tone(3001, "chirp"), tone(3001, "noise")
    stereo = np.stack([chirp, noise], 1)
    save("plain.wav", chirp, 16000, "PCM_16", "WAV")
    save("stereo.wav", stereo, 16000, "PCM_16", "WAV")
    save("deep.wav", chirp, 16000, "PCM_24", "WAV")
    save("float.wav", stereo, 44100, "FLOAT", "WAV")
    save("bytes.wav", chirp, 8000, "PCM_U8", "WAV")
    save("law.wav", chirp, 8000, "ULAW", "WAV")
    save("extensible.wav", np.stack([chirp, noise, chirp], 1), 48000, "PCM_16", "WAVEX")
    save("plain.flac", chirp, 16000, "PCM_16", "FLAC")
    save("stereo.flac", stereo, 22050, "PCM_16", "FLAC")
    save("vorbis.ogg", tone(9000, "chirp"), 16000, "VORBIS", "OGG")
    save("opus.ogg", tone(9600, "chirp", 48000), 48000, "OPUS", "OGG")
    save("opus_16k.ogg", tone(9600, "chirp"), 16000, "OPUS", "OGG")
    return files


def checksum(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def pictures_expected(processor, folder):
    expected = {}
    for path in sorted(folder.glob("*")):
        if path.suffix not in (".jpg", ".png", ".webp"):
            continue
        pixels = np.asarray(load_image(str(path)))
        entry = {"width": pixels.shape[1], "height": pixels.shape[0], "pixels": checksum(pixels)}
        out = processor(images=[load_image(str(path))], return_tensors="pt")
        entry["grid"] = out["image_grid_thw"][0].tolist()
        entry["patches"] = checksum(out["pixel_values"].numpy())
        expected[path.name] = (entry, pixels)
    return expected


def drawn_expected(processor):
    """Pictures by the formula, of sizes that no file needs to be kept for."""
    sizes = [(1, 1), (1, 2), (2, 1), (1, 200), (200, 1), (3, 500), (28, 28), (27, 29), (13, 300), (41, 41), (42, 70),
             (56, 56), (100, 100), (333, 77), (448, 448), (1036, 14), (14, 2000), (720, 1280), (1024, 1024), (1500, 2000)]
    expected = []
    for height, width in sizes:
        out = processor(images=[Image.fromarray(drawn(height, width))], return_tensors="pt")
        values = out["pixel_values"].numpy()
        expected.append({"height": height, "width": width, "grid": out["image_grid_thw"][0].tolist(),
                         "patches": checksum(values), "first": [float(v) for v in values[0, :4]]})
    return expected


def videos_expected(processor):
    expected = []
    for num_frames, height, width in [(2, 60, 90), (3, 60, 90), (1, 33, 47), (5, 300, 500)]:
        frames = torch.stack([torch.from_numpy(drawn(height, width, i)).permute(2, 0, 1) for i in range(num_frames)])
        out = processor(videos=[frames], return_tensors="pt", do_sample_frames=False)
        expected.append({"frames": num_frames, "height": height, "width": width, "grid": out["video_grid_thw"][0].tolist(),
                         "patches": checksum(out["pixel_values_videos"].numpy())})
    return expected


def sizes_expected():
    """What smart_resize says, ties and limits included."""
    random = np.random.default_rng(3)
    cases = [(14, 14), (42, 42), (70, 70), (126, 98), (1, 1), (28, 5600), (1, 200), (56, 56), (55, 57), (1008, 1008)]
    cases += [tuple(int(2 ** random.uniform(0, 13)) for _ in range(2)) for _ in range(200)]
    limits = [(56 * 56, 28 * 28 * 1280), (4 * 28 * 28, 16384 * 28 * 28), (100352, 401408)]
    expected = []
    for i, (height, width) in enumerate(cases):
        low, high = limits[i % len(limits)]
        try:
            result = list(smart_resize(height, width, 28, low, high))
        except ValueError:
            result = None
        expected.append([height, width, low, high, result])
    return expected


def frames_expected():
    processor = Qwen2VLVideoProcessor()

    class Metadata:
        pass

    random = np.random.default_rng(4)
    expected = []
    for i in range(120):
        metadata = Metadata()
        metadata.total_num_frames = int(2 ** random.uniform(1, 11))
        metadata.fps = [24.0, 25.0, 29.97, 30.0, 60.0][i % 5]
        settings = {"num_frames": int(random.integers(1, 64))} if i % 2 else {"fps": [1.0, 2.0, 0.5, 3.0][i // 2 % 4]}
        try:
            numbers = processor.sample_frames(metadata, **settings).tolist()
        except (ValueError, ZeroDivisionError, RuntimeError):
            numbers = None
        expected.append([metadata.total_num_frames, metadata.fps, settings.get("num_frames"), settings.get("fps"), numbers])
    return expected


def sounds_expected(folder):
    expected = {}
    for path in sorted(folder.glob("*")):
        if path.suffix not in (".wav", ".flac", ".ogg"):
            continue
        wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
        mono = librosa.to_mono(wave.T)
        entry = {"rate": rate, "channels": wave.shape[1], "frames": len(mono)}
        if path.suffix != ".ogg":
            entry["samples"] = checksum(mono)
        at_16k = mono if rate == 16000 else librosa.resample(mono, orig_sr=rate, target_sr=16000)
        entry["frames_16k"] = len(at_16k)
        expected[path.name] = (entry, at_16k)
    return expected


def features_expected():
    expected = []
    for kind, count, mels, chunk in [("chirp", 5000, 128, 300), ("noise", 4801, 128, 300), ("click", 1600, 128, 300),
                                     ("quiet", 3200, 128, 300), ("silence", 320, 128, 300), ("noise", 1, 128, 300),
                                     ("noise", 159, 80, 30), ("chirp", 15990, 80, 1), ("noise", 20000, 80, 1)]:
        extractor = WhisperFeatureExtractor(feature_size=mels, chunk_length=chunk)
        out = extractor(tone(count, kind), sampling_rate=16000, padding="max_length", return_attention_mask=True,
                        return_tensors="np")
        frames = int(out["attention_mask"][0].sum())
        name = f"{kind}_{count}_{mels}.features"
        expected.append(({"kind": kind, "samples": count, "mels": mels, "chunk_seconds": chunk, "frames": frames,
                          "file": name}, out["input_features"][0][:, :frames]))
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.check:
        for name, data in {**picture_files(), **sound_files()}.items():
            (folder / name).write_bytes(data)
    processor = Qwen2VLImageProcessor()
    pictures, sounds, features = pictures_expected(processor, folder), sounds_expected(folder), features_expected()
    document = {
        "pictures": {name: entry for name, (entry, _) in pictures.items()},
        "drawn": drawn_expected(processor),
        "videos": videos_expected(Qwen2VLVideoProcessor()),
        "sizes": sizes_expected(),
        "frames": frames_expected(),
        "sounds": {name: entry for name, (entry, _) in sounds.items()},
        "features": [entry for entry, _ in features],
    }
    kept = {f"{name}.rgb": pixels.tobytes() for name, (_, pixels) in pictures.items() if pixels.size < KEPT_PIXELS}
    kept |= {f"{name}.f32": wave.astype("<f4").tobytes() for name, (_, wave) in sounds.items()}
    kept |= {f"{entry['file']}.f32": values.astype("<f4").tobytes() for entry, values in features}
    if arguments.check:
        assert json.loads((folder / "expected.json").read_text()) == json.loads(json.dumps(document)), "expected.json differs"
        for name, data in kept.items():
            assert (folder / name).read_bytes() == data, f"{name} differs"
        print("all as committed")
        return
    lines = json.dumps(document, separators=(",", ":"))
    (folder / "expected.json").write_text(lines.replace('},', '},\n').replace('],[', '],\n[') + "\n")
    for name, data in kept.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
