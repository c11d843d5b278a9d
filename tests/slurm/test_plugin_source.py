"""The SPANK plugin's source against headers as newer releases of Slurm have them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.slurm import cluster as slurm

#: slurm.h of 26.05 in what the plugin calls, over the installed one
HEADER_26_05 = """
#define slurm_load_job of_this_release
#include_next <slurm/slurm.h>
#undef slurm_load_job
typedef struct { uint64_t sluid; uint32_t job_id, step_het_comp, step_id; } id_26_05;
extern int slurm_load_job(job_info_msg_t **resp, id_26_05 id, uint16_t flags);
#ifdef SLURM_BACKWARD_COMPAT
inline static int of_job(job_info_msg_t **resp, uint32_t job_id, uint16_t flags) {
  return slurm_load_job(resp, (id_26_05){.job_id = job_id}, flags);
}
#define slurm_load_job(resp, id, ...) \\
  _Generic((id), id_26_05 : slurm_load_job, default : of_job)((resp), (id), __VA_ARGS__)
#endif
"""


def test_the_jobs_id_of_26_05(tmp_path: Path) -> None:
    """It is a struct there, and a number only where the source asks for that."""
    if not slurm.HEADER.exists():
        pytest.skip(f"{slurm.HEADER} is missing (Debian: libslurm-dev)")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "slurm.h").write_text(HEADER_26_05)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-isystem", str(tmp_path)]
    command = ["gcc", *flags, "-isystem", str(slurm.INCLUDE), str(slurm.SOURCES / "vgpu_spank.c")]
    subprocess.run(command, check=True)
