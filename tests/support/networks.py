"""The same networks in torch and in Flax NNX, the rules between them, and how to train both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from flax import nnx
from torch import nn

from lccodec.exchange import Rule

LEARNING_RATE = 1e-3


class TorchMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.body(x))


class FlaxMLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.body = nnx.Sequential(
            nnx.Linear(12, 32, rngs=rngs),
            nnx.relu,
            nnx.Dropout(0.1, rngs=rngs),
            nnx.Linear(32, 32, rngs=rngs),
            nnx.relu,
        )
        self.head = nnx.Linear(32, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(self.body(x))


class TorchLeNet(nn.Module):
    """LeNet-5 with BatchNorm; convolutions before one have no bias: its gradient would be noise."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 6, 5, padding=2, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 16, 5, bias=False), nn.BatchNorm2d(16)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.norm1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.norm2(self.conv2(x))), 2)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


class FlaxLeNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        def conv(*features: int, padding: str) -> nnx.Conv:
            return nnx.Conv(*features, (5, 5), padding=padding, use_bias=False, rngs=rngs)

        self.conv1, self.norm1 = conv(1, 6, padding="SAME"), nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.conv2, self.norm2 = conv(6, 16, padding="VALID"), nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.fc1, self.fc2 = nnx.Linear(400, 120, rngs=rngs), nnx.Linear(120, 84, rngs=rngs)
        self.fc3 = nnx.Linear(84, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm1(self.conv1(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2))
        return self.fc3(nnx.relu(self.fc2(nnx.relu(self.fc1(x.reshape(len(x), -1))))))


VOCABULARY, WIDTH, HEADS, LENGTH = 27, 32, 4, 16


class TorchBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TorchGPT(nn.Module):
    """A character model with tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(TorchBlock() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x):
        x = self.token(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def exact_gelu(x):
    return nnx.gelu(x, approximate=False)


class FlaxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm1 = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.norm2 = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, dropout_rate=0.1, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(
            nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs),
            exact_gelu,
            nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs),
            nnx.Dropout(0.1, rngs=rngs),
        )

    def __call__(self, x):
        x = x + self.attention(self.norm1(x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.mlp(self.norm2(x))


class FlaxGPT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.token = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.position = nnx.Param(jnp.zeros((LENGTH, WIDTH)))
        self.blocks = nnx.List([FlaxBlock(rngs) for _ in range(2)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        x = self.token(x) + self.position[...]
        for block in self.blocks:
            x = block(x)
        return self.token.attend(self.norm(x))


def _vectors(rng: np.random.Generator) -> Any:
    return rng.normal(size=(16, 12)).astype(np.float32), rng.integers(0, 5, 16)


def _images(rng: np.random.Generator) -> Any:
    return rng.normal(size=(16, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, 16)


def _text(rng: np.random.Generator) -> Any:
    return rng.integers(0, VOCABULARY, (8, LENGTH)), rng.integers(0, VOCABULARY, (8, LENGTH))


@dataclass(frozen=True)
class Network:
    """One network in both frameworks; `training`: trained in that mode, without Dropout."""

    torch: Callable[[], nn.Module]
    flax: Callable[[nnx.Rngs], nnx.Module]
    batch: Callable[[np.random.Generator], Any]
    rules: list[Rule] = field(default_factory=list)
    training: bool = False

    def both(self) -> tuple[nn.Module, nnx.Module]:
        torch.manual_seed(0)
        ours, theirs = self.torch().train(self.training), self.flax(nnx.Rngs(1))
        theirs.train() if self.training else theirs.eval()
        return ours, theirs


NETWORKS = {
    "mlp": Network(TorchMLP, FlaxMLP, _vectors, [Rule("body.**", "body/layers/**", "module")]),
    "lenet": Network(
        TorchLeNet,
        FlaxLeNet,
        _images,
        [Rule("fc1.weight", "fc1/kernel", "flattened", size=16)],
        training=True,
    ),
    "gpt": Network(
        TorchGPT,
        FlaxGPT,
        _text,
        [
            Rule(("token.weight", "head.weight"), "token/embedding", "tied"),
            Rule("position", "position"),
            Rule("blocks.*.mlp.**", "blocks/*/mlp/layers/**", "module"),
        ],
    ),
}


def torch_state(module: nn.Module | torch.optim.Optimizer) -> Any:
    return jax.tree.map(
        lambda leaf: leaf.numpy().copy() if isinstance(leaf, torch.Tensor) else leaf,
        dict(module.state_dict()),
    )


def flax_state(module: Any) -> Any:
    def array(leaf: Any) -> Any:
        return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.array(leaf)

    return jax.tree.map(array, nnx.to_pure_dict(nnx.state(module)))


def bits(tree: Any) -> Any:
    """Return the leaves of a tree as bytes, with dtypes and shapes; random keys apart."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if not str(getattr(leaf, "dtype", "")).startswith("key")]
    return [(str(leaf.dtype), leaf.shape, leaf.tobytes()) for leaf in map(np.asarray, arrays)]


def load_torch(module: Any, state: Any) -> None:
    module.load_state_dict(
        jax.tree.map(lambda leaf: torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, state)
    )


def torch_output(module: nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module(torch.tensor(x)).numpy()


@nnx.jit
def flax_output(module: nnx.Module, x: np.ndarray) -> jax.Array:
    return module(jnp.moveaxis(x, 1, -1) if x.ndim == 4 else x)


def torch_adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.named_parameters(), lr=LEARNING_RATE, weight_decay=0.01)


def flax_adam(module: nnx.Module) -> nnx.Optimizer:
    return nnx.Optimizer(module, optax.adamw(LEARNING_RATE, weight_decay=0.01), wrt=nnx.Param)


def torch_step(module: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    x, y = map(torch.tensor, batch)
    optimizer.zero_grad()
    nn.functional.cross_entropy(module(x).flatten(0, -2), y.flatten()).backward()
    optimizer.step()


@nnx.jit
def flax_step(module: nnx.Module, optimizer: nnx.Optimizer, batch: Any) -> None:
    x, y = batch
    x = jnp.moveaxis(x, 1, -1) if x.ndim == 4 else x

    def loss(module: nnx.Module) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(module(x), y).mean()

    optimizer.update(module, nnx.grad(loss)(module))
