"""Mamba2 hybrids: Nemotron-H, Granite-4-H, Falcon-H1."""

from __future__ import annotations

from kvplan.spec.hf.config import Config
from kvplan.spec.hf.linear import FULL_NAMES, split, state_dtype
from kvplan.spec.state import LinearState, Mamba2State

NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(config: Config) -> LinearState | None:
    """Mamba2, attention, MLP and MoE layers by list or by pattern string."""
    kinds = config.names("layers_block_type") or nemotron_pattern(config)
    heads, head_dim = config.count("mamba_num_heads"), config.count("mamba_head_dim")
    state = Mamba2State(
        intermediate_size=heads * head_dim,
        num_groups=config.count("n_groups" if config.has("n_groups") else "mamba_n_groups"),
        num_heads=heads,
        head_dim=head_dim,
        state_size=config.count("ssm_state_size"),
        conv_kernel=config.count("conv_kernel" if config.has("conv_kernel") else "mamba_d_conv"),
    )
    return split(state, kinds, linear={"mamba"}, full={"attention"}, dtype=state_dtype(config))


def nemotron_pattern(config: Config) -> tuple[str, ...]:
    """`M*-E` letters as layer kinds."""
    pattern = config.text("hybrid_override_pattern") or ""
    if not pattern or len(pattern) > 4096 or set(pattern) - set(NEMOTRON_LETTERS):
        raise config.refuse("hybrid_override_pattern", "must be made of the letters M, *, - and E")
    return tuple(NEMOTRON_LETTERS[letter] for letter in pattern)


def nemotron_layers(config: Config) -> int:
    """Nemotron-H counts its layers by their kinds."""
    return len(config.names("layers_block_type") or nemotron_pattern(config))


def granite_hybrid(config: Config) -> LinearState | None:
    """Mamba2 layers with a few attention layers; variants without Mamba are plain."""
    layers = config.layers()
    kinds = config.names("layer_types") or tuple(
        "attention" if (index + 1) % 6 == 0 else "mamba" for index in range(layers)
    )
    if len(kinds) != layers:
        raise config.refuse("layer_types", f"has {len(kinds)} entries for {layers} layers")
    if not set(kinds) - FULL_NAMES:
        return None
    state = Mamba2State(
        intermediate_size=(config.whole("mamba_expand") or 2) * config.count("hidden_size"),
        num_groups=config.count("mamba_n_groups"),
        num_heads=config.count("mamba_n_heads"),
        head_dim=config.count("mamba_d_head"),
        state_size=config.count("mamba_d_state"),
        conv_kernel=config.count("mamba_d_conv"),
    )
    return split(state, kinds, linear=set(kinds) - FULL_NAMES, full=FULL_NAMES)


def falcon_h1(config: Config) -> LinearState | None:
    """Attention and Mamba2 side by side in every layer."""
    intermediate = config.whole("mamba_d_ssm")
    if intermediate is None:
        intermediate = (config.whole("mamba_expand") or 2) * config.count("hidden_size")
    heads = config.count("mamba_n_heads")
    auto = config.get("mamba_d_head") in (None, "auto")
    every = tuple(range(config.layers()))
    return LinearState(
        layers=every,
        full_attention_layers=every,
        state=Mamba2State(
            intermediate_size=intermediate,
            num_groups=config.count("mamba_n_groups"),
            num_heads=heads,
            head_dim=intermediate // heads if auto else config.count("mamba_d_head"),
            state_size=config.count("mamba_d_state"),
            conv_kernel=config.count("mamba_d_conv"),
        ),
        ssm_dtype=state_dtype(config),
    )
