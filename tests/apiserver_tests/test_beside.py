"""Work beside a block: its failure is never silent, and never hides one of the block."""

import asyncio

import pytest

from tests.apiserver.beside import Beside


async def _fail() -> None:
    await asyncio.sleep(0)
    raise KeyError("nodeName")


async def _work(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("work")


async def test_work_ends_with_the_block() -> None:
    ended: list[str] = []
    async with Beside() as beside:
        beside.start(_work(ended))
        await asyncio.sleep(0)
        assert ended == []
    assert ended == ["work"]


async def test_work_that_fails_breaks_the_block_off() -> None:
    ended: list[str] = []
    with pytest.raises(ExceptionGroup) as failure:  # noqa: PT012 - the block is broken off
        async with Beside() as beside:
            beside.start(_work(ended))
            beside.start(_fail())
            await asyncio.Event().wait()
    assert failure.group_contains(KeyError, match="nodeName")
    assert ended == ["work"]
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_a_failure_of_the_block_is_raised_as_it_is() -> None:
    ended: list[str] = []
    with pytest.raises(AssertionError, match="not placed"):  # noqa: PT012 - the block fails
        async with Beside() as beside:
            beside.start(_work(ended))
            await asyncio.sleep(0)
            raise AssertionError("not placed")
    assert ended == ["work"]


async def test_a_block_that_is_cancelled_from_outside_is_cancelled() -> None:
    async def block() -> None:
        async with Beside() as beside:
            beside.start(_work([]))
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
