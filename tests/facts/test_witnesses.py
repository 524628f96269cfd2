"""NVML's document and nvidia-smi's output: answers, refusals, half answers, hostile ones."""

from __future__ import annotations

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent, Known
from doctor.facts.limits import limits_of_mask
from doctor.facts.nvml import read_nvml
from doctor.facts.smi import read_smi
from doctor.facts.xmltree import XmlError, parse_xml
from tests.facts.evidence import evidence

SMI = ("nvidia-smi", "-q", "-x")


def one_gpu(**fields: object):
    row = {"index": 0, "pci_info": {"bus_id": "00000000:41:00.0"}, **fields}
    fact = read_nvml(evidence(nvml={"count": 1, "driver_version": "580.95.05", "gpus": [row]}))
    assert isinstance(fact, Known)
    return fact.value.gpus[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "total_ecc_errors": {
                    "corrected_volatile": 1,
                    "uncorrected_volatile": 2,
                    "corrected_aggregate": 3,
                    "uncorrected_aggregate": 4,
                }
            },
            {"ecc_uncorrected_volatile": 2, "ecc_corrected_aggregate": 3, "ecc_uncorrected_aggregate": 4},
        ),
        ({"remapped_rows": [1, 2, 1, 0]},
         {"remapped_rows_uncorrectable": 2, "remap_pending": True, "remap_failure": False}),
        ({"clock_info": {"sm": 210, "mem": 405}, "max_clock_info": {"sm": 2520}},
         {"clock_sm_mhz": 210, "clock_memory_mhz": 405, "clock_sm_max_mhz": 2520}),
        ({"temperature": 41, "temperature_threshold": {"slowdown": 92}},
         {"temperature_c": 41, "temperature_slowdown_c": 92, "temperature_margin_c": None}),
        ({"mig_mode": [1, 0]}, {"mig_mode": True, "mig_mode_pending": False}),
        ({"compute_mode": 3}, {"compute_mode": "exclusive_process"}),
        ({"virtualization_mode": 2}, {"virtualisation_mode": "vgpu"}),
        ({"virtualization_mode": 9}, {"virtualisation_mode": "unknown_9"}),
        ({"gpu_recovery_action": 4}, {"recovery_action": "drain_and_reset"}),
        (
            {"gpu_fabric_info": {"state": 2, "status": 0}},
            {"fabric_state": "in_progress", "fabric_status": None},
        ),
        (
            {"gpu_fabric_info": {"state": 3, "status": 0}},
            {"fabric_state": "completed", "fabric_status": "success"},
        ),
        ({"gpu_fabric_info": {"state": 3, "status": 15}}, {"fabric_status": "error_15"}),
        ({"compute_running_processes": [{"pid": 1}, {"pid": 2}]}, {"process_count": 2}),
        ({"current_clocks_event_reasons": 0x24}, {"clock_limits": ("sw_power_cap", "sw_thermal_slowdown")}),
        ({"retired_pages_pending_status": 1}, {"retired_pages_pending": True}),
        ({"errors": {"serial": "Not Supported", "temperature": "GPU is lost", "x": None}},
         {"errors": {"temperature": "GPU is lost"}}),
        # Wrong types are no answer, for that field alone.
        ({"name": 7, "uuid": ["x"], "temperature": "hot", "ecc_mode": "on", "power_usage": 1e300,
          "mig_mode": 3, "memory_info": [1], "remapped_rows": {"a": 1}, "errors": [], "gpu_fabric_info": 5},
         {"name": None, "uuid": None, "temperature_c": None, "ecc_mode": None, "power_w": None,
          "mig_mode": None, "memory_bytes": None, "remap_pending": None, "errors": {}, "fabric_state": None}),
    ],
)  # fmt: skip
def test_getters(fields, expected):
    gpu = one_gpu(**fields)
    assert {name: getattr(gpu, name) for name in expected} == expected


