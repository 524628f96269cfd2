/* A stand-in for libnvidia-ml.so.1: the real bindings load it, and it answers from a text file, so that hosts
 * without a GPU run the true NVML code path.
 *
 * The library's own version is the end of its file's name, `libnvidia-ml.so.580.126.20`, as packages install it;
 * the loaded driver's is /sys/module/nvidia/version. Where they differ nvmlInit says 18, where no driver is
 * loaded 9, as the real one does.
 *
 * State: the file named by NVML_STUB_STATE, else /opt/lab/nvml.conf. One "key = value" a line; "gpuN.key" is for
 * one GPU and falls back to "gpu.key", then to a default that is built in:
 *     count = 2          gpu.name = NVIDIA H200       gpu1.temp = 97
 *     fault.nvmlInit = 18          gpu1.fault.nvmlDeviceGetTemperature = 15
 *     delay_ms.nvmlDeviceGetHandleByIndex = 500
 * A fault is an nvmlReturn_t number. A symbol that is not here is a missing function, as with an older driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <nvml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAXKV 2048
#define API __attribute__((visibility("default")))
static struct { char k[96], v[160]; } kv[MAXKV];
static int nkv, inited;
static struct timespec seen;
static off_t seen_size;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
struct nvmlDevice_st { int i; };
static struct nvmlDevice_st devs[64];

static const char *path(void) { const char *p = getenv("NVML_STUB_STATE"); return p ? p : "/opt/lab/nvml.conf"; }

static void load(void) {
  struct stat st;
  pthread_mutex_lock(&mu);
  if (stat(path(), &st)) { nkv = 0; seen.tv_sec = 0; }
  else if (st.st_mtim.tv_sec != seen.tv_sec || st.st_mtim.tv_nsec != seen.tv_nsec || st.st_size != seen_size) {
    FILE *f = fopen(path(), "r");
    char line[400];
    nkv = 0; seen = st.st_mtim; seen_size = st.st_size;
    while (f && fgets(line, sizeof line, f) && nkv < MAXKV) {
      char *eq = strchr(line, '='), *k = line, *e, *v;
      if (!eq || *line == '#') continue;
      *eq = 0; v = eq + 1;
      while (*k == ' ') k++;
      for (e = eq - 1; e >= k && *e == ' '; e--) *e = 0;
      while (*v == ' ') v++;
      for (e = v + strlen(v) - 1; e >= v && (*e == '\n' || *e == ' ' || *e == '\r'); e--) *e = 0;
      snprintf(kv[nkv].k, sizeof kv[0].k, "%.95s", k);
      snprintf(kv[nkv++].v, sizeof kv[0].v, "%.159s", v);
    }
    if (f) fclose(f);
  }
  pthread_mutex_unlock(&mu);
}
static const char *find(const char *k) {
  for (int i = nkv - 1; i >= 0; i--) if (!strcmp(kv[i].k, k)) return kv[i].v;   /* the last line wins */
  return NULL;
}
static const char *gs(int g, const char *k, const char *def) {
  char b[128]; const char *v = NULL;
  if (g >= 0) { snprintf(b, sizeof b, "gpu%d.%s", g, k); v = find(b); if (!v) { snprintf(b, sizeof b, "gpu.%s", k); v = find(b); } }
  else v = find(k);
  return v ? v : def;
}
static long long gi(int g, const char *k, long long def) { const char *v = gs(g, k, NULL); return v ? strtoll(v, NULL, 0) : def; }
static nvmlReturn_t gate(int g, const char *fn) {
  char b[128];
  load();
  snprintf(b, sizeof b, "delay_ms.%s", fn);
  long long d = gi(-1, b, 0);
  if (d > 0) usleep(d * 1000);
  snprintf(b, sizeof b, "fault.%s", fn);
  long long f = gi(-1, b, 0);
  if (!f && g >= 0) f = gi(g, b, gi(g, "fault.all", 0));
  return (nvmlReturn_t)f;
}
static const char *own_version(void) {
  static char found[PATH_MAX];
  Dl_info info;
  if (*found) return found;
  if (!dladdr((void *)own_version, &info) || !realpath(info.dli_fname, found)) return "0";
  char *end = strstr(found, ".so.");
  memmove(found, end ? end + 4 : "0", end ? strlen(end + 4) + 1 : 2);
  return found;
}
static const char *loaded_version(void) {
  static char text[64];
  FILE *f = fopen("/sys/module/nvidia/version", "r");
  text[0] = 0;
  if (f) { if (!fgets(text, sizeof text, f)) text[0] = 0; fclose(f); }
  text[strcspn(text, "\n")] = 0;
  return text;
}
static int cuda_of(const char *driver) {
  int branch = atoi(driver);
  return branch >= 610 ? 13040 : branch >= 595 ? 13020 : branch >= 590 ? 13010 : branch >= 580 ? 13000 : branch >= 570 ? 12080 : 12020;
}
static int count(void) { long long n = gi(-1, "count", 1); return n < 0 ? 0 : n > 64 ? 64 : (int)n; }
static nvmlReturn_t put(char *out, unsigned n, const char *s) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(s) + 1 > n) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(out, s); return NVML_SUCCESS;
}
static void busid(int g, char *out, size_t n, int dom8) {
  const char *v = gs(g, "bus", NULL); unsigned dom = 0, bus = 0x18 + 0x11 * g, dev = 0;
  if (v) sscanf(v, "%x:%x:%x", &dom, &bus, &dev);
  snprintf(out, n, dom8 ? "%08X:%02X:%02X.0" : "%04X:%02X:%02X.0", dom, bus, dev);
}
static void uuid(int g, char *out, size_t n) {
  const char *v = gs(g, "uuid", NULL);
  if (v) snprintf(out, n, "%s", v); else snprintf(out, n, "GPU-00000000-0000-4000-8000-%012x", g);
}

