"""Inputs of the fixtures: samples with media drawn at random, packed without padding as the fixture files hold them."""

import hashlib
import json
import random

import torch

IGNORED = -100
APART = ("qwen3_vl", "qwen3_vl_moe")


class Draw:
    """Random choices and tensors that depend on nothing but the key."""

    def __init__(self, key):
        self.rng = random.Random(key)
        self.generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big"))

    def normal(self, *shape):
        return torch.randn(shape, generator=self.generator)


def audio_tokens(frames):
    """Rows that the audio encoder makes of a clip: a convolution and a pooling, each of stride 2."""
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


class SampleMaker:
    """Makes samples for one model: pieces of text and media in order, with the tokens that stand around media."""

    def __init__(self, config, draw):
        self.config, self.draw = config, draw
        text = config.get_text_config()
        self.special = {getattr(config, f"{name}_token_id") for name in
                        ("image", "video", "audio", "vision_start", "vision_end", "audio_start", "audio_end")
                        if hasattr(config, f"{name}_token_id")}
        self.words = [t for t in range(3, text.vocab_size) if t not in self.special]
        self.vision = getattr(config, "vision_config", None)

    def text(self, length):
        return {"ids": [self.draw.rng.choice(self.words) for _ in range(length)]}

    def patches(self, grid):
        v = self.vision
        t, h, w = grid
        return self.draw.normal(t * h * w, v.in_channels * v.temporal_patch_size * v.patch_size**2)

    def image(self, h, w):
        grid = (1, h, w)
        rows = h * w // self.vision.spatial_merge_size**2
        c = self.config
        return {"ids": [c.vision_start_token_id] + [c.image_token_id] * rows + [c.vision_end_token_id],
                "pixel_values": self.patches(grid), "image_grid_thw": grid}

    def tile(self):
        """An image of the one size that a tower takes, without anything around it."""
        v, c = self.vision, self.config
        return {"ids": [c.image_token_id] * c.image_seq_length,
                "pixel_values": self.draw.normal(1, v.num_channels, *v.image_size)}

    def video(self, t, h, w, seconds):
        grid = (t, h, w)
        rows = t * h * w // self.vision.spatial_merge_size**2
        c = self.config
        ids = [c.vision_start_token_id] + [c.video_token_id] * rows + [c.vision_end_token_id]
        if c.model_type in APART:
            # Every frame stands by itself, behind the time at which it was taken.
            ids = sum((self.text(self.draw.rng.randrange(1, 4))["ids"] + [c.vision_start_token_id]
                       + [c.video_token_id] * (rows // t) + [c.vision_end_token_id] for _ in range(t)), [])
        return {"ids": ids,
                "pixel_values_videos": self.patches(grid), "video_grid_thw": grid, "second_per_grid_ts": seconds}

    def audio(self, frames):
        c = self.config
        return {"ids": [c.audio_start_token_id] + [c.audio_token_id] * audio_tokens(frames) + [c.audio_end_token_id],
                "input_features": self.draw.normal(c.audio_config.num_mel_bins, frames), "audio_feature_lengths": frames}

    def audio_in_video(self, t, h, w, seconds, frames):
        """A video with its sound track: chunks of seconds_per_chunk in turn, the video's part of a chunk first."""
        c = self.config
        per_frame = h * w // self.vision.spatial_merge_size**2
        per_chunk = c.position_id_per_seconds * c.seconds_per_chunk
        tracks = [[(int(i * seconds * c.position_id_per_seconds), c.video_token_id) for i in range(t) for _ in range(per_frame)],
                  [(i, c.audio_token_id) for i in range(audio_tokens(frames))]]
        tracks = [self.chunks(track, per_chunk) for track in tracks]
        ids = [c.vision_start_token_id, c.audio_start_token_id]
        for j in range(max(len(track) for track in tracks)):
            for track in tracks:
                ids += track[j] if j < len(track) else []
        ids += [c.audio_end_token_id, c.vision_end_token_id]
        return self.video(t, h, w, seconds) | self.audio(frames) | {"ids": ids}

    @staticmethod
    def chunks(track, per_chunk):
        """As the processor cuts: a token opens the next chunk when its time reaches that chunk, one chunk per token."""
        parts = [[]]
        for time, token in track:
            if time >= len(parts) * per_chunk:
                parts.append([])
            parts[-1].append(token)
        return parts


def draw_case(config, name, key):
    """The samples of one case, each a list of pieces."""
    draw = Draw(key)
    make, rng = SampleMaker(config, draw), draw.rng
    windows = [(4, 6), (6, 10), (8, 4), (2, 8), (10, 6), (6, 6)]
    rng.shuffle(windows)
    text = lambda low=3, high=9: make.text(rng.randrange(low, high))
    seconds = lambda: rng.choice([1.0, 1.5, 2.0, 2.25])
    frames = lambda chunks: rng.randrange(2 * make.config.audio_config.n_window * (chunks - 1) + 3,
                                          2 * make.config.audio_config.n_window * chunks + 1)
    if name == "packed":
        return [[text(11, 17)], [text(1, 2)], [text(19, 29)], [text(2, 4)], [text(7, 12)]]
    if name == "single":
        return [[text(15, 24)]]
    if name == "text":
        return [[text(9, 15)], [text(4, 8)]]
    if name == "video":
        return [[text(), make.video(rng.choice([3, 4]), 4, rng.choice([2, 4]), seconds()), text()]]
    if name == "images":
        return [[text(), make.image(4, 2), text(1, 4)], [make.image(2, 4), text()]]
    if name == "audio":
        return [[text(), make.audio(frames(3)), text(1, 4), make.audio(frames(1))], [make.audio(frames(2)), text()]]
    if name == "audio_in_video":
        # Long enough for several chunks of either track, so that the order of the chunks shows.
        per_second = make.config.position_id_per_seconds
        return [[text(), make.audio_in_video(4, 4, 2, 1.25, 4 * rng.randrange(3 * per_second, 5 * per_second)), text()],
                [make.image(*windows[0]), text(), make.audio_in_video(2, 2, 4, 1.0, 4 * rng.randrange(per_second, 4 * per_second)),
                 text(5, 9)]]
    if name == "tiles":
        return [[text(), make.tile(), text(1, 4), make.tile(), make.tile(), text()], [text(8, 14)], [make.tile(), text(4, 8)]]
    if name.startswith("step"):
        return [[text(), make.image(*windows[0]), text()], [make.video(2, 2, 4, 1.0), text(6, 12)], [text(8, 14)]]
    if name != "mixed":
        raise ValueError(f"no case is called {name}")
    # Videos whose time does not outgrow height and width: releases of transformers disagree on what follows a longer one.
    samples = [
        [text(), make.image(*windows[0]), text(1, 4), make.image(*windows[1]), text()],
        [text(8, 14)],
        [make.image(*windows[2]), make.image(2, 2), text(), make.video(3, 4, 6, 0.5), text(2, 5)],
        [text(), make.video(2, 8, 2, rng.choice([1.0, 1.5])), make.video(2, 2, 8, rng.choice([1.25, 1.75])), text(4, 8)],
    ]
    if hasattr(config, "audio_config"):
        samples[0].insert(2, make.audio(frames(2)))
        samples[2].append(make.audio(frames(1)))
        samples.append([make.audio(frames(3)), text()])
    return samples


def pack(config, samples, key):
    """The case's tensors: samples one after the other, media in order of appearance."""
    draw = Draw(key + "/targets")
    special = SampleMaker(config, draw).special
    ids = [[i for piece in sample for i in piece["ids"]] for sample in samples]
    targets = []
    for sample in ids:
        following = sample[1:] + [IGNORED]
        targets += [IGNORED if t in special or draw.rng.random() < 0.15 else t for t in following]
    tensors = {"input_ids": torch.tensor([i for sample in ids for i in sample]),
               "lengths": torch.tensor([len(sample) for sample in ids]), "targets": torch.tensor(targets)}
    pieces = [piece for sample in samples for piece in sample]
    for field, dim in (("pixel_values", 0), ("pixel_values_videos", 0), ("input_features", 1)):
        parts = [piece[field] for piece in pieces if field in piece]
        if parts:
            tensors[field] = torch.cat(parts, dim)
    for field, dtype in (("image_grid_thw", torch.int64), ("video_grid_thw", torch.int64),
                         ("second_per_grid_ts", torch.float32), ("audio_feature_lengths", torch.int64)):
        parts = [piece[field] for piece in pieces if field in piece]
        if parts:
            tensors[field] = torch.tensor(parts, dtype=dtype)
    if config.model_type in ("qwen2_vl", *APART):
        tensors.pop("second_per_grid_ts", None)  # this family's time knows no seconds
    return {k: v.contiguous() for k, v in tensors.items()}


def unpack(config, tensors):
    """Per sample what the packed tensors hold; a sample owns as many media as its placeholder tokens have room for."""
    merge = getattr(getattr(config, "vision_config", None), "spatial_merge_size", 1) ** 2
    streams = {}
    if "pixel_values" in tensors and tensors["pixel_values"].dim() == 4:
        merge = 1
        streams["image"] = [(torch.tensor([config.image_seq_length]), {"pixel_values": p}) for p in tensors["pixel_values"].split(1)]
    elif "image_grid_thw" in tensors:
        streams["image"] = [(g, {"pixel_values": p}) for g, p in
                            zip(tensors["image_grid_thw"], tensors["pixel_values"].split(tensors["image_grid_thw"].prod(1).tolist()))]
    if "video_grid_thw" in tensors:
        seconds = tensors.get("second_per_grid_ts", torch.ones(len(tensors["video_grid_thw"])))
        streams["video"] = [(g, {"pixel_values_videos": p, "second_per_grid_ts": s}) for g, p, s in
                            zip(tensors["video_grid_thw"],
                                tensors["pixel_values_videos"].split(tensors["video_grid_thw"].prod(1).tolist()), seconds)]
    if "audio_feature_lengths" in tensors:
        streams["audio"] = [(n, {"input_features": f}) for n, f in
                            zip(tensors["audio_feature_lengths"],
                                tensors["input_features"].split(tensors["audio_feature_lengths"].tolist(), 1))]
    samples = []
    for ids, targets in zip(tensors["input_ids"].split(tensors["lengths"].tolist()),
                            tensors["targets"].split(tensors["lengths"].tolist())):
        sample = {"input_ids": ids, "targets": targets, "image": [], "video": [], "audio": []}
        for kind, stream in streams.items():
            room = (ids == getattr(config, f"{kind}_token_id")).sum().item()
            while room > 0:
                size, medium = stream.pop(0)
                room -= audio_tokens(size.item()) if kind == "audio" else size.prod().item() // merge
                sample[kind].append((size, medium))
            assert room == 0, f"{kind} placeholders and media differ"
        samples.append(sample)
    assert not any(streams.values()), "media that no sample owns"
    return samples


def write_json(path, value):
    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}\n")
