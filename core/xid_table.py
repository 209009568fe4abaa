"""The XID codes of NVIDIA's driver: data, nothing else.

Codes as the vendor's public catalogue has them, in our words; where public lists disagree, docs/xids.md says whom we
follow. One code per line: code|mnemonic|meaning|role|scope|program at fault|action|generation|source|follow-up|note.
"""

from typing import Final

XIDS: Final = """\
1|ROBUST_CHANNEL_FIFO_ERROR_FIFO_METHOD|unused; once: push buffer|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
2|ROBUST_CHANNEL_FIFO_ERROR_SW_METHOD|unused; once: push buffer|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
3|ROBUST_CHANNEL_FIFO_ERROR_UNK_METHOD|unused; once: push buffer|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
4|ROBUST_CHANNEL_FIFO_ERROR_CHANNEL_BUSY|unused; once: push buffer|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
5|ROBUST_CHANNEL_FIFO_ERROR_RUNOUT_OVERFLOW|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
6|ROBUST_CHANNEL_FIFO_ERROR_PARSE_ERR|unused; once: push buffer|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
7|ROBUST_CHANNEL_FIFO_ERROR_PTE_ERR|unused; once: push buffer address|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
8|ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT|channel idle timeout / GPU stopped processing|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|A support case if it repeats|On R590 and newer it follows a GSP heartbeat that timed out: look for 119, 120 or GSP lines before it
9|ROBUST_CHANNEL_GR_ERROR_INSTANCE|unused; once: driver programming error|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
10|ROBUST_CHANNEL_GR_ERROR_SINGLE_STEP|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
11|ROBUST_CHANNEL_GR_ERROR_MISSING_HW|bad push buffer|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|Debug the program|
12|ROBUST_CHANNEL_GR_ERROR_SW_METHOD|unused; once: driver exception handling|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
13|ROBUST_CHANNEL_GR_EXCEPTION|shader engine exception: an illegal instruction or an address out of range|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|The line names GPC, TPC and SM. The same TPC and GPC again: run the vendor's diagnostics and suspect the GPU. Once, or in different places: debug the program|One event prints several lines (warp, global, ESR): it counts once. On one rank of a program that runs well elsewhere, suspect the GPU early
14|ROBUST_CHANNEL_FAKE_ERROR|fake error|informational|process|no|ignore|Ampere and newer|vendor catalogue|None|
15|ROBUST_CHANNEL_SCANLINE_TIMEOUT|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
16|ROBUST_CHANNEL_VBLANK_CALLBACK_TIMEOUT|display vblank callback timeout|informational|gpu|no|ignore|older than Ampere|vendor catalogue|None on servers; a desktop display path event|
17|ROBUST_CHANNEL_PARAMETER_ERROR|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
18|ROBUST_CHANNEL_BUS_MASTER_TIMEOUT_ERROR|unused; once: bus mastering off|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
19|ROBUST_CHANNEL_DISP_MISSED_NOTIFIER|unused; once: display engine|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
20|ROBUST_CHANNEL_MPEG_ERROR_SW_METHOD|unused; once: MPEG stream|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
21|ROBUST_CHANNEL_ME_ERROR_SW_METHOD|unused; once: motion estimation|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
22|ROBUST_CHANNEL_VP_ERROR_SW_METHOD|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
23|ROBUST_CHANNEL_RC_LOGGING_ENABLED|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
24|ROBUST_CHANNEL_GR_SEMAPHORE_TIMEOUT|unused; once: semaphore timeout|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
25|ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY|illegal push buffer stream|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|Debug the program|
26|ROBUST_CHANNEL_FIFO_ERROR_FBISTATE_TIMEOUT|unused; once: framebuffer timeout|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
27|ROBUST_CHANNEL_VP_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
28|ROBUST_CHANNEL_VP2_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
29|ROBUST_CHANNEL_BSP_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
30|ROBUST_CHANNEL_BAD_ADDR_ACCESS|unused; once: semaphore access|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
31|ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT|memory page fault of the GPU|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|The same GPU over and over with different programs: run the vendor's diagnostics; otherwise debug the program|Also follows trouble with a peer GPU or the driver; on R595 a 154 that asks for a reboot may come after it
32|ROBUST_CHANNEL_PBDMA_ERROR|PBDMA error|cause|process|unlikely|restart_app|Ampere and newer|vendor catalogue|Mostly the signal quality of PCIe: look at AER lines and replay counters, then at the program|
33|ROBUST_CHANNEL_SEC_ERROR|unused; once: micro-controller|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
34|ROBUST_CHANNEL_MSVLD_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
35|ROBUST_CHANNEL_MSPDEC_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
36|ROBUST_CHANNEL_MSPPP_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
37|ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD|FECS unimplemented method|informational|process|possible|ignore|Ampere and newer|vendor catalogue|Check program / CUDA version if repeated|
38|ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT|FECS watchdog timeout|cause|gpu|no|ignore|Ampere and newer|vendor catalogue|Report if it repeats; treat as restart_app when the job died|
39|ROBUST_CHANNEL_CE0_ERROR|copy engine 0 exception|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case when repeated|
40|ROBUST_CHANNEL_CE1_ERROR|copy engine 1 exception|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case when repeated|
41|ROBUST_CHANNEL_CE2_ERROR|copy engine 2 exception|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case when repeated|
42|ROBUST_CHANNEL_VIC_ERROR|unused; once: video processor|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
43|ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR|a channel was reset after a fault, its program ended|consequence|process|likely|restart_app|Ampere and newer|vendor catalogue|The GPU stays healthy, the process is lost: restart the job and look for the 13 or 31 before it|The process may live on with a dead channel: a hang in which nobody says a word
44|ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW|fault during context switch|cause|process|possible|ignore|Ampere and newer|vendor catalogue|A support case if it repeats|R610 prints it with the text of a memory fault
45|ROBUST_CHANNEL_PREEMPTIVE_REMOVAL|channels cleaned up after something else|consequence|process|no|ignore|Ampere and newer|vendor catalogue|Find the earlier code (newer drivers add: caused by previous Xid N). Alone, and nobody ended the job: restart the fabric manager|Thousands are normal when a job ends
46|ROBUST_CHANNEL_GPU_TIMEOUT_ERROR|GPU timeout|cause|gpu|unlikely|reset_gpu|Ampere and newer|vendor catalogue|Support case|
47|ROBUST_CHANNEL_NVENC0_ERROR|unused; once: video encoder 0|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
48|ROBUST_CHANNEL_GPU_ECC_DBE|memory error that ECC could not correct|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|With 63 or 64: drain, then reset. Alone: reset and run field diagnostics. SRAM: read the SRAM threshold flag; set means replacement. 171 and 172 say which memory|A reset needs a GPU that nobody uses: reboot where that cannot be had
49|SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
50|SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
51|SILENT_RUNNING_STRESS_TEST_FAILURE|unused; R610: a channel group was lost|unknown|gpu|unknown|reset_gpu|R610 drivers|driver header|Follow the 154 after it|The vendor's catalogue calls it unused; R610 prints it (BAD_TSG)
52|SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
53|SILENT_RUNNING_TEMP_REDUCED_CLOCKING|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
54|SILENT_RUNNING_PWR_REDUCED_CLOCKING|auxiliary power not connected|cause|gpu|no|contact_vendor|Ampere, Hopper, Blackwell|vendor catalogue|Check power cabling/PSU|
55|SILENT_RUNNING_TEMPERATURE_READ_ERROR|unused / reserved|unknown|gpu|unknown|contact_vendor|none known|vendor catalogue|Unknown code on a modern GPU: report, do not act upon it|
56|DISPLAY_CHANNEL_EXCEPTION|display engine|informational|gpu|no|ignore|older than Ampere|vendor catalogue|Old GPUs only|
57|FB_LINK_TRAINING_FAILURE_ERROR|video memory interface programming|cause|gpu|no|contact_vendor|older than Ampere|vendor catalogue|Old GPUs only|
58|FB_MEMORY_ERROR|unstable video memory interface|cause|gpu|no|contact_vendor|older than Ampere|vendor catalogue|Old GPUs only|
59|PMU_ERROR|unused; once: micro-controller|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
60|ROBUST_CHANNEL_SEC2_ERROR|SEC2 / video processor exception|cause|process|no|restart_app|Ampere and newer|vendor catalogue|Software investigation|
61|PMU_BREAKPOINT|the power controller of the GPU met a breakpoint|cause|gpu|no|reset_gpu|older than Ampere|vendor catalogue|Reset, then reboot|
62|PMU_HALT_ERROR|the power controller of the GPU halted|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|A support case; hardware when it repeats|nvidia-smi may hang with it; on R610 a 154 follows
63|INFOROM_DRAM_RETIREMENT_EVENT|a memory row is to be remapped (before Ampere: a page was retired)|informational|gpu|no|ignore|Ampere and newer|vendor catalogue|The remap takes effect at the next reset of the GPU: plan one at the end of the job. With 48, 94 or 95 follow those|Also after corrected errors; the pending flag of NVML is the state to watch
64|INFOROM_DRAM_RETIREMENT_FAILURE|remapping a memory row (before Ampere: retiring a page) failed|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|Reset, then read the flag of failed remaps: set means replacement|Older drivers write: Blacklisting failed. The list is full or the page was retired before
65|ROBUST_CHANNEL_NVENC1_ERROR|unused; once: video encoder 1|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
66|ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION|illegal register access by driver|cause|process|possible|ignore|Ampere and newer|vendor catalogue|Software investigation|
67|ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION|FECS verification violation|cause|process|possible|ignore|Ampere and newer|vendor catalogue|Support case|
68|ROBUST_CHANNEL_NVDEC0_ERROR|video decoder 0 exception|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
69|ROBUST_CHANNEL_GR_CLASS_ERROR|graphics class error|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|Debug the program|
70|ROBUST_CHANNEL_CE3_ERROR|copy engine 3 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
71|ROBUST_CHANNEL_CE4_ERROR|copy engine 4 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|A support case if it repeats|Some guides show an NVLink message under this number: read the text, too
72|ROBUST_CHANNEL_CE5_ERROR|copy engine 5 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
73|ROBUST_CHANNEL_NVENC2_ERROR|unused; once: video encoder 2|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
74|NVLINK_ERROR|NVLink error (before Blackwell)|cause|link|no|reset_gpu|Ampere, Hopper|vendor catalogue|Some bits of its seven registers mean a broken link, some only the other end. The same link twice: diagnostics, then replacement; look at both ends and at the switch|The reporting GPU need not be the guilty one
75|ROBUST_CHANNEL_CE6_ERROR|copy engine 6 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
76|ROBUST_CHANNEL_CE7_ERROR|copy engine 7 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
77|ROBUST_CHANNEL_CE8_ERROR|copy engine 8 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
78|VGPU_START_ERROR|vGPU start error|cause|process|no|contact_vendor|Ampere and newer|vendor catalogue|Align guest/host driver versions|
79|ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS|the GPU has fallen off the bus|cause|gpu|no|drain_reboot|Ampere and newer|vendor catalogue|Reboot the host; look at power, heat, riser and PCIe; when it repeats, replacement|The driver prints a twin line without a number and perhaps a 154: one fault. NVML answers GPU_IS_LOST. A GPU lost at start prints no Xid at all
80|PBDMA_PUSHBUFFER_CRC_MISMATCH|push buffer CRC mismatch|cause|process|unlikely|restart_app|Ampere, Hopper|vendor catalogue|Check PCIe|
81|ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR|unused; once: VGA subsystem|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
82|ROBUST_CHANNEL_NVJPG0_ERROR|JPEG engine 0 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
83|ROBUST_CHANNEL_NVDEC1_ERROR|video decoder 1 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
84|ROBUST_CHANNEL_NVDEC2_ERROR|video decoder 2 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
85|ROBUST_CHANNEL_CE9_ERROR|copy engine 9 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
86|ROBUST_CHANNEL_OFA0_ERROR|optical flow 0 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
87|NVTELEMETRY_DRIVER_REPORT|unused; once: telemetry report|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
88|ROBUST_CHANNEL_NVDEC3_ERROR|video decoder 3 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
89|ROBUST_CHANNEL_NVDEC4_ERROR|video decoder 4 error|cause|process|possible|restart_app|Ampere and newer|vendor catalogue|Support case if repeated|
90|LTC_ERROR|unused; once: LTC error|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
91|RESERVED_XID|unused; once: reserved|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
92|EXCESSIVE_SBE_INTERRUPTS|very many corrected memory errors|informational|gpu|no|ignore|Ampere and newer|vendor catalogue|Watch the rate of corrected errors; a support case when it lasts|Such a storm can stall whoever asks the driver for 45 s and more
93|INFOROM_ERASE_LIMIT_EXCEEDED|InfoROM wear limit|informational|gpu|no|ignore|Ampere|vendor catalogue|Support case|
94|ROBUST_CHANNEL_CONTAINED_ERROR|memory error, contained: one program lost|cause|process|no|restart_app|Ampere and newer|vendor catalogue|Only the process that owned the memory dies. Reset the GPU at the end of the job, so that the remap takes effect; again: as 48|
95|ROBUST_CHANNEL_UNCONTAINED_ERROR|memory error, not contained|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|Everything on this GPU is suspect: stop it, reset before new work. With MIG drain all instances first; without, reboot is the documented way|
96|ROBUST_CHANNEL_NVDEC5_ERROR|video decoder 5 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
97|ROBUST_CHANNEL_NVDEC6_ERROR|video decoder 6 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
98|ROBUST_CHANNEL_NVDEC7_ERROR|video decoder 7 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
99|ROBUST_CHANNEL_NVJPG1_ERROR|JPEG engine 1 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
100|ROBUST_CHANNEL_NVJPG2_ERROR|JPEG engine 2 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
101|ROBUST_CHANNEL_NVJPG3_ERROR|JPEG engine 3 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
102|ROBUST_CHANNEL_NVJPG4_ERROR|JPEG engine 4 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
103|ROBUST_CHANNEL_NVJPG5_ERROR|JPEG engine 5 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
104|ROBUST_CHANNEL_NVJPG6_ERROR|JPEG engine 6 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
105|ROBUST_CHANNEL_NVJPG7_ERROR|JPEG engine 7 error|cause|process|possible|restart_app|Hopper and newer|vendor catalogue|Support case if repeated|
106|SMBPBI_TEST_MESSAGE|SMBPBI test message|informational|gpu|no|ignore|Ampere and newer|vendor catalogue|None|
107|SMBPBI_TEST_MESSAGE_SILENT|SMBPBI silent test message|informational|gpu|no|ignore|Ampere and newer|vendor catalogue|None|
108|NVLINK_REMOTE_TRANSLATION_ERROR|NVLink remote translation|informational|link|possible|ignore|Ampere and newer|vendor catalogue|See 137|
109|ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR|context switch timed out|cause|gpu|possible|reset_gpu|Ampere and newer|vendor catalogue|Reset. Where GSP heartbeat lines come first it is the firmware, not the program|Drivers before R570 print no 154 for it
110|SEC_FAULT_ERROR|security fault|cause|gpu|no|reset_gpu|Hopper and newer|vendor catalogue|Uncommon unless hardware; cold reset|
111|BUNDLE_ERROR_EVENT|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
112|DISP_SUPERVISOR_ERROR|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
113|DP_LT_FAILURE|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
114|HEAD_RG_UNDERFLOW|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
115|CORE_CHANNEL_REGS|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
116|WINDOW_CHANNEL_REGS|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
117|CURSOR_CHANNEL_REGS|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
118|HEAD_REGS|unused; once: display pipeline|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
119|GSP_RPC_TIMEOUT|the firmware of the GPU (GSP) answers no more|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|Reset; if it does not come back, power-cycle. The same node twice: newer driver and firmware, then the vendor|The process in the line is the caller, not the culprit. Each call then blocks for 6 s (R535) to 45 s (R550 and newer), whoever asks
120|GSP_ERROR|the firmware of the GPU (GSP) crashed|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|As 119; a crash dump of many lines follows|
121|C2C_ERROR|C2C link correctable error|informational|gpu|no|ignore|Grace Blackwell|vendor catalogue|A support case if it is frequent|Correctable, without effect
122|SPI_PMU_RPC_READ_FAIL|SPI PMU RPC read failure|informational|gpu|no|ignore|older than Ampere|older vendor guide|Open a case if it repeats|
123|SPI_PMU_RPC_WRITE_FAIL|SPI PMU RPC write failure|informational|gpu|no|ignore|older than Ampere|older vendor guide|Open a case if it repeats|
124|SPI_PMU_RPC_ERASE_FAIL|SPI PMU RPC erase failure|informational|gpu|no|ignore|older than Ampere|older vendor guide|Open a case if it repeats|
125|INFOROM_FS_ERROR|InfoROM file system failure|informational|gpu|no|ignore|older than Ampere|older vendor guide|Open a case if it repeats|
126|ROBUST_CHANNEL_CE10_ERROR|copy engine 10 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
127|ROBUST_CHANNEL_CE11_ERROR|copy engine 11 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
128|ROBUST_CHANNEL_CE12_ERROR|copy engine 12 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
129|ROBUST_CHANNEL_CE13_ERROR|copy engine 13 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
130|ROBUST_CHANNEL_CE14_ERROR|copy engine 14 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
131|ROBUST_CHANNEL_CE15_ERROR|copy engine 15 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
132|ROBUST_CHANNEL_CE16_ERROR|copy engine 16 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
133|ROBUST_CHANNEL_CE17_ERROR|copy engine 17 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
134|ROBUST_CHANNEL_CE18_ERROR|copy engine 18 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
135|ROBUST_CHANNEL_CE19_ERROR|copy engine 19 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
136|ALI_TRAINING_FAIL|NVLink training failed|cause|link|no|reset_gpu|Hopper|vendor catalogue|Investigate link signal integrity|
137|NVLINK_PRIV_ERR|NVLink privilege error (illegal peer access)|cause|process|likely|restart_app|Ampere and newer|vendor catalogue|A peer touched memory it may not: debug the P2P program; look on the REMOTE GPU for its 31/43|
138|ROBUST_CHANNEL_DLA_ERROR|unused; once: DLA error|unknown|gpu|unknown|contact_vendor|none known|older vendor guide|Unknown code on a modern GPU: report, do not act upon it|
139|ROBUST_CHANNEL_OFA1_ERROR|optical flow 1 error|cause|process|possible|restart_app|Blackwell and newer|vendor catalogue|Support case if repeated|
140|UNRECOVERABLE_ECC_ERROR_ESCAPE|memory error that ECC could not correct, and no page could be set aside for|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|Support case; check remap state|
141|ROBUST_CHANNEL_FAST_PATH_ERROR|CUDA fast path error|cause|process|possible|ignore|Hopper and newer|vendor catalogue|Support case|
142|ROBUST_CHANNEL_NVENC3_ERROR|video encoder 3 error|informational|gpu|no|contact_vendor|Grace Blackwell|vendor catalogue|None for training|
143|GPU_INIT_ERROR|the GPU failed to initialise|cause|gpu|no|reset_gpu|Hopper and newer|vendor catalogue|Hardware inspection when repeated|
144|NVLINK_SAW_ERROR|NVLink5 SAW error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
145|NVLINK_RLW_ERROR|NVLink5 RLW (remote load/store) error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
146|NVLINK_TLW_ERROR|NVLink5 TLW (transport) error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
147|NVLINK_TREX_ERROR|NVLink5 TREX error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
148|NVLINK_NVLPW_CTRL_ERROR|NVLink5 NVLPW control error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
149|NVLINK_NETIR_ERROR|NVLink 5: link down, bit errors, module fault|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
150|NVLINK_MSE_ERROR|NVLink5 MSE watchdog (NVLink management firmware) error|cause|link|no|decode|Blackwell and newer|vendor catalogue|What it says (Fatal or Nonfatal) is the least of it; sub-component and status words tell more, by the vendor's table. Check cable and peer|Nonfatal ones on many GPUs beside one Fatal: that one is the origin. Link -1: not told of one link
151|ROBUST_CHANNEL_KEY_ROTATION_ERROR|key rotation error (confidential computing)|cause|node|no|drain_reboot|Hopper and newer|vendor catalogue|Restart the VM|
152|ROBUST_CHANNEL_DLA_SMMU_ERROR|DLA SMMU error|informational|gpu|no|ignore|other products|vendor catalogue|Not on data-centre GPUs|
153|ROBUST_CHANNEL_DLA_TIMEOUT|DLA timeout|informational|gpu|no|ignore|other products|vendor catalogue|Not on data-centre GPUs|
154|GPU_RECOVERY_ACTION_CHANGED|the action that the driver asks for has changed|consequence|gpu|no|stated|Ampere and newer|vendor catalogue|Its number counts, not its label: 0 clear, 1 reset, 2 reboot the node, 3 drain traffic between peers, 4 drain and reset, 5 recover the IMEX domain, 6 reset of the bus, 7 reboot of the system|A summary of another Xid. The numbers are not in order of weight. A request to reboot may be the whole system's and show on every GPU. After a 79 it may ask for less than is needed: the heavier counts
155|NVLINK_SW_DEFINED_ERROR|NVLink software-defined error (includes planned link-down)|cause|link|possible|reset_gpu|Blackwell and newer|vendor catalogue|Somebody may have taken the link down on purpose: ask before the hardware is blamed|
156|RESOURCE_RETIREMENT_EVENT|resource retirement event|cause|gpu|no|reset_gpu|Hopper and newer|vendor catalogue|Reset at the end of the job; nothing more afterwards|
157|RESOURCE_RETIREMENT_FAILURE|resource retirement failure|informational|gpu|no|ignore|Hopper and newer|vendor catalogue|No spare resources left: it runs on; plan its replacement|
158|GPU_FATAL_TIMEOUT|GPU fatal timeout|cause|gpu|no|reset_gpu|Ampere and newer|vendor catalogue|Support case|
159|ROBUST_CHANNEL_CHI_NON_DATA_ERROR|C2C/CHI non-data error|cause|gpu|no|reset_gpu|Blackwell and newer|vendor catalogue|With UVM or vGPU in use: reset; otherwise nothing. Report it when it comes alone|
160|CHANNEL_RETIREMENT_EVENT|channel retirement event|consequence|process|no|ignore|Blackwell and newer|vendor catalogue|Software investigation|
161|CHANNEL_RETIREMENT_FAILURE|channel retirement failure|consequence|process|no|ignore|Blackwell and newer|vendor catalogue|Software investigation|
162|PSHC_REENGAGED|power smoothing re-engaged|informational|gpu|no|ignore|Blackwell and newer|vendor catalogue, names no action|Good news event|
163|PSHC_DISENGAGED|power smoothing disengaged|informational|gpu|no|ignore|Blackwell and newer|vendor catalogue, names no action|Check temperature; job speed/power swings|
164|PSHC_LOW_LIFETIME|power smoothing low lifetime|informational|gpu|no|ignore|Blackwell and newer|vendor catalogue, names no action|Plan replacement only if the feature is wanted|
165|PSHC_ZERO_LIFETIME|power smoothing lifetime exhausted|informational|gpu|no|ignore|Blackwell and newer|vendor catalogue, names no action|Plan replacement only if the feature is wanted|
166|NVLINK_SECURE_CRYPTO_ERR|NVLink secure (CC) traffic before set-up|cause|link|no|reset_gpu|Blackwell and newer|vendor catalogue, names no action|Confidential computing only|
167|PCIE_FATAL_TIMEOUT|PCIe fatal timeout|cause|gpu|no|reset_gpu|Hopper and newer|vendor catalogue, names no action|Check PCIe/AER; no bucket in catalogue|
168|REDUCED_GPU_MEMORY_CAPACITY|reduced GPU memory capacity (WPR errors, ECC off)|cause|gpu|no|contact_vendor|Ampere and newer|vendor catalogue, names no action|Only with ECC disabled; no bucket in catalogue|
169|SEC2_HALT_ERROR|SEC2 halt|cause|gpu|no|reset_gpu|Hopper and newer|vendor catalogue, names no action|No bucket in catalogue|
170|NVLINK_SECURE_OTHER|NVLink secure other (CC)|informational|link|no|ignore|Blackwell and newer|vendor catalogue, names no action|Confidential computing only; no bucket in catalogue|
171|UNCORRECTABLE_DRAM_ERROR|uncorrectable DRAM error (qualifier of 48)|consequence|gpu|no|reset_gpu|Ampere and newer|vendor catalogue, names no action|The memory of the 48 beside it is DRAM: follow 63 and 64|Qualifies a 48
172|UNCORRECTABLE_SRAM_ERROR|uncorrectable SRAM error (qualifier of 48)|consequence|gpu|no|reset_gpu|Ampere and newer|vendor catalogue, names no action|The memory of the 48 beside it is SRAM: the threshold flag decides about replacement|Qualifies a 48
173|C2C_FATAL_LINK_FAILURE|C2C fatal link failure|cause|gpu|no|drain_reboot|unknown|driver header|No public guidance: reboot, then the vendor|
174|ROBUST_CHANNEL_RESETCHANNEL_KILL_PROCESS_SILENT|channel reset, process killed silently|cause|process|possible|ignore|unknown|driver header|No public guidance|
175|MEMORY_SUBSYSTEM_ERROR|memory subsystem error|cause|gpu|no|drain_reboot|unknown|driver header|No public guidance: reboot, then the vendor|
176|PCIE_CORRECTABLE_ERROR_FAULT|PCIe correctable error fault|informational|gpu|no|ignore|unknown|driver header|No public guidance: watch the PCIe counters|
"""
