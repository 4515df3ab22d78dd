"""The table of vendors: names, formats and units, as data.

Why it exists: `--vendors` names rows of this table. It must not hold any rule: a vendor that needs what no field of
`Vendor` can express is not supported, and is listed in UNSUPPORTED with the reason. Invariant: keys, annotations
and resource names differ between any two vendors, but for the UUIDs that both names of Hygon's cards select. Source:
HAMi v2.10 (chart defaults and device packages).
"""

from accounting.vendor import NVIDIA, RegisterFormat, Template, Vendor


def _hami(key: str, word: str, count: str, memory: str = "", cores: str = "", **more: object) -> Vendor:
    """Return a vendor whose annotations on pods follow HAMi's usual pattern. `word`: its name in them."""
    fields: dict[str, object] = {
        "memory_percentage_resource": "",
        "cordon_annotation": "",
        "devices_to_allocate_annotation": f"hami.io/{word}-devices-to-allocate",
        "devices_allocated_annotation": f"hami.io/{word}-devices-allocated",
        "use_uuid_annotation": f"hami.io/use-{word}-uuid",
        "nouse_uuid_annotation": f"hami.io/no-use-{word}-uuid",
        "use_type_annotation": "",
        "nouse_type_annotation": "",
        "numa_bind_annotation": "",
        "mode_annotation": "",
    }
    names = {"key": key, "count_resource": count, "memory_resource": memory, "cores_resource": cores}
    return Vendor(**(fields | names | more))  # type: ignore[arg-type]  # field names and types are those of Vendor


HYGON = _hami(
    "DCU",
    "dcu",
    "hygon.com/dcunum",
    "hygon.com/dcumem",
    "hygon.com/dcucores",
    register_annotation="hami.io/node-dcu-register",
    register_format=RegisterFormat.TEXT,
    handshake_annotation="hami.io/node-handshake-dcu",
    use_uuid_annotation="hygon.com/use-gpuuuid",
    nouse_uuid_annotation="hygon.com/nouse-gpuuuid",
    use_type_annotation="hygon.com/use-dcutype",
    nouse_type_annotation="hygon.com/nouse-dcutype",
    default_cores=100,
)
#: What HAMi calls the DCU after v2.10 (HAMi#2969). Nodes with an older plugin still register DCUs.
HYGON_HCU = _hami(
    "HCU",
    "hcu",
    "hygon.com/hcunum",
    "hygon.com/hcumem",
    "hygon.com/hcucores",
    register_annotation="hami.io/node-hcu-register",
    register_format=RegisterFormat.TEXT,
    handshake_annotation="hami.io/node-handshake-hcu",
    use_uuid_annotation="hygon.com/use-gpuuuid",
    nouse_uuid_annotation="hygon.com/nouse-gpuuuid",
    use_type_annotation="hygon.com/use-hcutype",
    nouse_type_annotation="hygon.com/nouse-hcutype",
    default_cores=100,
)
#: A card holds slices of one size, and its compute is shared in the same proportion.
XPU = _hami(
    "XPU",
    "xpu",
    "kunlunxin.com/vxpu",
    "kunlunxin.com/vxpu-memory",
    register_annotation="hami.io/node-register-xpu",
    handshake_annotation="hami.io/node-handshake-xpu",
    also_use_uuid_annotation="baidu.com/use-gpuuuid",
    also_nouse_uuid_annotation="baidu.com/nouse-gpuuuid",
    templates=(Template("", 24_576), Template("", 49_152), Template("", 98_304)),
    default_memory_mib=98_304,
    cores_of_memory_mib=98_304,
    one_size_per_card=True,
    one_card_only=True,
)
VASTAI = _hami(
    "Vastai",
    "Vastai",
    "vastaitech.com/va",
    register_annotation="hami.io/node-va-register",
    handshake_annotation="hami.io/node-handshake-va",
    use_uuid_annotation="vastaitech.com/use-gpuuuid",
    nouse_uuid_annotation="vastaitech.com/nouse-gpuuuid",
    registered_cores=100,
    slots_only=True,
)
BIREN = _hami(
    "Biren",
    "Biren",
    "birentech.com/gpu",
    register_annotation="hami.io/node-biren-register",
    handshake_annotation="hami.io/node-handshake-biren",
    use_uuid_annotation="birentech.com/use-gpuuuid",
    nouse_uuid_annotation="birentech.com/nouse-gpuuuid",
    registered_cores=100,
    slots_only=True,
)


