/* Answers uname() with the kernel that the lab host booted, not the one that all hosts share.
 *
 * Loaded through /etc/ld.so.preload. The release stands in /run/lab/kernel, which the boot unit writes;
 * before that, and where it is missing, the true release stands.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int uname(struct utsname *name) {
  int code = (int)syscall(SYS_uname, name);
  if (code != 0) return code;
  int handle = (int)syscall(SYS_openat, AT_FDCWD, "/run/lab/kernel", O_RDONLY | O_CLOEXEC);
  if (handle < 0) return 0;
  char text[sizeof name->release];
  long length = syscall(SYS_read, handle, text, sizeof text - 1);
  syscall(SYS_close, handle);
  while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) length--;
  if (length <= 0) return 0;
  text[length] = 0;
  memcpy(name->release, text, (size_t)length + 1);
  return 0;
}
