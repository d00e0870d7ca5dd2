"""Words in the names of arrays, and the roles they stand for.

The lists are short on purpose. A word is listed if it means one thing in PyTorch, timm,
transformers, Keras, Flax, Haiku and in NumPy programs like them. What no list has is kept exact:
that costs bytes, while a quantized statistic can cost a run.

A name is split into parts at ``/`` and ``.``. Case is ignored.

The last part of a name says that an array is a weight: always (``weight``, ``kernel``, ``bias`` and
`WEIGHTS`), beside a partner (``gamma`` and ``beta``, ``b`` and ``w``), or below ``params``
(``scale``).

Any part says that an array is a moment: always (``exp_avg``, ``square_avg``), inside an optimizer
(``mu``, ``trace``, ``nu``), or beside a partner (``m`` and ``v``, also behind a prefix, as ``fc_m``
and ``fc_v``) if everything below both is the same.

All else inside an optimizer is exact. So is what `EXACT` names (``ema``, ``quant``), with
everything below it but moments that are always moments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

Role = Literal["weight", "first_moment", "second_moment", "other"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

#: Trained parameters, by the last part of their name.
WEIGHTS: Final = frozenset(
    [
        # Embedding layers of Flax and Keras; tables of transformers, CLIP, ViT, Swin and BEiT.
        *("embedding", "embeddings", "pos_embed", "pos_embedding", "position_embedding"),
        *("position_embeddings", "positional_embedding", "class_embedding", "relative_position_bias_table"),
        *("cls_token", "mask_token", "dist_token", "reg_token", "register_tokens", "query_tokens"),
        *("logit_scale", "text_projection", "layer_scale", "lambda_1", "lambda_2", "q_bias", "v_bias"),
        *("layer_scale_parameter", "rel_pos_h", "rel_pos_w"),
        # Multi-head attention and recurrent cells of PyTorch.
        *("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
        *("bias_k", "bias_v", "weight_ih", "weight_hh", "bias_ih", "bias_hh"),
        # Reparametrized weights of PyTorch (weight norm, spectral norm, pruning); FSDP's flat ones.
        *("weight_orig", "bias_orig", "original0", "original1", "flat_param", "_flat_param"),
        # Tensors of all experts in transformers, and projections in programs that have no layers.
        *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "gate_up_proj_bias", "down_proj_bias"),
        *("q_proj", "k_proj", "v_proj", "o_proj", "wq", "wk", "wv", "wo", "wqkv", "wte", "wpe"),
        # Keras.
        *("depthwise_kernel", "pointwise_kernel", "recurrent_kernel"),
        # Mamba.
        *("a_log", "dt_bias"),
    ]
)
_WEIGHT_PATTERN: Final = re.compile(
    r"(weights?|w|kernels?|bias(es)?)(_?\d+)?(:\d+)?"  # ``kernel:0`` is TensorFlow's
    r"|(weight|bias)_(ih|hh|hr)_l\d+(_reverse)?"
    r"|lora_(embedding_)?[ab]|lora_magnitude_vector"
)
_PARAMS_PATTERN: Final = re.compile(r"(\w+_)?param(eter)?s")
_WEIGHTS_IN_PARAMS: Final = frozenset(["scale", "offset", "b"])
#: Weights, if the partner is beside them.
_WEIGHT_PARTNERS: Final = {"gamma": "beta", "beta": "gamma", "weight_g": "weight_v", "weight_v": "weight_g"}

#: Parts that hold a model. An array below is a weight if an optimizer has a moment of that name.
MODELS: Final = frozenset(
    ["model", "module", "net", "network", "params", "parameters", "state_dict", "variables", "weights"]
)

_MOMENTS: Final[dict[str, Role]] = {
    **dict.fromkeys(["exp_avg", "momentum_buffer", "grad_avg", "first_moment"], "first_moment"),
    **dict.fromkeys(["exp_avg_sq", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"], "second_moment"),
    **dict.fromkeys(["square_avg", "exp_inf", "acc_delta", "second_moment"], "second_moment"),
}
_OPTIMIZER_MOMENTS: Final[dict[str, Role]] = {
    **dict.fromkeys(["m", "mu", "trace", "momentum"], "first_moment"),
    **dict.fromkeys(["nu", "nu_max", "sum", "sum_of_squares"], "second_moment"),
    **dict.fromkeys(["v_row", "v_col", "row_var", "col_var"], "second_moment"),
}
#: First and second moments, if their partner is beside them.
_MOMENT_PAIRS: Final = (
    *(("m", "v"), ("mu", "nu"), ("momentum", "velocity"), ("momentums", "velocities")),
    ("exp_avg", "exp_avg_sq"),
)

#: Names of optimizers. A part names an optimizer if one of its words is listed.
OPTIMIZERS: Final = frozenset(
    [
        *("opt", "opts", "sgd", "lion", "muon", "lamb", "lars", "soap", "yogi", "adan", "came", "prodigy"),
        *("galore", "ftrl", "sm3", "rprop", "asgd", "kfac"),
    ]
)
#: The same, wherever they are in a part; also ``optG`` and ``gopt``.
_OPTIMIZER_PATTERN: Final = re.compile(
    r".*(optim|adam|rmsprop|adagrad|adadelta|adafactor|shampoo|sophia|lbfgs|novograd).*|opt\w|\wopt"
)

#: Names of what no quantizer may change. A part is exact if one of its words is listed.
EXACT: Final = frozenset(
    [
        # Statistics of layers, of curvature and of inputs; averages of weights.
        *("stats", "statistics", "fisher", "hessian", "importance", "importances", "ewc", "covariance"),
        *("normalizer", "normaliser", "vecnormalize", "ema", "swa", "polyak", "shadow"),
        # Quantization, by scalars or vectors.
        *("quant", "quantize", "quantizer", "observer", "vq", "codebook", "codebooks"),
        *("cluster", "clusters", "centroids"),
        # What is beside a model in the state of a run.
        *("scaler", "scheduler", "sched", "rng", "rngs", "grad", "grads", "gradient", "gradients"),
        *("buffer", "buffers", "replay"),
    ]
)
#: The same as whole parts: names of weights have them as one of several words.
_EXACT_PATTERN: Final = re.compile(
    r"(running|moving)(_\w+)?|num_batches_tracked|(\w+_)?rms|masks?|caches?|intermediates|histor(y|ies)"
    r"|metrics|logs|losses|random_state|activation_post_process|sensitivity"
)
#: Parts below a moment that are not moments: optimizers that quantize or count have them.
_BOOKKEEPING: Final = frozenset(["step", "steps", "count", "absmax", "qmap", "zero_point"])

_WORD_PATTERN: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*|[0-9]+")


@dataclass(frozen=True)
class Word:
    """What one part of a name says."""

    text: str  # in lower case
    moment: Role | None  # of everything below it
    moment_in_optimizer: Role | None  # the same, if it is inside an optimizer
    partners: tuple[tuple[str, Role], ...]  # parts that say a role when they are beside this one
    optimizer: bool
    exact: bool
    bookkeeping: bool  # of a moment
    params: bool
    weight: bool  # if it is the last part
    weight_in_params: bool  # the same, below parameters
    weight_beside: str | None  # the part that makes it the last part of a weight if it is beside it


@lru_cache(maxsize=1 << 14)
def meaning(part: str) -> Word:
    """Return what a part of a name says.

    Examples
    --------
    >>> meaning("optimizer_G").optimizer, meaning("optG").optimizer, meaning("option").optimizer
    (True, True, False)
    >>> meaning("ema_cluster_size").exact, meaning("mask_token").exact
    (True, False)
    """
    text = part.lower()
    words = {word.lower() for word in _WORD_PATTERN.findall(part)} | set(re.split(r"[^a-z]+", text))
    prefix, _, stem = text.rpartition("_")
    partners: list[tuple[str, Role]] = []
    for first, second in _MOMENT_PAIRS:
        # A part that ends in a name has the partner of that name, with the same prefix.
        for name, other, role in ((first, second, "first_moment"), (second, first, "second_moment")):
            if text == name or text.endswith("_" + name):
                partners.append((text.removesuffix(name) + other, role))  # type: ignore[arg-type]
    beside = _WEIGHT_PARTNERS.get(text)
    if found := re.fullmatch(r"b(_?\d+)?", text):
        beside = "w" + (found[1] or "")
    behind_prefix = stem if prefix and stem == "momentum" else ""
    return Word(
        text=text,
        moment=_MOMENTS.get(text.removesuffix("s")),
        moment_in_optimizer=_OPTIMIZER_MOMENTS.get(text) or _OPTIMIZER_MOMENTS.get(behind_prefix),
        partners=tuple(partners),
        optimizer=bool(_OPTIMIZER_PATTERN.fullmatch(text)) or not OPTIMIZERS.isdisjoint(words),
        exact=bool(_EXACT_PATTERN.fullmatch(text)) or not EXACT.isdisjoint(words),
        bookkeeping=text in _BOOKKEEPING,
        params=bool(_PARAMS_PATTERN.fullmatch(text)),
        weight=text in WEIGHTS or bool(_WEIGHT_PATTERN.fullmatch(text)),
        weight_in_params=text in _WEIGHTS_IN_PARAMS,
        weight_beside=beside,
    )