def test_nvml_refuses():
    doc = {"errors": {"init": {"code": 18, "text": "RM has detected an NVML/RM version mismatch."}}}
    report = read_nvml(evidence(nvml=doc)).value
    assert (report.error, report.error_code, report.gpus) == (
        "RM has detected an NVML/RM version mismatch.",
        18,
        (),
    )


def test_one_gpu_cannot_be_opened():
    doc = {
        "count": 2,
        "driver_version": "580.95.05",
        "gpus": [{"index": 0}],
        "errors": {"gpu 1": {"code": 15, "text": "GPU is lost"}},
    }
    report = read_nvml(evidence(nvml=doc)).value
    assert (report.error, report.device_errors, len(report.gpus)) == ("", ("gpu 1: GPU is lost",), 1)


def with_status(status: str, data: bytes) -> Evidence:
    item = Item(key="nvml", status=status, path="nvml.json", detail="said so")
    return Evidence(Meta(items=(item,)), {"nvml.json": data})


@pytest.mark.parametrize(
    ("status", "data", "reason", "detail"),
    [
        (
            "missing",
            b'{"errors": {"init": {"code": 12, "text": "no such file"}}}',
            "not_installed",
            "said so",
        ),
        ("timeout", b'{"at": "nvmlInit"}', "timeout", "no answer from nvmlInit"),
        ("timeout", b"", "timeout", "said so"),
        ("error", b"", "failed", "said so"),
        ("denied", b"", "denied", "said so"),
        ("ok", b"", "unreadable", "not a JSON object"),
        ("ok", b"[1, 2", "unreadable", "not a JSON object"),
        ("ok", b"{}", "unreadable", "it holds neither an answer nor an error"),
        ("ok", b"[" * 100_000, "unreadable", "not a JSON object"),
    ],
)
def test_nvml_absent(status, data, reason, detail):
    fact = read_nvml(with_status(status, data))
    assert isinstance(fact, Absent)
    assert (fact.reason, fact.detail) == (reason, detail)


def test_gpus_that_came_before_the_hang_are_kept():
    data = b'{"driver_version": "580.95.05", "count": 3,'
    data += b' "gpus": [{"index": 0}, {"index": 1}], "at": "x of GPU 2"}'
    report = read_nvml(with_status("timeout", data)).value
    assert [gpu.index for gpu in report.gpus] == [0, 1]
    assert report.device_errors == ("index 2: no answer before the deadline",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13.580.159.04", "580.159.04"),
        ("12.535.104.05", "535.104.05"),
        ("580.95", "580.95"),
        ("1.2", "None"),
        ("", "None"),
    ],
)
def test_library_version(text, expected):
    report = read_nvml(evidence(nvml={"count": 0, "nvml_version": text})).value
    assert str(report.library_version) == expected


def test_limits_of_mask():
    assert limits_of_mask(0x1FF) == (
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "display_clock_setting",
    )
    assert limits_of_mask(0x400) == ("unknown_0x400",)
    assert (limits_of_mask(0), limits_of_mask(None), limits_of_mask(-1)) == ((), None, None)


# --- nvidia-smi

HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
XML = (
    HEAD
    + """<nvidia_smi_log>
	<driver_version>580.95.05</driver_version>
	<cuda_version>13.0</cuda_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:41:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode><current_mig>Enabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
		<serial>1650000000001</serial>
		<uuid>GPU-11111111-2222-3333-4444-555555555555</uuid>
		<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>
		<gpu_recovery_action>GPU Reset</gpu_recovery_action>
		<gsp_firmware_version>580.95.05</gsp_firmware_version>
		<pci>
			<pci_bus_id>00000000:41:00.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
				<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
			</pci_gpu_link_info>
			<replay_counter>3</replay_counter>
		</pci>
		<performance_state>P0</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_display_clocks_setting>Active</clocks_event_reason_display_clocks_setting>
		</clocks_event_reasons>
		<fb_memory_usage><total>81920 MiB</total><used>4 MiB</used></fb_memory_usage>
		<compute_mode>Exclusive_Process</compute_mode>
		<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
		<ecc_errors>
			<volatile>
				<sram_correctable>1</sram_correctable>
				<sram_uncorrectable_parity>2</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>3</sram_uncorrectable_secded>
				<dram_uncorrectable>4</dram_uncorrectable>
			</volatile>
			<aggregate><sram_correctable>5</sram_correctable><dram_correctable>6</dram_correctable>
				<dram_uncorrectable>N/A</dram_uncorrectable></aggregate>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>0</remapped_row_corr><remapped_row_unc>1</remapped_row_unc>
			<remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
		<temperature><gpu_temp>41 C</gpu_temp>
			<gpu_temp_slow_threshold>89 C</gpu_temp_slow_threshold></temperature>
		<gpu_power_readings>
			<average_power_draw>60.10 W</average_power_draw><instant_power_draw>61.50 W</instant_power_draw>
			<current_power_limit>400.00 W</current_power_limit>
			<default_power_limit>400.00 W</default_power_limit>
			<max_power_limit>400.00 W</max_power_limit>
		</gpu_power_readings>
		<clocks><sm_clock>210 MHz</sm_clock><mem_clock>1593 MHz</mem_clock></clocks>
		<max_clocks><sm_clock>1410 MHz</sm_clock></max_clocks>
		<fabric><state>In Progress</state></fabric>
		<processes><process_info><pid>1</pid></process_info></processes>
	</gpu>
	<gpu id="00000000:61:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<temperature><gpu_temp>N/A</gpu_temp></temperature>
		<clocks_throttle_reasons>
			<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
		</clocks_throttle_reasons>
		<power_readings><power_draw>20.00 W</power_draw>
			<enforced_power_limit>300.00 W</enforced_power_limit></power_readings>
		<ecc_errors><volatile><double_bit><total>9</total></double_bit></volatile></ecc_errors>
		<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>
	</gpu>
	<gpu id="00000000:81:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<temperature><gpu_temp>GPU is lost</gpu_temp></temperature>
	</gpu>
</nvidia_smi_log>
"""
)


def smi(text: str | bytes, rc: int = 0, err: str = ""):
    return read_smi(evidence(commands={SMI: (rc, text, err)}))


@pytest.mark.parametrize(
    ("said", "limits"), [("Not Active", ()), ("Active", ("sw_power_cap",)), ("N/A", None), ("", None)]
)
def test_reasons_that_limit_clocks_are_none_or_not_told(said, limits):
    """A platform that answers `N/A` does not say that nothing limits the clocks."""
    told = "<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>"
    text = XML.replace(told, told.replace(">Active<", f">{said}<") if said else "")
    assert smi(text).value.gpus[1].clock_limits == limits


def test_xml():
    report = smi(XML).value
    assert (str(report.driver_version), str(report.cuda_driver_version), report.error) == (
        "580.95.05",
        "13.0",
        "",
    )
    assert report.device_errors == ("0000:81:00.0: GPU is lost",)
    gpu, old = report.gpus
    expected = {
        "index": 0,
        "pci_address": "0000:41:00.0",
        "name": "NVIDIA A100-SXM4-80GB",
        "serial": "1650000000001",
        "mig_mode": True,
        "mig_mode_pending": False,
        "virtualisation_mode": "passthrough",
        "recovery_action": "reset",
        "link_generation": 1,
        "link_generation_max": 4,
        "link_width": 8,
        "link_width_max": 16,
        "pcie_replays": 3,
        "clock_limits": ("hw_thermal_slowdown", "display_clock_setting"),
        "memory_bytes": 81920 * 2**20,
        "memory_used_bytes": 4 * 2**20,
        "compute_mode": "exclusive_process",
        "ecc_uncorrected_volatile": 9,
        "ecc_corrected_aggregate": 11,
        "ecc_uncorrected_aggregate": None,
        "remapped_rows_uncorrectable": 1,
        "remap_pending": True,
        "remap_failure": False,
        "temperature_c": 41,
        "temperature_slowdown_c": 89,
        "temperature_margin_c": None,
        "power_w": 61.5,
        "power_limit_w": 400.0,
        "clock_sm_mhz": 210,
        "clock_sm_max_mhz": 1410,
        "fabric_state": "in_progress",
        "process_count": 1,
    }
    assert {name: getattr(gpu, name) for name in expected} == expected
    assert (old.power_w, old.power_limit_w, old.clock_limits) == (20.0, 300.0, ("sw_power_cap",))
    assert (old.ecc_uncorrected_volatile, old.retired_pages_pending, old.temperature_c) == (9, True, None)


