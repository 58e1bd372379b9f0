"""A `tokenizers` JSON from a GGUF's own vocabulary, merges and pre-tokenizer name. Opens no file, knows no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from strata_recipes.errors import PackError

# How text is cut into words before merging, by `tokenizer.ggml.pre`. The two differ in combining marks: \p{M}.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = {
    "qwen2": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    "qwen35": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
}
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # values of token_type; 1 normal, 5 unused and 6 byte stay plain vocabulary


def tokenizer_json(metadata: Mapping[str, Any]) -> str | None:
    """The tokenizer of a GGUF with these key-value pairs; None where it has no vocabulary."""
    kind = metadata.get("tokenizer.ggml.model", "no_vocab")
    if kind in ("no_vocab", "none"):
        return None
    if kind != "gpt2":
        raise PackError(
            f"tokenizer.ggml.model is {kind!r}, this build reads 'gpt2' (byte-level BPE): take a model file with that tokenizer"
        )
    tokens = [str(token) for token in _list(metadata, "tokens")]
    types = [int(value) for value in _list(metadata, "token_type")]
    if len(types) != len(tokens):
        raise PackError(f"tokenizer.ggml.token_type has {len(types)} entries, tokenizer.ggml.tokens has {len(tokens)}: the file is damaged")
    tokenizer = Tokenizer(_bpe(tokens, _list(metadata, "merges")))
    tokenizer.normalizer = normalizers.NFC()  # both pre-tokenizers belong to vocabularies trained on NFC text
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata.get("tokenizer.ggml.pre"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([_added(t, True) for t, kind in zip(tokens, types, strict=True) if kind in (_UNKNOWN, _CONTROL)])
    tokenizer.add_tokens([_added(t, False) for t, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED])
    _add_bos(tokenizer, metadata, tokens)
    return str(tokenizer.to_str())


def _list(metadata: Mapping[str, Any], name: str) -> Sequence[Any]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if values is None or len(values) == 0:
        raise PackError(f"the GGUF has no tokenizer.ggml.{name}: its byte-level BPE tokenizer cannot be built, convert the model again")
    return list(values)


def _bpe(tokens: Sequence[str], merges: Sequence[Any]) -> models.BPE:
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        twice = next(token for number, token in enumerate(tokens) if vocab[token] != number)
        raise PackError(f"tokenizer.ggml.tokens holds {twice!r} twice: a token needs one id, convert the model again")
    return models.BPE(vocab=vocab, merges=[_merge(str(merge), rank, vocab) for rank, merge in enumerate(merges)])


def _merge(merge: str, rank: int, vocab: Mapping[str, int]) -> tuple[str, str]:
    cut = merge.find(" ", 1)  # from 1: the left part is never empty
    left, right = merge[:cut], merge[cut + 1 :]
    if cut < 0 or any(part not in vocab for part in (left, right, left + right)):
        raise PackError(f"tokenizer.ggml.merges[{rank}] is {merge!r}: its parts and their join must be tokens of the vocabulary")
    return left, right


def _pre_tokenizer(name: object) -> pre_tokenizers.PreTokenizer:
    if not isinstance(name, str) or name not in WORDS:
        raise PackError(f"tokenizer.ggml.pre is {name!r}, this build knows {', '.join(WORDS)}: tokens cut otherwise would be wrong")
    words = pre_tokenizers.Split(Regex(WORDS[name]), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _add_bos(tokenizer: Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str]) -> None:
    if not metadata.get("tokenizer.ggml.add_bos_token", False):
        return
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if bos is None or not 0 <= int(bos) < len(tokens):
        raise PackError(
            f"tokenizer.ggml.bos_token_id is {bos}, wanted 0 to {len(tokens) - 1}: the file asks for a BOS token and names none"
        )
    token = tokens[int(bos)]
    tokenizer.post_processor = processors.TemplateProcessing(single=[token, "$A"], pair=None, special_tokens=[(token, int(bos))])
