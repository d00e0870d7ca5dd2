"""Words in the names of arrays, and what they say.

The lists are short on purpose. A word is listed if it means one thing in PyTorch, timm,
transformers, Keras, Flax, Haiku and in NumPy programs like them. What no list has is kept exact:
that costs bytes, while a quantized statistic can cost a run.

A name is split into parts at ``/`` and ``.``. Case is ignored.

The last part of a name says that an array is called a weight: always (``weight``, ``kernel``,
``bias`` and `WEIGHTS`), beside a partner (``gamma`` and ``beta``, ``b`` and ``w``), or below
``params`` (``scale``).

Any part may be the entry of an optimizer (`FAMILIES`). That alone does not make a moment: see
:mod:`lccodec.policy.optimizer`. What `EXACT` names (``ema``, ``teacher``, ``criterion``) is exact,
with everything below it, unless it is an average with the structure of a model
(:mod:`lccodec.policy.roles`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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

#: Parts that hold a model.
MODELS: Final = frozenset(
    ["model", "module", "net", "network", "params", "parameters", "state_dict", "variables", "weights"]
)
#: Parts that wrappers of modules put into names (DDP, `torch.compile`, FSDP, activation
#: checkpoints, DeepSpeed).
WRAPPERS: Final = frozenset(
    ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"]
)


@dataclass(frozen=True)
class Family:
    """All that an optimizer keeps of each parameter, and the roles of these entries.

    Each family was tried: after a restore from any preset, the updates of its optimizers are finite
    and of the right size (``tests/adapters/torch/test_optimizer.py``). Some are exact for that. Two
    means of which one is taken from the other are coded together (:mod:`lccodec.policy.centered`).
    """

    roles: Mapping[str, Role]
    named: bool = False  # only inside what is named as an optimizer: the words mean other things too
    counted: bool = False  # only beside a ``count``: optax's centered RMSprop has none
    centered: bool = False  # the square of the first moment is taken from the second moment

    def fits(self, entries: Collection[str], *, named: bool, counted: bool) -> bool:
        """Return whether these entries are the family, in such a place."""
        return self.roles.keys() == set(entries) and named >= self.named and counted >= self.counted

    def is_center(self, entry: str) -> bool:
        """Return whether the square of an entry is taken from another one."""
        return self.centered and self.roles[entry] == "first_moment" and entry != "momentum_buffer"


def _family(first: str = "", second: str = "", *, named: bool = False, counted: bool = False) -> Family:
    firsts: dict[str, Role] = dict.fromkeys(first.split(), "first_moment")
    return Family(firsts | dict.fromkeys(second.split(), "second_moment"), named, counted)


def _centered_family(first: str, second: str, more: str = "") -> Family:
    own = _family(f"{first} {more}", second, named=True)
    return Family(own.roles, named=True, centered=True)


def _exact_family(entries: str) -> Family:
    return Family(dict.fromkeys(entries.split(), "other"), named=True)


FAMILIES: Final = (
    # PyTorch, and what keeps its names.
    _family("exp_avg", "exp_avg_sq"),  # Adam, AdamW, NAdam, RAdam, SparseAdam
    _family("exp_avg", "exp_avg_sq max_exp_avg_sq"),  # with amsgrad
    _family("exp_avg", "exp_inf"),  # Adamax
    _family("exp_avg"),  # Lion
    _family("momentum_buffer"),  # SGD, Muon
    _family("momentum_buffer", "square_avg"),  # RMSprop
    _family("", "square_avg"),
    _family("", "square_avg acc_delta"),  # Adadelta
    _family("", "sum", named=True),  # Adagrad
    _centered_family("grad_avg", "square_avg"),  # RMSprop, centered
    _centered_family("grad_avg", "square_avg", "momentum_buffer"),
    _exact_family("row_var col_var"),  # Adafactor: of a matrix, and of a vector
    _exact_family("variance"),
    _exact_family("prev step_size"),  # Rprop
    _exact_family("ax"),  # ASGD: an average of the weights
    # Schedule-free: the weights without their average, beside the moments of the optimizer.
    Family({"z": "weight"}, named=True),
    Family({"z": "weight", "exp_avg_sq": "second_moment"}, named=True),
    # optax.
    _family("mu", "nu", counted=True),  # Adam
    _family("mu", "nu nu_max", counted=True),  # AMSGrad
    _family("mu", named=True, counted=True),  # Lion, Muon
    _family("", "nu", named=True),  # RMSprop
    _family("trace", named=True),  # SGD
    _family("", "sum_of_squares", named=True),  # Adagrad
    _family("", "e_g e_x", named=True),  # Adadelta
    _exact_family("mu nu"),  # RMSprop, centered; an Adam whose count is elsewhere has the same names
    _exact_family("m v n g"),  # Adan
    _exact_family("step_sizes prev_updates"),  # Rprop
    _exact_family("acc_grads"),  # several steps that make one
    # Keras, and programs without a framework.
    _family("momentum", "velocity", named=True),
    _family("momentums", "velocities", named=True),
    _family("m", "v"),
    _family("first_moment", "second_moment"),
)
#: All entries of all families.
ENTRIES: Final = tuple(dict.fromkeys(entry for family in FAMILIES for entry in family.roles))

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

#: Words for averages of weights. They are exact, unless they have the structure of a model
#: (:mod:`lccodec.policy.roles`).
AVERAGES: Final = frozenset(["ema", "swa", "polyak", "shadow", "avg", "average", "averaged"])
#: Words for what follows weights: of an array that does, by its values, they do not say that it is
#: exact (:mod:`lccodec.policy.values`).
FOLLOWERS: Final = AVERAGES | {"target", "targets", "slow"}
#: Names of what no quantizer may change. A part is exact if one of its words is listed.
EXACT: Final = frozenset(
    [
        *AVERAGES,
        # Statistics of layers, of curvature and of inputs.
        *("stats", "statistics", "fisher", "hessian", "importance", "importances", "ewc", "covariance"),
        *("normalizer", "normaliser", "vecnormalize"),
        # Quantization, by scalars or vectors.
        *("quant", "quantize", "quantizer", "observer", "vq", "codebook", "codebooks"),
        *("cluster", "clusters", "centroids"),
        # What is beside a model in the state of a run.
        *("scaler", "scheduler", "sched", "rng", "rngs", "grad", "grads", "gradient", "gradients"),
        *("buffer", "buffers", "replay", "sampler", "feedback"),
        # Copies of a model that no optimizer trains; losses.
        *("teacher", "target", "targets", "frozen", "criterion", "loss"),
    ]
)
#: The same as whole parts: names of weights have them as one of several words.
_EXACT_PATTERN: Final = re.compile(
    r"(running|moving)(_\w+)?|num_batches_tracked|(\w+_)?rms|masks?|caches?|intermediates|histor(y|ies)"
    r"|metrics|logs|losses|random_state|activation_post_process|sensitivity"
    r"|momentum_(?!buffer)\w+"  # the momentum encoder of MoCo
)
#: Words for the float32 weights that an optimizer changes, where a model computes with others; and
#: for the others.
MASTERS: Final = frozenset(["master", "masters", "fp32", "float32"])
ROUNDED: Final = frozenset(["bf16", "bfloat16", "fp16", "float16", "half"])
_WORD_PATTERN: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*|[0-9]+")


@dataclass(frozen=True)
class Word:
    """What one part of a name says."""

    text: str  # in lower case
    entry: bool  # of an optimizer, in one of the `FAMILIES`
    optimizer: bool
    exact: bool
    master: bool  # float32, beside rounded weights
    rounded: bool
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
    beside = _WEIGHT_PARTNERS.get(text)
    if found := re.fullmatch(r"b(_?\d+)?", text):
        beside = "w" + (found[1] or "")
    return Word(
        text=text,
        entry=text in ENTRIES,
        optimizer=bool(_OPTIMIZER_PATTERN.fullmatch(text)) or not OPTIMIZERS.isdisjoint(words),
        exact=text not in ENTRIES and (bool(_EXACT_PATTERN.fullmatch(text)) or not EXACT.isdisjoint(words)),
        master=not MASTERS.isdisjoint(words),
        rounded=not ROUNDED.isdisjoint(words),
        params=bool(_PARAMS_PATTERN.fullmatch(text)),
        weight=text in WEIGHTS or bool(_WEIGHT_PATTERN.fullmatch(text)),
        weight_in_params=text in _WEIGHTS_IN_PARAMS,
        weight_beside=beside,
    )


def says_follower(part: str) -> bool:
    """Return whether a part of a name is that of no exact array, but for words of `FOLLOWERS`.

    Examples
    --------
    >>> says_follower("target_net"), says_follower("modelEMA"), says_follower("teacher_ema")
    (True, True, False)
    """
    words = [word.lower() for word in _WORD_PATTERN.findall(part)]
    return not meaning("_".join(word for word in words if word not in FOLLOWERS)).exact