def _iluvatar(chip: str) -> Vendor:
    return _hami(
        chip,
        chip,
        f"iluvatar.ai/{chip}-vgpu",
        f"iluvatar.ai/{chip}.vMem",
        f"iluvatar.ai/{chip}.vCore",
        register_annotation=f"hami.io/node-{chip}-register",
        register_format=RegisterFormat.TEXT,
        handshake_annotation=f"hami.io/node-handshake-{chip}",
        memory_factor=256,
        several_take_all=True,
    )


def _ascend(chip: str, allocatable_mib: int, capacity_mib: int, *templates: tuple[str, int]) -> Vendor:
    key = f"Ascend{chip}"
    return _hami(
        key,
        key,
        f"huawei.com/{key}",
        f"huawei.com/{key}-memory",
        register_annotation=f"hami.io/node-register-{key}",
        handshake_annotation=f"hami.io/node-handshake-{key}",
        templates=(*(Template(name, memory) for name, memory in templates), Template("", allocatable_mib)),
        largest_memory_mib=capacity_mib,
        several_only_whole=True,
        unmanaged_resource=f"huawei.com/{key}-core",
        unmanaged_annotations=(("huawei.com/vnpu-mode", "hami-core"),),
        runtime_annotation=f"huawei.com/{key}",
        predicate_time_annotation="predicate-time",
    )


#: Name on the command line -> vendor.
VENDORS: dict[str, Vendor] = {
    "nvidia": NVIDIA,
    "hygon": HYGON,
    "hygon-hcu": HYGON_HCU,
    "xpu": XPU,
    "vastai": VASTAI,
    "biren": BIREN,
    **{f"iluvatar-{chip.lower()}": _iluvatar(chip) for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")},
    "ascend-910a": _ascend(
        "910A", 32_768, 32_768, ("vir02", 2_184), ("vir04", 4_369), ("vir08", 8_738), ("vir16", 17_476)
    ),
    "ascend-910b2": _ascend(
        "910B2", 65_536, 65_536, ("vir03_1c_8g", 8_192), ("vir06_1c_16g", 16_384), ("vir12_3c_32g", 32_768)
    ),
    "ascend-910b3": _ascend("910B3", 65_536, 65_536, ("vir05_1c_16g", 16_384), ("vir10_3c_32g", 32_768)),
    "ascend-910b4": _ascend("910B4", 32_768, 32_768, ("vir05_1c_8g", 8_192), ("vir10_3c_16g", 16_384)),
    "ascend-910b4-1": _ascend("910B4-1", 65_536, 65_536, ("vir05_1c_16g", 16_384), ("vir10_3c_32g", 32_768)),
    "ascend-310p": _ascend("310P", 21_527, 24_576, ("vir01", 3_072), ("vir02", 6_144), ("vir04", 12_288)),
}

#: Name -> why it cannot be turned on.
UNSUPPORTED: dict[str, str] = {
    "amd": "its cores are compute units of a model, and its rows carry the model instead of a vendor",
    "ascend-910c": "its cards are taken in pairs of one module",
    "awsneuron": "its cores are a mask of bits and its devices are taken in blocks",
    "cambricon": "its cards come from the node's capacity, and it has a node lock of its own",
    "enflame": "its cards come from the node's capacity or from a table of profiles",
    "kunlun": "whole cards are taken by wings of four; xpu is its slices",
    "metax": "its cards come from the node's capacity, and its slices have classes that must not mix",
    "mthreads": "its cards come from the node's capacity, and a pod keeps to one of them",
}
