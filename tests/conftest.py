"""Hygiene for every test: no leaked environment, rank or process group; where recorded data lies."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from desk import Desk
from lightning.pytorch.utilities.rank_zero import rank_zero_only

PROJECT = Path(__file__).resolve().parent.parent

# What libraries set for the whole process when they are first used; tests cannot undo it and need not.
ALLOWED_ENVIRONMENT = {
    "PYTEST_CURRENT_TEST",
    "PL_GLOBAL_SEED",
    "PL_SEED_WORKERS",
    "TOKENIZERS_PARALLELISM",
    "KMP_INIT_AT_FORK",
    "KMP_DUPLICATE_LIB_OK",
    "CUDA_MODULE_LOADING",
    "CRC32C_SW_MODE",
    "TORCHINDUCTOR_CACHE_DIR",
    "WANDB_SERVICE",
    "PYGAME_HIDE_SUPPORT_PROMPT",
    "COLUMNS",
    "LINES",
}


torch.set_num_threads(1)  # tests use small matrices, on machines that they may share


@pytest.fixture(autouse=True)
def no_leaked_state():
    """Fail a test that leaves a changed environment, rank, default dtype or process group behind."""
    before = dict(os.environ)
    rank = getattr(rank_zero_only, "rank", None)
    yield
    after = dict(os.environ)
    leaked = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)} - ALLOWED_ENVIRONMENT
    rank_now, dtype = getattr(rank_zero_only, "rank", None), torch.get_default_dtype()
    initialised = torch.distributed.is_available() and torch.distributed.is_initialized()
    os.environ.clear()
    os.environ.update(before)
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        os.environ.pop(name, None)
    rank_zero_only.rank = 0 if rank is None else rank
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    if initialised:
        torch.distributed.destroy_process_group()
    assert not leaked, f"the test leaks environment variables: {sorted(leaked)}"
    assert rank_now in (None, 0, rank), f"the test leaves rank_zero_only.rank at {rank_now}"
    assert dtype is torch.float32, f"the test leaves the default dtype at {dtype}"
    assert not initialised, "the test leaves a process group behind"


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return PROJECT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Recorded phone runs: $SWITCHMEM_REAL_DATA, else ../shared/data; the test is skipped where there are none."""
    folder = Path(os.environ.get("SWITCHMEM_REAL_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"recorded data not found in {folder}; set SWITCHMEM_REAL_DATA")
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A working directory after `fit` and `test` with the fake actor. Shared: leave it as it is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        desk = Desk(tmp_path_factory.mktemp("trained"), monkeypatch)
        assert desk("fit") == 0 and desk("test") == 0
    return desk.folder


@pytest.fixture
def desk(trained, tmp_path, monkeypatch) -> Desk:
    """A copy of that directory to go on in."""
    shutil.copytree(trained, tmp_path / "desk")
    return Desk(tmp_path / "desk", monkeypatch)
