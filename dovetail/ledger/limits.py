"""All limits of the node in one type, and how they fit each other."""

from dataclasses import dataclass
from typing import Final

PROCESSOR_MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes in one message that a processor of ``processor_sdk`` takes, whatever the validator's limits are."""

STATE_REQUEST_ADDRESSES_MAX: Final = 20_000
"""The most addresses in one state request of a processor: more would keep the validator from others for seconds."""

_STATUS_BYTES: Final = 3 * 1024
"""The most bytes of one batch status beside its details: ids, reason and the names of a family."""

_FAMILY_LABEL_BYTES: Final = 64 * 1024
"""The most bytes of the metrics of one family: a name of 512 characters in some 20 lines."""


@dataclass(frozen=True)
class Limits:
    """Counts, bytes, milliseconds and seconds, as each name says."""

    body_bytes_max: int = 8 * 1024 * 1024
    message_bytes_max: int = PROCESSOR_MESSAGE_BYTES_MAX
    head_lines_max: int = 200
    target_escapes_max: int = 4_096
    body_chunks_unmeasured: int = 1_000
    chunk_bytes_mean_min: int = 64
    pending_batches_max: int = 20_000
    pending_transactions_max: int = 100_000
    pending_bytes_max: int = 512 * 1024 * 1024
    pending_share_percent_max: int = 90
    pending_waiting_percent_max: int = 50
    pending_unserved_percent_max: int = 10
    pending_settings_percent_max: int = 1
    pending_wait_s_max: int = 86_400
    served_families_remembered: int = 1_000
    block_transactions_max: int = 5_000
    block_bytes_max: int = 16 * 1024 * 1024
    block_addresses_max: int = 50_000
    block_execution_ms_max: int = 1_000
    state_value_bytes_max: int = 4 * 1024 * 1024
    receipt_bytes_max: int = 4 * 1024 * 1024
    transaction_changes_bytes_max: int = 32 * 1024 * 1024
    invalid_batches_remembered: int = 100_000
    invalid_bytes_remembered: int = 256 * 1024 * 1024
    invalid_transactions_remembered: int = 100_000
    no_block_ms_max: int = 30_000
    processor_missing_ms_max: int = 10_000
    dependency_wait_ms: int = 300_000
    internal_error_tries_max: int = 5
    internal_error_back_off_ms: int = 200
    processor_lost_back_off_ms_max: int = 5_000
    processors_max: int = 1_000
    connection_registered_bytes_max: int = 256 * 1024
    registered_bytes_max: int = 64 * 1024 * 1024
    processor_ping_ms: int = 10_000
    processor_silence_ms: int = 30_000
    task_answer_ms_max: int = 60_000
    comparisons_a_minute_max: int = 60
    comparison_transactions_max: int = 16
    comparison_bytes_max: int = 1024 * 1024
    packed_transactions_max: int = 2_048
    packed_bytes_max: int = 4 * 1024 * 1024
    state_list_entries_max: int = 200
    state_list_bytes_max: int = 1024 * 1024
    page_items_default: int = 100
    page_items_max: int = 1_000
    page_bytes_max: int = 16 * 1024 * 1024
    status_ids_max: int = 1_000
    status_wait_s_max: int = 3_600
    status_ids_waited_for_max: int = 400_000
    status_unknown_ids_waited_for_max: int = 40_000
    peer_messages_max: int = 25_000
    connection_unread_messages_max: int = 16
    connections_max: int = 4_000
    address_connections_max: int = 2_000
    handshake_ms_max: int = 5_000
    connection_checking_bytes_max: int = 256 * 1024 * 1024
    connection_ids_waited_for_max: int = 200_000
    family_labels_max: int = 100
    store_map_bytes_initial: int = 64 * 1024 * 1024

    @property
    def processor_message_bytes_max(self) -> int:
        """The most bytes in one message between validator and processor."""
        return min(self.message_bytes_max, PROCESSOR_MESSAGE_BYTES_MAX)

    def misfit(self) -> str | None:
        """Why a message that these limits allow would not fit into one ZeroMQ message; None if each fits.

        Whoever gets a larger message closes the connection, and everybody who uses that connection fails with it.
        """
        for name, most, bytes_max in (
            ("body_bytes_max", "processor_message_bytes_max", self.body_bytes_max),
            ("state_value_bytes_max", "processor_message_bytes_max", self.state_value_bytes_max),
            ("packed_bytes_max", "processor_message_bytes_max", self.packed_bytes_max),
            ("state_list_bytes_max", "processor_message_bytes_max", self.state_list_bytes_max),
            ("block_bytes_max", "message_bytes_max", self.block_bytes_max),
            ("receipt_bytes_max", "message_bytes_max", self.receipt_bytes_max),
            ("page_bytes_max", "message_bytes_max", self.page_bytes_max),
        ):
            if 2 * bytes_max > getattr(self, most):
                return f"{name} = {bytes_max} must be at most half of {most} = {getattr(self, most)}"
        left = self.message_bytes_max - self.page_bytes_max
        for name, count, each in (
            ("status_ids_max", self.status_ids_max, _STATUS_BYTES),
            ("family_labels_max", self.family_labels_max, _FAMILY_LABEL_BYTES),
        ):
            if count * each > left:
                return (
                    f"{name} = {count} must be at most {left // each}, so that its answer fits into message_bytes_max ="
                    f" {self.message_bytes_max}"
                )
        return None
