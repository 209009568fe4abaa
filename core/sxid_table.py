"""The SXid codes of NVSwitch before NVLink 5: data, nothing else.

Codes as the vendor's public catalogue has them, in our words; where public lists disagree, docs/xids.md says whom we
follow. One code per line: code|meaning|role|scope|fatal|action|follow-up|note.
"""

from typing import Final

SXIDS: Final = """\
10001|Host_priv_error|informational|fabric|no|ignore|None|Told beside fatal ones it belongs to them
10002|Host_priv_timeout|informational|fabric|no|ignore|None|Told beside fatal ones it belongs to them
10003|Host_unhandled_interrupt|cause|fabric|yes|reset_gpu|Reset all GPUs and switches of the node|
10004|Host_thermal_event_start|informational|fabric|no|ignore|Check cooling|
10005|Host_thermal_event_end|informational|fabric|no|ignore|Check cooling|The end of a thermal event: all clear
11001|ingress invalid command|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11004|Ingress invalid ACL|informational|fabric|no|ignore|None on bare metal; in shared NVSwitch mode restart the guest|
11009|ingress invalid VCSet|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11012|Single bit ECC errors|informational|fabric|no|ignore|None|
11013|ingress header DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11018|ingress RID DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11019|ingress RLAN DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11020|ingress control parity|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
11021|Single bit ECC errors|informational|fabric|no|ignore|None|
11022|Single bit ECC errors|informational|fabric|no|ignore|None|
11023|Single bit ECC errors|informational|fabric|no|ignore|None|
12001|egress crossbar overflow|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12002|egress packet route|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12020|egress sequence ID error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
12021|Single bit ECC errors|informational|fabric|no|ignore|None|
12022|egress input ECC DBE error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12023|Single bit ECC errors|informational|fabric|no|ignore|None|
12024|egress output ECC DBE error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12025|egress credit overflow|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12026|egress destination request ID error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12027|egress destination response ID error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12028|egress nonposted PRIV error|informational|fabric|no|ignore|None on bare metal; in shared NVSwitch mode restart the guest|Very common at boot and when a job ends
12030|egress control parity error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12031|egress credit parity error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
12032|egress flit type mismatch|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
14017|TS ATO timeout|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15001|route buffer over/underflow|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15006|route transdone over/underflow|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15008|Single bit ECC errors|informational|fabric|no|ignore|None|
15009|route GLT DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15010|route parity|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15011|Single bit ECC errors|informational|fabric|no|ignore|None|
15012|route incoming DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
15013|route credit parity|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19047|NCISOC HDR ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19048|NCISOC DAT ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19049|Single bit ECC errors|informational|fabric|no|ignore|None|
19054|HDR RAM ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19055|Single bit ECC errors|informational|fabric|no|ignore|None|
19056|DAT0 RAM ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19057|Single bit ECC errors|informational|fabric|no|ignore|None|
19058|DAT1 RAM ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19059|Single bit ECC errors|informational|fabric|no|ignore|None|
19060|CREQ RAM HDR ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19061|CREQ RAM DAT ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19062|Single bit ECC errors|informational|fabric|no|ignore|None|
19063|Response RAM HDR ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19064|Response RAM DAT ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19065|Single bit ECC errors|informational|fabric|no|ignore|None|
19066|COM RAM HDR ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19067|COM RAM DAT ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19068|Single bit ECC errors|informational|fabric|no|ignore|None|
19069|RSP1 RAM HDR ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19070|RSP1 RAM DAT ECC DBE Error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
19071|Single bit ECC errors|informational|fabric|no|ignore|None|
19084|AN1 Heartbeat Timeout Error|cause|fabric|no|reset_gpu|Reset all GPUs and switches of the node|Printed as Non-fatal, and yet everything is reset
20001|TX Replay Error|informational|link|no|ignore|Watch NVLink throughput|
20009|RX Short Error Rate|informational|link|no|ignore|Watch; signal quality|Often comes before worse
20012|Broken/inconsistent connection|cause|link|no|contact_vendor|Check mechanicals|
20034|LTSSM Fault Up|cause|link|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|Three lines per event
22003|Minion Halt|cause|fabric|yes|drain_reboot|Drain and reboot the host|
22011|Minion exterror|cause|fabric|yes|drain_reboot|Drain and reboot the host|
22012|Minion Link NA interrupt|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
22013|Minion Link DLREQ interrupt|informational|link|no|ignore|None|Seen at boot
23001|ingress SRC-VC buffer overflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23002|ingress SRC-VC buffer underflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23003|egress DST-VC credit overflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23004|egress DST-VC credit underflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23005|ingress packet burst error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23006|ingress packet sticky error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23007|possible bubbles at ingress|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23008|ingress packet invalid dst error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23009|ingress packet parity error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23010|ingress SRC-VC buffer overflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23011|ingress SRC-VC buffer underflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23012|egress DST-VC credit overflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23013|egress DST-VC credit underflow|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23014|ingress packet burst error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23015|ingress packet sticky error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23016|possible bubbles at ingress|cause|fabric|yes|drain_reboot|Drain and reboot the host|
23017|ingress credit parity error|cause|fabric|yes|drain_reboot|Drain and reboot the host|
24001|Single bit ECC errors|informational|fabric|no|ignore|None|
24002|Single bit ECC errors|informational|fabric|no|ignore|None|
24003|Single bit ECC errors|informational|fabric|no|ignore|None|
24004|sourcetrack TCEN0 crubmstore DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
24005|sourcetrack TCEN0 TD crubmstore DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
24006|sourcetrack TCEN1 crubmstore DBE|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
24007|sourcetrack timeout error|cause|fabric|yes|reset_gpu|At a link to a GPU: reset that GPU. At a link between switches: reset all GPUs and switches|
28002|thermal warning change|informational|fabric|no|ignore|Watch|"Deactivated" is an all-clear
28006|MC TS crumbstore MCTO|informational|fabric|no|ignore|Watch|
"""
