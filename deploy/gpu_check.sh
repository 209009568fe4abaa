#!/usr/bin/env bash
# A check of rankpulse against real GPUs, in under two minutes. It changes nothing and disturbs no job.
#
#   deploy/gpu_check.sh                 what is told, what is not, and how long each call takes
#   deploy/gpu_check.sh --provoke GPU   also makes one Xid: a program of its own writes to a wrong address on that GPU,
#                                       which nobody may be using; not where MPS runs, for that ends its other clients
#
# Run it where rankpulse and nvidia-ml-py are installed. Exit code 0: everything that must work does.
set -u
PYTHON=${PYTHON:-python3}
RANKPULSE=${RANKPULSE:-rankpulse}
provoke=
while [ $# -gt 0 ]; do
  case $1 in
    --provoke) provoke=${2:?--provoke needs the number of a GPU}; shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown: $1" >&2; exit 2 ;;
  esac
done
failed=0
calls_s=40
[ -z "$provoke" ] || calls_s=80
title() { printf '\n== %s\n' "$1"; }
bad() { printf 'BAD: %s\n' "$1"; failed=1; }
within() { # SECONDS COMMAND...: what the kernel does not let go even when killed (`timeout` would wait) is left to itself
  local left=$(($1 * 5)) pid
  shift
  { "$@" <&3 & } 3<&0
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$left" -le 0 ]; then
      disown "$pid"
      kill -KILL "$pid" 2>/dev/null
      echo "(no end in time: $1)"
      return 124
    fi
    left=$((left - 1))
    sleep 0.2
  done
  wait "$pid"
}

title "machine"
uname -sr
within 8 nvidia-smi -L || echo "nvidia-smi does not answer (it is not needed)"
ls /proc/driver/nvidia/gpus 2>/dev/null || echo "no /proc/driver/nvidia/gpus: NVML will be asked which GPUs there are"

title "rankpulse gpu --now"
within 40 $RANKPULSE gpu --now
case $? in 0) ;; 1) echo "a GPU is ill, or does not answer: see above" ;; *) bad "the command failed" ;; esac

title "calls: what is told, what is not, how long it takes"
PROVOKE=$provoke within "$calls_s" "$PYTHON" -u - <<'PY' || bad "the process that asks NVML did not do what it must"
import json, os, subprocess, sys, time

child = subprocess.Popen(
    [sys.executable, "-P", "-m", "rankpulse.agent.nvml_child", '{"gpus": null, "events": true, "wait_ms": 500}'],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
began = time.monotonic()
touched = set()


def hear(test, seconds=30.0):
    """The first line that passes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        line = child.stdout.readline()
        if not line:
            sys.exit("the process ended")
        said = json.loads(line)
        if said.get("fatal") is not None:
            sys.exit(f"NVML: {said}")
        if "begin" in said and said["begin"] not in touched:
            touched.add(said["begin"])
            print(f"asks: {said['begin']}")  # where it hangs, this is the last line
        if test(said):
            return said
    sys.exit("not told in time")


def read(bus, slow):
    child.stdin.write(json.dumps({"read": bus, "slow": slow}) + "\n")
    child.stdin.flush()
    return hear(lambda said: said.get("bus") == bus and ("values" in said or "failed" in said))


driver = hear(lambda said: "driver" in said)
print(f"NVML is there after {time.monotonic() - began:.2f} s, driver {driver['driver']}, library {driver['library']}")
buses = hear(lambda said: "buses" in said)["buses"]
events = {}
for bus in buses:
    first = read(bus, True)
    if "failed" in first:
        print(f"{bus}: does not answer: {first}")
        continue
    fast = sorted(read(bus, False)["took_s"] for _ in range(10))
    slow = sorted((read(bus, True) for _ in range(5)), key=lambda said: said["took_s"])
    print(f"{bus} {first['identity'].get('name')}: a poll takes {1e3 * fast[5]:.1f} ms (at most {1e3 * fast[-1]:.1f}), "
          f"in full {1e3 * slow[2]['took_s']:.1f} ms, the slowest call is {slow[-1]['slowest']}")
    print("  told:", ", ".join(f"{k}={v:g}" for k, v in sorted(first["values"].items())))
    print("  not told (code of NVML):", ", ".join(f"{k} ({v})" for k, v in sorted(first["unknown"].items())) or "nothing")
    print("  links:", json.dumps(first["links"][:2]), f"and so on, {len(first['links'])} of them")

if os.environ.get("PROVOKE"):
    number = int(os.environ["PROVOKE"])  # in the order of the bus, as NVML and CUDA count
    child.stdin.write(json.dumps({"read": buses[number], "slow": False, "processes": True}) + "\n")
    child.stdin.flush()
    if hear(lambda said: said.get("bus") == buses[number] and ("values" in said or "failed" in said)).get("processes"):
        sys.exit(f"GPU {number} is in use: choose one that nobody uses")
    crash = '''
import ctypes as c
cuda = c.CDLL("libcuda.so.1")
def do(code):
    if code: raise SystemExit(f"CUDA error {code}")
do(cuda.cuInit(0)); device, context, module, function = c.c_int(), c.c_void_p(), c.c_void_p(), c.c_void_p()
do(cuda.cuDeviceGet(c.byref(device), NUMBER)); do(cuda.cuCtxCreate_v2(c.byref(context), 0, device))
ptx = b".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .entry f() { .reg .u64 a; .reg .u32 b; " \\
      b"mov.u64 a, 64; mov.u32 b, 1; st.global.u32 [a], b; ret; }\\0"
do(cuda.cuModuleLoadData(c.byref(module), ptx)); do(cuda.cuModuleGetFunction(c.byref(function), module, b"f"))
do(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
print("the program ended with CUDA error", cuda.cuCtxSynchronize(), "(700: it hit a wrong address, as it should)")
'''.replace("NUMBER", str(number))
    plain = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    subprocess.run([sys.executable, "-c", crash], timeout=30, env=plain | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    event = hear(lambda said: "event" in said, 20.0)
    print(f"the driver told of it: Xid {event['data']} on {event['bus']}")
child.stdin.close()
child.wait(10)
PY

title "the kernel's log"
if within 5 dmesg >/dev/null 2>&1; then
  { dmesg -x 2>/dev/null || dmesg; } | within 10 $RANKPULSE kmsg - || bad "the kernel's log could not be read"
else
  echo "this user may not read it (CAP_SYSLOG, see kernel.dmesg_restrict): the agent would try the journal, then NVML's events"
fi

title "rankpulse preflight, what it says of GPUs"
said=$(mktemp) # no pipe: whoever reads it would wait for a process that is left to itself
within 15 $RANKPULSE preflight --store 127.0.0.1:1 >"$said" 2>/dev/null
grep -i gpu "$said" || bad "it says nothing of GPUs"
rm -f "$said"

title "result"
if [ $failed = 0 ]; then echo "everything that must work does"; else echo "see the lines that begin with BAD"; fi
exit $failed
