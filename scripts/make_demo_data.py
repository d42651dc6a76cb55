#!/usr/bin/env python3
"""Renders a tiny data set for demonstrations: pictures of coloured shapes and short tones, each with a question and its
answer, and a folder of a tiny model (configuration, tokenizer, chat template, preprocessor settings) that can be trained on
them. Needs nothing but Python. The same seed gives the same files.

    scripts/make_demo_data.py OUT [--seed N] [--samples N]
    scripts/make_demo_data.py OUT --judge ANSWERS

OUT/chats.jsonl has the conversations, OUT/media the files, OUT/model the model, and OUT/chance.json the loss per target token
of the best answer that does not look at the media. OUT/unseen has pictures that no conversation has, and prompts.json asks
about them in the form of `weft predict`, whose answers (--json) the second form shows beside the files.
"""
import argparse
import json
import math
import pathlib
import random
import struct
import wave
import zlib

COLOURS = {'red': (220, 40, 40), 'green': (40, 180, 60), 'blue': (50, 70, 220), 'yellow': (240, 210, 40)}
SHAPES = ['circle', 'square', 'triangle', 'cross']
PITCHES = {'low': 220.0, 'middle': 880.0, 'high': 3520.0}
RHYTHMS = ['steady', 'pulsing']
SIDE = 56  # pixels: two by two tokens of four patches each
RATE = 16000
QUESTION = 'What is this?'
SPECIAL = ['<|im_start|>', '<|im_end|>', '<|vision_start|>', '<|vision_end|>', '<|image_pad|>', '<|video_pad|>', '<|audio_bos|>',
           '<|audio_eos|>', '<|AUDIO|>']
TEMPLATE = '''{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}{% else %}{{ message.content }}<|im_end|>{% endif %}

{% else %}{% for part in message.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% elif part.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>

{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}'''


def png(pixels):
    """An 8-bit RGB PNG of rows of (r, g, b)."""
    raw = b''.join(b'\0' + bytes(value for pixel in row for value in pixel) for row in pixels)

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    header = struct.pack('>IIBBBBB', len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(raw, 9)) + chunk(b'IEND', b'')


def is_inside(shape, x, y):
    """Whether a point of the square from -1 to 1 belongs to the shape."""
    if shape == 'circle':
        return x * x + y * y <= 1
    if shape == 'square':
        return abs(x) <= 0.85 and abs(y) <= 0.85
    if shape == 'triangle':
        return y <= 0.85 and abs(x) <= (y + 1) / 2
    return min(abs(x), abs(y)) <= 0.3


def draw_pixels(draw, colour, shape):
    radius = draw.uniform(15, 24)
    centre = [draw.uniform(radius, SIDE - radius) for _ in range(2)]
    ground = draw.randint(0, 90)
    shade = [min(255, max(0, value + draw.randint(-25, 25))) for value in COLOURS[colour]]
    rows = []
    for row in range(SIDE):
        line = []
        for column in range(SIDE):
            x, y = (column + 0.5 - centre[0]) / radius, (row + 0.5 - centre[1]) / radius
            inside = abs(x) <= 1 and abs(y) <= 1 and is_inside(shape, x, y)
            line.append(tuple(shade) if inside else tuple(ground + draw.randint(0, 12) for _ in range(3)))
        rows.append(line)
    return rows


def patches(pixels):
    """What the processor makes of a picture that it need not resize: normalised, two by two patches in turn, channel by
    channel and twice each, since an image stands for two frames."""
    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    values = []
    for block_y in range(0, SIDE, 28):
        for block_x in range(0, SIDE, 28):
            for y0 in (block_y, block_y + 14):
                for x0 in (block_x, block_x + 14):
                    for c in range(3):
                        plane = [(pixels[y][x][c] / 255 - mean[c]) / deviation[c] for y in range(y0, y0 + 14)
                                 for x in range(x0, x0 + 14)]
                        values += plane + plane
    return values


def safetensors(tensors):
    """The file of named tensors: (type, shape, bytes) each."""
    header, data = {}, b''
    for name, (kind, shape, content) in tensors.items():
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def write_tone(path, draw, pitch, rhythm):
    frequency = PITCHES[pitch] * draw.uniform(0.9, 1.1)
    loudness = draw.uniform(0.3, 0.8)
    values = []
    for i in range(int(RATE * draw.uniform(0.35, 0.5))):
        t = i / RATE
        gain = 1 if rhythm == 'steady' else float(math.sin(2 * math.pi * 12 * t) > 0)
        values.append(int(32767 * loudness * gain * math.sin(2 * math.pi * frequency * t)) + draw.randint(-40, 40))
    with wave.open(str(path), 'wb') as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(struct.pack(f'<{len(values)}h', *(max(-32768, min(32767, value)) for value in values)))


