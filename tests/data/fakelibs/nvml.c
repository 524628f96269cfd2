/* A libnvidia-ml for tests: three GPUs, the second one lost.
 *
 * -DINIT_RESULT=18  nvmlInit fails with this code        -DHANG_INIT   nvmlInit never returns
 * -DHANG_GPU=2      the name of this GPU never arrives   -DLINE="..."  driver version
 * Types are spelt out: no vendor header is needed. Whatever is not here is "Function Not Found".
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
#ifndef HANG_GPU
#define HANG_GPU -1
#endif
#ifndef LINE
#define LINE "580.126.09"
#endif

struct device { int index; };
static struct device devices[3] = {{0}, {1}, {2}};

struct pci {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

static void hang(void) { for (;;) pause(); }

static int text(char *out, unsigned size, const char *value) {
  snprintf(out, size, "%s", value);
  return 0;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
#ifdef HANG_INIT
  hang();
#endif
  return INIT_RESULT;
}

const char *nvmlErrorString(int code) {
  return code == 15 ? "GPU is lost" : code == 18 ? "Driver/library version mismatch" : code == 3 ? "Not Supported" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(out, size, LINE); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(out, size, "13." LINE); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 3; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out) {
  if (index == 1) return 15;
  *out = &devices[index];
  return 0;
}

int nvmlDeviceGetName(struct device *d, char *out, unsigned size) {
  if (d->index == HANG_GPU) hang();
  return text(out, size, "NVIDIA H200");
}

int nvmlDeviceGetPciInfo_v3(struct device *d, struct pci *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", 0x18 + d->index);
  snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x18 + d->index);
  out->bus = 0x18 + d->index;
  out->device_id = 0x233510de;
  out->subsystem_id = 0x18be10de;
  return 0;
}

int nvmlDeviceGetMemoryInfo(struct device *d, uint64_t out[3]) {
  (void)d;
  out[0] = 150754820096u; out[1] = 150109880320u; out[2] = 644939776u;
  return 0;
}

int nvmlDeviceGetEccMode(struct device *d, int *now, int *pending) { (void)d; *now = 1; *pending = 0; return 0; }
int nvmlDeviceGetCudaComputeCapability(struct device *d, int *major, int *minor) { (void)d; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetTotalEccErrors(struct device *d, int kind, int counter, uint64_t *out) { (void)d; *out = 10 * kind + counter; return 0; }
int nvmlDeviceGetClockInfo(struct device *d, int kind, unsigned *out) { (void)d; *out = kind == 2 ? 3201 : 345; return 0; }
int nvmlDeviceGetMigMode(struct device *d, unsigned *now, unsigned *pending) { (void)d; (void)now; (void)pending; return 3; }
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, uint64_t *out) { (void)d; *out = 4; return 0; }
int nvmlDeviceGetUtilizationRates(struct device *d, unsigned out[2]) { out[0] = 40 + d->index; out[1] = 5; return 0; }

/* Four links, one of them down on GPU 0; a fifth is an invalid argument. */
int nvmlDeviceGetNvLinkState(struct device *d, unsigned link, unsigned *active) {
  if (link >= 4) return 2;
  *active = !(d->index == 0 && link == 3);
  return 0;
}

struct field {
  unsigned id, scope;
  long long timestamp, latency;
  unsigned type, result;
  unsigned long long value;
};

/* Counters by link on GPU 0, as Hopper has them; on the others the sums of older cards. */
int nvmlDeviceGetFieldValues(struct device *d, int count, struct field *fields) {
  for (int i = 0; i < count; i++) {
    unsigned is_by_link = fields[i].id >= 161 && fields[i].id <= 163, is_sum = fields[i].id == 52;
    fields[i].result = d->index == 0 ? (is_by_link ? 0 : 3) : (is_sum ? 0 : 3);
    fields[i].value = is_by_link ? fields[i].scope : 70;
  }
  return 0;
}
