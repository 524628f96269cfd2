/* A stand-in for libcuda.so.1: says what cuInit says without a driver, with another driver's, or with the right one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char own[PATH_MAX];

static int state(void) {
  char loaded[64] = "";
  Dl_info info;
  FILE *f = fopen("/sys/module/nvidia/version", "r");
  if (!f) return 100; /* no device */
  if (!fgets(loaded, sizeof loaded, f)) loaded[0] = 0;
  fclose(f);
  loaded[strcspn(loaded, "\n")] = 0;
  if (!dladdr((void *)state, &info) || !realpath(info.dli_fname, own)) return 999;
  char *version = strstr(own, ".so.");
  return version && !strcmp(version + 4, loaded) ? 0 : 803; /* system driver mismatch */
}

int cuInit(unsigned flags) { (void)flags; return state(); }

int cuGetErrorName(int code, const char **out) {
  *out = code == 0 ? "CUDA_SUCCESS" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN";
  return 0;
}

int cuDriverGetVersion(int *out) {
  state();
  char *version = strstr(own, ".so.");
  int branch = version ? atoi(version + 4) : 0;
  *out = branch >= 610 ? 13040 : branch >= 595 ? 13020 : branch >= 590 ? 13010 : branch >= 580 ? 13000 : branch >= 570 ? 12080 : 12020;
  return 0;
}

int cuDeviceGetCount(int *out) {
  FILE *f = fopen("/opt/lab/nvml.conf", "r");
  *out = 0;
  if (f && fscanf(f, "count = %d", out) != 1) *out = 0;
  if (f) fclose(f);
  return state() ? 3 : 0;
}
