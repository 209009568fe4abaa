/* A libnvidia-ml for tests, as far as we call it. What it answers stands in the file named by NVML_STUB, read anew at
 * every call, so that a test can break and mend GPUs under processes that run. A line of it is "KEY VALUE":
 *
 *   gpus 8                              how many there are
 *   driver 3                            another number than at init: it was reloaded, all calls answer UNINITIALIZED
 *   1.error 15                          every call for GPU 1 answers GPU_IS_LOST; "error:nvmlDeviceGetName": one call
 *   1.hang 1                            every call for GPU 1 blocks for as long as it stands there; likewise by call
 *   1.slow 1200                         milliseconds that every call for GPU 1 takes; likewise by call
 *   1.field:230 1                       a field; "1.field:213@2": of link 2; a field that is not there: NOT_SUPPORTED
 *   1.field_error:230 15                what the field itself answers, in a call that succeeds
 *   1.temperature 70                    a value of a call, by the names below; without a GPU: of all
 *   event 7 1 8 79 4294967295 4294967295  the seventh event: GPU 1, type, data, GPU instance, compute instance
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, NOT_FOUND = 28, MISMATCH = 25 };
enum { MANY = 64, NOTHING = -987654321 };
static char script[1 << 18];
static int generation = NOTHING;

static void load(void) {
    const char *path = getenv("NVML_STUB");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = file < 0 ? 0 : read(file, script + 1, sizeof script - 2);
    script[0] = '\n';
    script[n < 0 ? 1 : n + 1] = 0;
    if (file >= 0) close(file);
}
static const char *said(const char *key) {
    char line[160];
    snprintf(line, sizeof line, "\n%s ", key);
    const char *found = strstr(script, line);
    return found ? found + strlen(line) : NULL;
}
static const char *said_of(int gpu, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "%d.%s", gpu, name);
    const char *found = gpu < 0 ? NULL : said(key);
    return found ? found : said(name);
}
static long long value(int gpu, const char *name, long long otherwise) {
    const char *found = said_of(gpu, name);
    return found ? strtoll(found, NULL, 0) : otherwise;
}
static long long of_call(int gpu, const char *what, const char *call) {
    char name[128];
    snprintf(name, sizeof name, "%s:%s", what, call);
    long long found = value(gpu, name, NOTHING);
    return found != NOTHING ? found : gpu < 0 ? 0 : value(gpu, what, 0);
}
static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}
static int enter(int gpu, const char *call) {
    for (load(); of_call(gpu, "hang", call); load()) pause_ms(20);
    long long slow = of_call(gpu, "slow", call);
    if (slow) pause_ms(slow);
    if (generation != NOTHING && value(-1, "driver", 1) != generation) return UNINITIALIZED;
    return of_call(gpu, "error", call);
}
static int number(void *handle) { return (int)(long)handle - 1; }
static int gpus(void) { return value(-1, "gpus", 2); }
static void bus_of(int gpu, char *text, int room) {
    const char *told = said_of(gpu, "bus");
    if (told) snprintf(text, room, "%.*s", (int)strcspn(told, "\n"), told);
    else snprintf(text, room, "00000000:%02X:00.0", 0x0f + gpu);
}
static int text_of(int gpu, const char *name, const char *otherwise, char *text, unsigned room) {
    const char *told = said_of(gpu, name);
    if (told) snprintf(text, room, "%.*s", (int)strcspn(told, "\n"), told);
    else snprintf(text, room, "%s", otherwise);
    return OK;
}
#define ENTER(gpu) do { int wrong = enter(gpu, __func__); if (wrong) return wrong; } while (0)
#define NUMBER(name, type, key, otherwise) \
    int name(void *h, type *v) { \
        ENTER(number(h)); \
        long long found = value(number(h), key, otherwise); \
        if (found == NOTHING) return NOT_SUPPORTED; \
        *v = found; return OK; }

int nvmlInitWithFlags(unsigned flags) {
    generation = NOTHING;
    ENTER(-1);
    generation = value(-1, "driver", 1);
    return OK;
}
int nvmlShutdown(void) { generation = NOTHING; return OK; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "stub error"; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { ENTER(-1); return text_of(-1, "version", "595.45.04", v, n); }
int nvmlSystemGetNVMLVersion(char *v, unsigned n) { ENTER(-1); return text_of(-1, "library", "13.595.45.04", v, n); }
int nvmlDeviceGetCount_v2(unsigned *n) { ENTER(-1); *n = gpus(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    ENTER((int)i);
    if ((int)i >= gpus()) return INVALID;
    *h = (void *)(long)(i + 1); return OK; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **h) {
    load();
    for (int i = 0; i < gpus(); i++) {
        char known[32];
        bus_of(i, known, sizeof known);
        unsigned a[4], b[4];
        if (sscanf(bus, "%x:%x:%x.%x", a, a + 1, a + 2, a + 3) < 3 || sscanf(known, "%x:%x:%x.%x", b, b + 1, b + 2, b + 3) < 3
            || a[0] != b[0] || a[1] != b[1] || a[2] != b[2]) continue;
        ENTER(i);
        *h = (void *)(long)(i + 1);
        return OK;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetName(void *h, char *v, unsigned n) { ENTER(number(h)); return text_of(number(h), "name", "NVIDIA Stub", v, n); }
int nvmlDeviceGetUUID(void *h, char *v, unsigned n) {
    char otherwise[64];
    ENTER(number(h));
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012d", number(h));
    return text_of(number(h), "uuid", otherwise, v, n); }
struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *h, struct pci *p) {
    ENTER(number(h));
    memset(p, 0, sizeof *p);
    bus_of(number(h), p->bus_id, sizeof p->bus_id);
    return OK; }
NUMBER(nvmlDeviceGetIndex, unsigned, "index", number(h))
NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor", number(h))
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *v) {
    ENTER(number(h)); *v = value(number(h), "temperature", 40); return OK; }
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power", 90000)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "reasons", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "width_max", 16)
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, "event_types", 0x8008)
int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *v) {
    ENTER(number(h)); *v = value(number(h), "clock", 1500); return OK; }
int nvmlDeviceGetUtilizationRates(void *h, unsigned v[2]) {
    ENTER(number(h)); v[0] = value(number(h), "busy", 0); v[1] = 0; return OK; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long v[3]) {
    ENTER(number(h)); v[0] = 80ull << 30; v[2] = value(number(h), "memory_used", 1 << 30); v[1] = v[0] - v[2]; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *later) {
    ENTER(number(h)); *now = *later = value(number(h), "mig", 0); return OK; }
int nvmlDeviceGetEccMode(void *h, unsigned *now, unsigned *later) {
    ENTER(number(h)); *now = *later = value(number(h), "ecc", 1); return OK; }
int nvmlDeviceGetMemoryErrorCounter(void *h, int type, int counter, int location, unsigned long long *v) {
    char name[64];
    ENTER(number(h));
    if (counter == 0 && value(number(h), "mig", 0)) return NOT_SUPPORTED;
    snprintf(name, sizeof name, "ecc:%d:%d:%d", type, counter, location);
    long long found = value(number(h), name, location == 2 || location == 7 ? 0 : NOTHING);
    if (found == NOTHING) return NOT_SUPPORTED;
    *v = found; return OK; }
int nvmlDeviceGetRemappedRows(void *h, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
    int n = number(h);
    ENTER(n);
    if (value(n, "mig", 0)) return NOT_SUPPORTED;
    *c = value(n, "remap_corrected", 0); *u = value(n, "remap_uncorrected", 0);
    *p = value(n, "remap_pending", 0); *f = value(n, "remap_failed", 0);
    return OK; }
int nvmlDeviceGetRowRemapperHistogram(void *h, unsigned v[5]) {
    int n = number(h);
    ENTER(n);
    v[0] = value(n, "banks_max", 640); v[1] = value(n, "banks_high", 0); v[2] = value(n, "banks_partial", 0);
    v[3] = value(n, "banks_low", 0); v[4] = value(n, "banks_none", 0);
    return OK; }
struct sram { unsigned version; unsigned long long count[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(void *h, struct sram *s) {
    ENTER(number(h));
    if (s->version != (sizeof *s | 1 << 24)) return MISMATCH;
    memset(s->count, 0, sizeof s->count);
    s->count[0] = value(number(h), "sram_parity", 0);
    s->count[1] = value(number(h), "sram_secded", 0);
    s->exceeded = value(number(h), "sram_exceeded", 0);
    return OK; }
struct fabric { unsigned version; unsigned char uuid[16]; int status; unsigned clique; unsigned char state; unsigned mask;
    unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(void *h, struct fabric *f) {
    int n = number(h);
    ENTER(n);
    if (value(n, "fabric_state", NOTHING) == NOTHING) return NOT_SUPPORTED;
    if (f->version >> 24 != 2 && f->version >> 24 != 3) return MISMATCH;
    memset(f->uuid, 7, sizeof f->uuid);
    f->status = value(n, "fabric_status", 0); f->clique = value(n, "fabric_clique", 1);
    f->state = value(n, "fabric_state", 3); f->mask = value(n, "fabric_mask", 0);
    if (f->version >> 24 == 3) f->summary = value(n, "fabric_summary", 1);
    return OK; }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *up) {
    char name[32];
    ENTER(number(h));
    snprintf(name, sizeof name, "link_state@%u", link);
    long long found = value(number(h), name, NOTHING);
    if (found == NOTHING) return NOT_SUPPORTED;
    *up = found; return OK; }
int nvmlDeviceGetRepairStatus(void *h, unsigned v[3]) {
    ENTER(number(h)); return NOT_SUPPORTED; }
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct process *list) {
    ENTER(number(h));
    long long pid = value(number(h), "process", 0);
    if (!pid) { *count = 0; return OK; }
    if (!list || *count < 1) { *count = 1; return 7; }
    list[0] = (struct process){pid, 1 << 30, ~0u, ~0u};
    *count = 1; return OK; }
struct field { unsigned id, scope; long long at, took; int type, ret; union { unsigned ui; unsigned long long ull; double d; } value; };
int nvmlDeviceGetFieldValues(void *h, int n, struct field *f) {
    ENTER(number(h));
    if (sizeof *f != 40) abort();
    for (int i = 0; i < n; i++) {
        char name[48];
        snprintf(name, sizeof name, f[i].scope ? "field:%u@%u" : "field:%u", f[i].id, f[i].scope);
        int refused = value(number(h), "mig", 0) && (f[i].id == 3 || f[i].id == 4 || (f[i].id >= 142 && f[i].id <= 145));
        long long found = refused ? NOTHING : value(number(h), name, f[i].id == 230 ? 0 : NOTHING);
        f[i].ret = found == NOTHING ? NOT_SUPPORTED : OK;
        f[i].type = f[i].id == 230 ? 1 : 3;
        snprintf(name, sizeof name, "field_error:%u", f[i].id);
        if (value(number(h), name, 0)) f[i].ret = value(number(h), name, 0);
        if (found != NOTHING) { if (f[i].type == 1) f[i].value.ui = found; else f[i].value.ull = found; }
    }
    return OK; }

struct set { long long last; int dead, registered[MANY]; };
static long long next_event(struct set *set, long long *row) {
    for (const char *at = script; (at = strstr(at, "\nevent ")) != NULL; at += 7)
        if (sscanf(at + 7, "%lld %lld %lld %lld %lld %lld", row, row + 1, row + 2, row + 3, row + 4, row + 5) == 6
            && row[0] > set->last && (!set->registered[0] || set->registered[row[1] + 1])) return 1;
    return 0;
}
int nvmlEventSetCreate(struct set **made) {
    long long row[6];
    ENTER(-1);
    *made = calloc(1, sizeof **made);
    (*made)->registered[0] = 0;
    while (next_event(*made, row)) (*made)->last = row[0]; /* nothing is replayed */
    (*made)->registered[0] = 1;
    return OK; }
int nvmlEventSetFree(struct set *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, struct set *set) {
    ENTER(number(h));
    if (set->dead) return INVALID;
    if (types & ~value(number(h), "event_types", 0x8008)) return NOT_SUPPORTED;
    set->registered[number(h) + 1] = 1; return OK; }
struct event { void *device; unsigned long long type, data; unsigned gi, ci; };
int nvmlEventSetWait_v2(struct set *set, struct event *e, unsigned ms) {
    long long row[6];
    for (unsigned waited = 0;; waited += 10) {
        int wrong = enter(-1, __func__);
        if (wrong) set->dead = 1; /* as after a driver that was loaded anew */
        if (wrong || set->dead) return wrong ? wrong : INVALID;
        if (next_event(set, row)) break;
        if (waited >= ms) return TIMEOUT;
        pause_ms(10);
    }
    set->last = row[0];
    *e = (struct event){(void *)(long)(row[1] + 1), row[2], row[3], row[4], row[5]};
    return OK; }
