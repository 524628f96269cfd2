/* A libcuda for tests. -DHANG_INIT: cuInit never returns. -DINIT_RESULT=803: it fails with this code. */
#include <unistd.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif

int cuInit(unsigned flags) {
  (void)flags;
#ifdef HANG_INIT
  for (;;) pause();
#endif
  return INIT_RESULT;
}

int cuGetErrorName(int code, const char **out) {
  *out = code == 0 ? "CUDA_SUCCESS" : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN";
  return 0;
}

int cuDriverGetVersion(int *out) { *out = 13000; return 0; }

int cuDeviceGetCount(int *out) {
  *out = 2;
  return INIT_RESULT ? 3 : 0;
}