def byte_characters():
    """The characters that byte-level vocabularies write bytes as."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            characters[byte] = chr(byte)
        else:
            characters[byte] = chr(256 + extra)
            extra += 1
    return characters


def tokenizer(texts):
    """A byte-level BPE with a token for every word of the texts: its merges build each word from its first byte on. Words after a
    space come first, so that no merge of another word begins inside them."""
    characters = byte_characters()
    words = []
    for text in texts:
        for word in text.replace('.', ' . ').replace('?', ' ? ').split():
            for written in (' ' + word, word):
                if written not in words and word.isalpha():
                    words.append(written)
    words.sort(key=lambda word: not word.startswith(' '))
    vocabulary = {characters[byte]: byte for byte in range(256)}
    merges = []
    for word in words:
        symbols = [characters[byte] for byte in word.encode()]
        for end in range(1, len(symbols)):
            pair = [''.join(symbols[:end]), symbols[end]]
            if pair not in merges:
                merges.append(pair)
                vocabulary.setdefault(''.join(pair), len(vocabulary))
    first = len(vocabulary)
    added = [{'id': first + i, 'content': token, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False,
              'special': True} for i, token in enumerate(SPECIAL)]
    split = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
             "\\s+(?!\\S)|\\s+")
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
    return {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added, 'normalizer': {'type': 'NFC'},
            'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
                {'type': 'Split', 'pattern': {'Regex': split}, 'behavior': 'Isolated', 'invert': False}, byte_level]},
            'post_processor': None, 'decoder': byte_level,
            'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                      'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
                      'vocab': vocabulary, 'merges': merges}}


class Encoder:
    """The tokens of plain words by a tokenizer of the above, and back."""

    def __init__(self, words):
        self.vocabulary = words['model']['vocab']
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(words['model']['merges'])}
        self.special = {token['content']: token['id'] for token in words['added_tokens']}
        self.characters = byte_characters()

    def piece(self, text):
        symbols = [self.characters[byte] for byte in text.encode()]
        while len(symbols) > 1:
            pairs = [(self.ranks.get((a, b), math.inf), i) for i, (a, b) in enumerate(zip(symbols, symbols[1:]))]
            rank, at = min(pairs)
            if rank == math.inf:
                break
            symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
        return [self.vocabulary[symbol] for symbol in symbols]

    def encode(self, pieces):
        return [token for piece in pieces for token in ([self.special[piece]] if piece in self.special else self.piece(piece))]

    def decode(self, ids):
        symbols = {number: symbol for symbol, number in self.vocabulary.items()}
        values = {character: byte for byte, character in self.characters.items()}
        return bytes(values[c] for number in ids if number in symbols for c in symbols[number]).decode(errors='replace')


def model_config(ids):
    width = 128
    return {'model_type': 'qwen2_5_omni_thinker', 'architectures': ['Qwen2_5OmniThinkerForConditionalGeneration'],
            'tie_word_embeddings': False, 'eos_token_id': ids['<|im_end|>'],
            'text_config': {'eos_token_id': ids['<|im_end|>'], 'vocab_size': 512, 'hidden_size': width, 'intermediate_size': 3 * width, 'num_hidden_layers': 4,
                            'num_attention_heads': 4, 'num_key_value_heads': 2, 'hidden_act': 'silu',
                            'max_position_embeddings': 1024, 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0,
                            'rope_scaling': {'type': 'mrope', 'mrope_section': [4, 6, 6]}},
            'vision_config': {'depth': 2, 'hidden_size': 64, 'hidden_act': 'silu', 'intermediate_size': 192, 'num_heads': 2,
                              'in_channels': 3, 'patch_size': 14, 'spatial_merge_size': 2, 'temporal_patch_size': 2,
                              'tokens_per_second': 2, 'window_size': 112, 'out_hidden_size': width,
                              'fullatt_block_indexes': [1]},
            'audio_config': {'num_mel_bins': 32, 'd_model': 64, 'encoder_layers': 2, 'encoder_attention_heads': 2,
                             'encoder_ffn_dim': 192, 'activation_function': 'gelu', 'max_source_positions': 200, 'n_window': 50,
                             'output_dim': width},
            'audio_token_index': ids['<|AUDIO|>'], 'image_token_index': ids['<|image_pad|>'],
            'video_token_index': ids['<|video_pad|>'], 'audio_start_token_id': ids['<|audio_bos|>'],
            'audio_end_token_id': ids['<|audio_eos|>'], 'vision_start_token_id': ids['<|vision_start|>'],
            'vision_end_token_id': ids['<|vision_end|>'], 'position_id_per_seconds': 25, 'seconds_per_chunk': 2}


def write_unseen(out, draw, encoder, count):
    """Pictures that training never sees, as files and as prompts."""
    (out / 'unseen').mkdir(exist_ok=True)
    tokens = encoder.encode(['<|im_start|>', 'user', '\n', '<|vision_start|>', *['<|image_pad|>'] * (SIDE // 28) ** 2, '<|vision_end|>',
                             'What', ' is', ' this', '?', '<|im_end|>', '\n', '<|im_start|>', 'assistant', '\n'])
    grid = struct.pack('<3q', 1, SIDE // 14, SIDE // 14)
    prompts, truth = [], []
    for i in range(count):
        colour, shape = draw.choice(list(COLOURS)), draw.choice(SHAPES)
        pixels = draw_pixels(draw, colour, shape)
        values = patches(pixels)
        (out / f'unseen/{i:02}.png').write_bytes(png(pixels))
        (out / f'unseen/{i:02}.safetensors').write_bytes(safetensors({
            'pixel_values': ('F32', [(SIDE // 14) ** 2, len(values) // (SIDE // 14) ** 2],
                             struct.pack(f'<{len(values)}f', *values)),
            'image_grid_thw': ('I64', [1, 3], grid)}))
        prompts.append({'input_ids': tokens, 'tensors': f'unseen/{i:02}.safetensors', 'max_new_tokens': 8})
        truth.append({'file': f'unseen/{i:02}.png', 'answer': f'A {colour} {shape}.'})
    (out / 'prompts.json').write_text(json.dumps({'prompts': prompts}) + '\n')
    (out / 'truth.json').write_text(json.dumps(truth, indent=1) + '\n')


def judge(out, answers):
    """What a model has said of the unseen pictures, against guessing."""
    encoder = Encoder(json.loads((out / 'model/tokenizer.json').read_text()))
    truth = json.loads((out / 'truth.json').read_text())
    said = [encoder.decode(prompt['tokens']) for prompt in json.loads(answers.read_text())['prompts']]
    right = {'colour': 0, 'shape': 0, 'both': 0}
    for number, (expected, words) in enumerate(zip(truth, said)):
        same = [word in words.rstrip('.').split() for word in expected['answer'].rstrip('.').split()[1:]]
        for name, is_right in (('colour', same[0]), ('shape', same[1]), ('both', all(same))):
            right[name] += is_right
        if number < 8:
            print(f"{expected['file']}: {words or '(nothing)'}  {'' if all(same) else 'It is: ' + expected['answer']}".rstrip())
    for name, chance in (('colour', 1 / len(COLOURS)), ('shape', 1 / len(SHAPES)), ('both', 1 / len(COLOURS) / len(SHAPES))):
        share = right[name] / len(truth)
        error = math.sqrt(chance * (1 - chance) / len(truth))
        print(f'{name} right: {right[name]} of {len(truth)} ({100 * share:.0f} %); guessing gives {100 * chance:.0f} %, '
              f'so {(share - chance) / error:+.1f} standard errors of guessing')


def main():
    parser = argparse.ArgumentParser(description='Renders pictures and tones with descriptions, and a tiny model for them.')
    parser.add_argument('out', type=pathlib.Path)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--samples', type=int, default=1200)
    parser.add_argument('--unseen', type=int, default=48, help='pictures to ask about')
    parser.add_argument('--judge', type=pathlib.Path, metavar='ANSWERS', help="of weft predict: show them against chance")
    options = parser.parse_args()
    if options.judge:
        judge(options.out, options.judge)
        return
    (options.out / 'media').mkdir(parents=True, exist_ok=True)
    (options.out / 'model').mkdir(exist_ok=True)

    draw = random.Random(options.seed)
    records, answers, blind_loss, num_targets = [], [], 0.0, 0
    for i in range(options.samples):
        if i % 4 < 3:
            colour, shape = draw.choice(list(COLOURS)), draw.choice(SHAPES)
            name, key, mark = f'media/{i:05}.png', 'images', '<image>'
            (options.out / name).write_bytes(png(draw_pixels(draw, colour, shape)))
            words = [colour, shape]
            blind_loss += math.log(len(COLOURS)) + math.log(len(SHAPES))
        else:
            pitch, rhythm = draw.choice(list(PITCHES)), draw.choice(RHYTHMS)
            name, key, mark = f'media/{i:05}.wav', 'audios', '<audio>'
            write_tone(options.out / name, draw, pitch, rhythm)
            words = [rhythm, pitch, 'tone']
            blind_loss += math.log(len(PITCHES)) + math.log(len(RHYTHMS))
        answer = f'A {" ".join(words)}.'
        answers.append(answer)
        num_targets += len(words) + 3  # the article, the full stop and the end of the turn
        records.append({'messages': [{'role': 'user', 'content': mark + QUESTION}, {'role': 'assistant', 'content': answer}],
                        key: [name]})
    (options.out / 'chats.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))

    words = tokenizer(sorted(set(answers)) + [QUESTION, 'user', 'assistant'])
    ids = {token['content']: token['id'] for token in words['added_tokens']}
    preprocessor = {'patch_size': 14, 'merge_size': 2, 'temporal_patch_size': 2, 'min_pixels': 28 * 28, 'max_pixels': 112 * 112,
                    'feature_size': 32, 'chunk_length': 2}
    for name, value in (('config.json', model_config(ids)), ('tokenizer.json', words), ('preprocessor_config.json', preprocessor)):
        (options.out / 'model' / name).write_text(json.dumps(value, indent=1) + '\n')
    (options.out / 'model/chat_template.jinja').write_text(TEMPLATE)
    write_unseen(options.out, draw, Encoder(words), options.unseen)
    (options.out / 'chance.json').write_text(json.dumps({'loss': blind_loss / num_targets, 'samples': options.samples}) + '\n')


main()
