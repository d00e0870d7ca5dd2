"""The tunables of lccodec that tests change, so that small arrays meet the borders of large ones.

A test says what it changes, and not where that stands: a constant that moves moves in this table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

#: Where each of them stands, by the name that tests give it.
TUNABLES: Final = {
    "link_look_seconds": "lccodec.adapters.rank_parity._LOOK_SECONDS",
    "seal_piece_bytes": "lccodec.adapters.seals._PIECE_BYTES",
    "version_piece_bytes": "lccodec.adapters.weights.versions._PIECE_BYTES",
    "archive_entries_per_byte": "lccodec.adapters.torch.archive._ENTRIES_PER_BYTE",
    "rank_lock_seconds": "lccodec.chain.mend.ranks._LOCK_SECONDS",
    "rank_piece_bytes": "lccodec.chain.mend.ranks._PIECE_BYTES",
    "mirror_first_wait": "lccodec.chain.mend.mirror._FIRST_WAIT",
    "mirror_longest_wait": "lccodec.chain.mend.mirror._LONGEST_WAIT",
    "mirror_seconds_of_one_call": "lccodec.chain.mend.mirror._SECONDS_OF_ONE_CALL",
    "mirror_seconds_to_stop": "lccodec.chain.mend.mirror._SECONDS_TO_STOP",
    "decode_part": "lccodec.frame.decode._decode_part",
    "max_sent_bytes": "lccodec.chain.read.crew._MAX_SENT_BYTES",
    "min_shared_bytes": "lccodec.chain.read.crew._MIN_SHARED_BYTES",
    "follower_max_lost_bytes": "lccodec.chain.read.follow_crew._MAX_LOST_BYTES",
    "follower_min_batch_bytes": "lccodec.chain.read.follow_crew._MIN_BATCH_BYTES",
    "follower_min_places": "lccodec.chain.read.follow_crew._MIN_PLACES",
    "follower_segment_bytes": "lccodec.chain.read.follow_crew._SEGMENT_BYTES",
    "few_changed_bytes": "lccodec.loops.search._FEW_BYTES",
    "hash_part_components": "lccodec.chain.save.hash_reference._PART_COMPONENTS",
    "hindsight_max_waiting": "lccodec.chain.save.hindsight._MAX_WAITING",
    "hindsight_share": "lccodec.chain.save.saver._SETTLING_SHARE",
    "judge_first_saves": "lccodec.chain.save.judge._FIRST_SAVES",
    "judge_share_of_time": "lccodec.chain.save.judge._SHARE_OF_TIME",
    "judge_share_of_time_in_jumps": "lccodec.chain.save.judge._SHARE_OF_TIME_IN_JUMPS",
    "estimate_stretches": "lccodec.chain.save.plan._STRETCHES",
    "estimate_stretch_components": "lccodec.chain.save.plan._STRETCH_COMPONENTS",
    "reference_seconds_to_wait": "lccodec.chain.save.reference._SECONDS_TO_WAIT",
    "bucket_seconds_until_told": "lccodec.chain.store.bucket.backend._SECONDS_UNTIL_TOLD",
    "bucket_claim_seconds_for_others": "lccodec.chain.store.bucket.claim._SECONDS_FOR_OTHERS",
    "bucket_claim_seconds_to_wait": "lccodec.chain.store.bucket.claim._SECONDS_TO_WAIT",
    "web_answer_seconds": "lccodec.chain.store.bucket.backend._ANSWER_SECONDS",
    "web_listing_seconds": "lccodec.chain.store.bucket.backend._LISTING_SECONDS",
    "web_max_folders": "lccodec.chain.store.bucket.backend._MAX_FOLDERS",
    "web_max_page_bytes": "lccodec.chain.store.bucket.backend._MAX_PAGE_BYTES",
    "web_read_seconds": "lccodec.chain.store.bucket.backend._READ_SECONDS",
    "bucket_round_bytes": "lccodec.chain.store.bucket.source._ROUND_BYTES",
    "bucket_seconds_between_sweeps": "lccodec.chain.store.bucket.store._SECONDS_BETWEEN_SWEEPS",
    "bucket_window_bytes": "lccodec.chain.store.bucket.store._WINDOW_BYTES",
    "claim_seconds_to_wait": "lccodec.chain.store.claim._SECONDS_TO_WAIT",
    "calls_in_directories": "lccodec.container.folder._CALLS_IN_DIRECTORIES",
    "max_resting_files": "lccodec.container.source._MAX_RESTING",
    "file_flush_bytes": "lccodec.container.folder._FLUSH_BYTES",
    "file_piece_bytes": "lccodec.container.folder._PIECE_BYTES",
    "piece_task_bytes": "lccodec.container.piece_table._TASK_BYTES",
    "max_whole_bytes": "lccodec.container.checkpoint._MAX_WHOLE_BYTES",
    "many_names": "lccodec.container.tree._MANY",
    "split_pays": "lccodec.entropy.split._pays",
    "max_jump_bits": "lccodec.entropy.lanes._MAX_JUMP_BITS",
    "step_cost_bits": "lccodec.entropy.lanes._STEP_COST_BITS",
    "blocks_at_a_time": "lccodec.frame.decode._BLOCKS_AT_A_TIME",
    "crc_min_folded_bytes": "lccodec.loops.sums._MIN_FOLDED_BYTES",
    "codebook_places_at_a_time": "lccodec.loops.representatives._PLACES_AT_A_TIME",
    "block_log2": "lccodec.frame.encode._BLOCK_LOG2",
    "chunk_bytes": "lccodec.frame.encode._CHUNK_BYTES",
    "large_block_log2": "lccodec.frame.encode._LARGE_BLOCK_LOG2",
    "plane_min_components": "lccodec.frame.planes._MIN_COMPONENTS",
    "plane_part_multiple": "lccodec.frame.planes._PART_MULTIPLE",
    "plane_piece_bytes": "lccodec.frame.planes._PIECE_BYTES",
    "plane_places_at_a_time": "lccodec.frame.planes._PLACES_AT_A_TIME",
    "plane_words_at_a_time": "lccodec.frame.planes._WORDS_AT_A_TIME",
    "difference_max_kept_bytes": "lccodec.inspect.difference._MAX_KEPT_BYTES",
    "pool_samples": "lccodec.policy.balanced._POOL_SAMPLES",
    "residual_max_kept_bytes": "lccodec.quantizers.residual._MAX_KEPT_BYTES",
    "prediction_sample": "lccodec.quantizers.lattice._SAMPLE",
    "residual_max_sums": "lccodec.quantizers.residual._MAX_SUMS",
    "max_step_spreads": "lccodec.quantizers.uniform._MAX_STEP_SPREADS",
}


def tune(patch: pytest.MonkeyPatch, **values: Any) -> None:
    """Change tunables until a test, or the context of its patch, ends."""
    for name, value in values.items():
        patch.setattr(TUNABLES[name], value)


@contextmanager
def tuned(**values: Any) -> Iterator[None]:
    """Change tunables while the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        tune(patch, **values)
        yield