COULD_NOT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
    "latest NVIDIA driver is installed and running."
)


@pytest.mark.parametrize(
    ("text", "rc", "error", "library"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n",
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
            "580.173",
        ),
        ("No devices were found\n", 6, "No devices were found", "None"),
        (COULD_NOT + "\n\n", 9, COULD_NOT, "None"),
        (
            "Failed to initialize NVML: Unknown Error\n",
            255,
            "Failed to initialize NVML: Unknown Error",
            "None",
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n",
            12,
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
            "None",
        ),
        ("Segmentation fault\n", 139, "Segmentation fault", "None"),
        ("", 1, "exit status 1 without a word", "None"),
    ],
)
def test_error_texts(text, rc, error, library):
    report = smi(text, rc).value
    # 255 is how the shell shows the 999 of NVML's unknown error.
    assert (report.error, report.error_code, str(report.library_version), report.gpus) == (
        error,
        999 if rc == 255 else rc,
        library,
        (),
    )


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (
            "Unable to determine the device handle for GPU 0000:04:00.0: GPU is lost.  Reboot the system",
            "0000:04:00.0",
        ),
        ("Unable to determine the device handle for GPU0000:68:00.0: Unknown Error", "0000:68:00.0"),
        ("Unable to determine the device handle for GPU1: CA:00.0: Unknown Error", "0000:ca:00.0"),
        ("Unable to determine the device handle for GPU2: 0001:CA:00.0: Unknown Error", "0001:ca:00.0"),
    ],
)
def test_a_lost_gpu(line, address):
    report = smi(line + "\n", 15).value
    assert (report.error, report.error_code, report.device_errors) == ("", 15, (f"{address}: {line}",))


def test_the_table_names_versions():
    text = "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04     CUDA Version: 13.0     |\n"
    report = read_smi(evidence(commands={("nvidia-smi",): (0, text)}, hand_made=True)).value
    assert (str(report.driver_version), str(report.cuda_driver_version), report.error) == (
        "580.159.04",
        "13.0",
        "",
    )


@pytest.mark.parametrize(
    "text",
    [
        "<nvidia_smi_log><gpu>",
        HEAD,
        "<html></html>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><nvidia_smi_log>&x;</nvidia_smi_log>",
        "<a>" * 100 + "</a>" * 100,
        b"<\xff\xfe\x00",
        "",
    ],
)
def test_unreadable_output(text):
    fact = smi(text)
    assert isinstance(fact, Absent)
    assert fact.reason == "unreadable"


def test_no_nvidia_smi():
    assert read_smi(evidence(absent={"command:nvidia-smi-q-x": "missing"})).reason == "not_installed"
    assert read_smi(evidence()).reason == "not_collected"


def test_entities_are_never_expanded():
    bomb = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'
    with pytest.raises(XmlError, match="document type"):
        parse_xml(bomb.encode())
    with pytest.raises(XmlError, match="more elements"):
        parse_xml(b"<a>" + b"<b/>" * 200_001 + b"</a>")
    with pytest.raises(XmlError, match="bytes"):
        parse_xml(b"<a>" + b" " * (32 * 2**20))
