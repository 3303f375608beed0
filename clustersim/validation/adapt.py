"""Tables with columns of their own, brought into those of the training tables."""

from __future__ import annotations

from clustersim.validation.rows import Row, packaged


def internevo_memory() -> list[Row]:
    """InternEvo's memory table: packed sequences of 2,048 tokens, checkpointing on, A800."""
    rows = []
    for index, row in enumerate(packaged("internevo-memory"), start=1):
        gpus, tp, pp = row.whole("num_gpus") or 1, row.whole("tp") or 1, row.whole("pp") or 1
        micro, count = row.whole("micro_batch_size_seqs") or 1, row.whole("num_microbatches") or 1
        cells = {
            "row_id": f"internevo_memory_{index:04d}", "source": f"InternEvo memory table ({row.text('source')})",
            "system": "InternEvo", "gpu": row.text("gpu") or "", "n_gpus": str(gpus), "gpus_per_node": "8",
            "inter_node_net_gbps": "800", "model_name": f"InternLM-{row.text('model')}", "tp": str(tp), "pp": str(pp),
            "seq_len": "2048", "zero_stage": "3" if row.text("fsdp") == "True" else "1", "micro_batch": str(micro),
            "global_batch": str(micro * count * (gpus // (tp * pp))), "precision": row.text("dtype") or "",
            "activation_recompute": "full" if row.text("activation_checkpoint") == "yes" else "none",
            "memory_gb": row.text("gpu_memory_gb") or "",
        }  # fmt: skip
        rows.append(Row(cells, row.file, row.line))
    return rows


def hf_pco_memory() -> list[Row]:
    """Two public rows of a layout data set: peak memory of the fullest GPU."""
    rows = []
    for index, row in enumerate(packaged("hf-pco-sample-rows"), start=1):
        peaks = [float(part) for part in (row.text("peak_mem_gb_per_gpu_list") or "").split(";") if _is_number(part)]
        heads = row.whole("num_heads") or 1
        cells = {
            "row_id": f"hf_pco_{index:04d}", "source": f"layout data set ({row.text('dataset')})", "gpu": "A100-80GB",
            "model_name": f"Llama-like {row.text('num_layers')} layers", "n_layers": row.text("num_layers") or "",
            "hidden": row.text("hidden") or "", "ffn_hidden": row.text("ffn_hidden") or "", "n_heads": str(heads),
            "n_gpus": row.text("num_gpus") or "", "seq_len": row.text("seq_len_tokens") or "", "tp": row.text("tp") or "",
            "pp": row.text("pp") or "", "cp": row.text("cp") or "", "dp": row.text("dp") or "", "vp": "1",
            "gpus_per_node": str((row.whole("num_gpus") or 8) // (row.whole("num_hosts") or 1)),
            "zero_stage": row.text("zero_stage") or "", "global_batch": row.text("global_batch_seqs") or "",
            "memory_gb": str(max(peaks)) if peaks else "",
        }  # fmt: skip
        rows.append(Row(cells, row.file, row.line))
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
