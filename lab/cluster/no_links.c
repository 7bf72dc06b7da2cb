/* Loaded before the C library into a file system in user space: it refuses hard links, with the errno of vfat. */
#include <errno.h>

int link(const char *from, const char *to) { (void)from; (void)to; errno = EPERM; return -1; }
int linkat(int from_in, const char *from, int to_in, const char *to, int flags) {
    (void)from_in; (void)to_in; (void)flags;
    return link(from, to);
}