#define SYS(fn) do { nvmlReturn_t e_; if (!inited) return NVML_ERROR_UNINITIALIZED; if ((e_ = gate(-1, #fn))) return e_; } while (0)
#define DEV(fn) int g; do { nvmlReturn_t e_; if (!inited) return NVML_ERROR_UNINITIALIZED; \
    if (!d || d < devs || d >= devs + 64) { return NVML_ERROR_INVALID_ARGUMENT; } \
    g = d->i; if ((e_ = gate(g, #fn))) { return e_; } } while (0)
#define UINT(fn, key, def) API nvmlReturn_t fn(nvmlDevice_t d, unsigned int *o) { DEV(fn); *o = (unsigned)gi(g, key, def); return NVML_SUCCESS; }

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  nvmlReturn_t e = gate(-1, "nvmlInit");
  if (e) return e;
  const char *loaded = loaded_version();
  if (!*loaded) return NVML_ERROR_DRIVER_NOT_LOADED;
  if (strcmp(loaded, own_version())) return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
  for (int i = 0; i < 64; i++) devs[i].i = i;
  inited++;
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlShutdown(void) { if (!inited) return NVML_ERROR_UNINITIALIZED; inited--; return NVML_SUCCESS; }
API const char *nvmlErrorString(nvmlReturn_t r) {
  switch ((int)r) {
    case 0: return "The operation was successful"; case 1: return "NVML was not first initialized with nvmlInit()";
    case 2: return "A supplied argument is invalid"; case 3: return "The requested operation is not available on target device";
    case 4: return "The current user does not have permission for operation"; case 6: return "A query to find an object was unsuccessful";
    case 9: return "NVIDIA driver is not loaded"; case 12: return "NVML Shared Library couldn't be found or loaded";
    case 13: return "Local version of NVML doesn't implement this function"; case 15: return "GPU is lost";
    case 18: return "RM has detected an NVML/RM version mismatch."; default: return "Unknown Error"; }
}
API nvmlReturn_t nvmlSystemGetDriverVersion(char *o, unsigned n) { SYS(nvmlSystemGetDriverVersion); return put(o, n, gs(-1, "driver", loaded_version())); }
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *o, unsigned n) { SYS(nvmlSystemGetNVMLVersion); char b[80]; snprintf(b, sizeof b, "%d.%s", cuda_of(own_version()) / 1000, own_version()); return put(o, n, b); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *o) { SYS(nvmlSystemGetCudaDriverVersion); *o = (int)gi(-1, "cuda", cuda_of(own_version())); return NVML_SUCCESS; }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *o) { return nvmlSystemGetCudaDriverVersion(o); }
API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *o, unsigned n) { SYS(nvmlSystemGetProcessName); char b[64]; snprintf(b, sizeof b, "pid-%u", pid); return put(o, n, b); }
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *o) { SYS(nvmlDeviceGetCount); *o = count(); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *o) {
  SYS(nvmlDeviceGetHandleByIndex);
  if ((int)i >= count()) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t e = gate(i, "nvmlDeviceGetHandleByIndex"); if (e) return e;
  *o = &devs[i]; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *u, nvmlDevice_t *o) {
  SYS(nvmlDeviceGetHandleByUUID); char b[96];
  for (int i = 0; i < count(); i++) { uuid(i, b, sizeof b); if (!strcmp(b, u)) { *o = &devs[i]; return NVML_SUCCESS; } }
  return NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *u, nvmlDevice_t *o) {
  SYS(nvmlDeviceGetHandleByPciBusId); char a[32], b[32];
  for (int i = 0; i < count(); i++) { busid(i, a, sizeof a, 1); busid(i, b, sizeof b, 0); if (!strcasecmp(a, u) || !strcasecmp(b, u)) { *o = &devs[i]; return NVML_SUCCESS; } }
  return NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *o, unsigned n) { DEV(nvmlDeviceGetName); return put(o, n, gs(g, "name", "NVIDIA H200")); }
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *o, unsigned n) { DEV(nvmlDeviceGetUUID); char b[96]; uuid(g, b, sizeof b); return put(o, n, b); }
API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *o, unsigned n) { DEV(nvmlDeviceGetSerial); char b[32]; snprintf(b, sizeof b, "16500000000%02d", g); return put(o, n, gs(g, "serial", b)); }
API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *o, unsigned n) { DEV(nvmlDeviceGetVbiosVersion); return put(o, n, gs(g, "vbios", "96.00.D0.00.03")); }
API nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t d, char *o, unsigned n) { DEV(nvmlDeviceGetBoardPartNumber); return put(o, n, gs(g, "part", "900-00000-0000-000")); }
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *o) { DEV(nvmlDeviceGetMinorNumber); *o = (unsigned)gi(g, "minor", g); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *o) { DEV(nvmlDeviceGetIndex); *o = g; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
  DEV(nvmlDeviceGetPciInfo); memset(p, 0, sizeof *p);
  busid(g, p->busId, sizeof p->busId, 1); busid(g, p->busIdLegacy, sizeof p->busIdLegacy, 0);
  sscanf(p->busId, "%x:%x:%x", &p->domain, &p->bus, &p->device);
  p->pciDeviceId = (unsigned)gi(g, "pci_device", 0x233510de); p->pciSubSystemId = (unsigned)gi(g, "pci_subsystem", 0x18be10de);
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
  DEV(nvmlDeviceGetMemoryInfo);
  m->total = gi(g, "mem_total_mib", 143771) << 20; m->used = gi(g, "mem_used_mib", 600) << 20; m->free = m->total - m->used; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
  DEV(nvmlDeviceGetMemoryInfo);
  m->total = gi(g, "mem_total_mib", 143771) << 20; m->used = gi(g, "mem_used_mib", 0) << 20; m->reserved = gi(g, "mem_reserved_mib", 600) << 20;
  m->free = m->total - m->used - m->reserved; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) { DEV(nvmlDeviceGetUtilizationRates); u->gpu = gi(g, "util", 0); u->memory = gi(g, "util_mem", 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned *o) { DEV(nvmlDeviceGetTemperature); (void)s; *o = gi(g, "temp", 34); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t t, unsigned *o) {
  DEV(nvmlDeviceGetTemperatureThreshold); *o = gi(g, t == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? "temp_shutdown" : "temp_slowdown", t == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 92 : 89); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *a, int *b) { DEV(nvmlDeviceGetCudaComputeCapability); *a = gi(g, "cc_major", 9); *b = gi(g, "cc_minor", 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *o) { DEV(nvmlDeviceGetArchitecture); *o = gi(g, "arch", NVML_DEVICE_ARCH_HOPPER); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t d, nvmlBrandType_t *o) { DEV(nvmlDeviceGetBrand); *o = gi(g, "brand", NVML_BRAND_NVIDIA); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *o) { DEV(nvmlDeviceGetPersistenceMode); *o = gi(g, "persistence", 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t d, nvmlComputeMode_t *o) { DEV(nvmlDeviceGetComputeMode); *o = gi(g, "compute_mode", 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *a, nvmlEnableState_t *b) { DEV(nvmlDeviceGetEccMode); *a = gi(g, "ecc", 1); *b = gi(g, "ecc_pending", *a); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, unsigned long long *o) {
  DEV(nvmlDeviceGetTotalEccErrors); (void)c; *o = gi(g, t == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "ecc_corrected" : "ecc_uncorrected", 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
  DEV(nvmlDeviceGetRemappedRows); *c = gi(g, "remap_corr", 0); *u = gi(g, "remap_unc", 0); *p = gi(g, "remap_pending", 0); *f = gi(g, "remap_failed", 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *a, unsigned *b) { DEV(nvmlDeviceGetMigMode); *a = gi(g, "mig", 0); *b = gi(g, "mig_pending", *a); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *o) { DEV(nvmlDeviceGetCurrentClocksEventReasons); *o = gi(g, "clock_reasons", 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *o) { return nvmlDeviceGetCurrentClocksEventReasons(d, o); }
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned *o) { DEV(nvmlDeviceGetClockInfo); *o = gi(g, t == NVML_CLOCK_MEM ? "clock_mem" : "clock_sm", t == NVML_CLOCK_MEM ? 3201 : 345); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned *o) { DEV(nvmlDeviceGetMaxClockInfo); *o = gi(g, t == NVML_CLOCK_MEM ? "clock_mem_max" : "clock_sm_max", t == NVML_CLOCK_MEM ? 3201 : 1980); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, unsigned *a, unsigned *b) { DEV(nvmlDeviceGetPowerManagementLimitConstraints); *a = gi(g, "power_min_mw", 200000); *b = gi(g, "power_max_mw", 700000); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned l, nvmlEnableState_t *o) {
  DEV(nvmlDeviceGetNvLinkState); if ((int)l >= gi(g, "nvlinks", 18)) return NVML_ERROR_INVALID_ARGUMENT;
  char k[24]; snprintf(k, sizeof k, "nvlink%u", l); *o = gi(g, k, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t b, nvmlGpuTopologyLevel_t *o) { DEV(nvmlDeviceGetTopologyCommonAncestor); (void)b; *o = gi(g, "topology", NVML_TOPOLOGY_SYSTEM); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *p) {
  DEV(nvmlDeviceGetComputeRunningProcesses);
  unsigned have = gi(g, "procs", 0), room = *n; *n = have;
  if (room < have) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < have; i++) { memset(&p[i], 0, sizeof p[i]); p[i].pid = 4000 + i; p[i].usedGpuMemory = 1024ull << 20; p[i].gpuInstanceId = p[i].computeInstanceId = ~0u; }
  return NVML_SUCCESS;
}
UINT(nvmlDeviceGetPowerUsage, "power_mw", 76000)
UINT(nvmlDeviceGetPowerManagementLimit, "power_limit_mw", 700000)
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", 700000)
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw", 700000)
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
UINT(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board", 0)
UINT(nvmlDeviceGetNumGpuCores, "cores", 16896)
