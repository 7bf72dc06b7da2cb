/* Preloaded into every process of one replica: a wall clock that steps, a disk that is full or read-only, syncs that take
   long. What holds stands in a file that is mapped: three i64, written by the injector.

     0  microseconds added to the wall clock
     1  microseconds that each sync takes longer
     2  errno of what would take space in the service's directory; 0: none
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *told;
static const char *folder;

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_FAULTS");
    folder = getenv("TORTURE_FOLDER");
    if (!path || !folder) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *map = mmap(NULL, 24, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) told = map;
}

static int refused(int fd) {
    if (!told || !told[2]) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    errno = (int)told[2];
    return 1;
}

static void wait_for_disk(void) {
    if (told && told[1] > 0) usleep((useconds_t)told[1]);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    static __typeof__(clock_gettime) *real;
    if (!real) real = REAL(clock_gettime);
    int status = real(id, at);
    if (!status && told && told[0] && id == CLOCK_REALTIME) {
        int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + told[0] * 1000;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
    }
    return status;
}

int fdatasync(int fd) {
    wait_for_disk();
    return REAL(fdatasync)(fd);
}

int fsync(int fd) {
    wait_for_disk();
    return REAL(fsync)(fd);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    return refused(fd) ? errno : REAL(posix_fallocate)(fd, at, size);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    return refused(fd) ? errno : REAL(posix_fallocate64)(fd, at, size);
}

int fallocate(int fd, int mode, off_t at, off_t size) {
    return refused(fd) ? -1 : REAL(fallocate)(fd, mode, at, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    return refused(fd) ? -1 : REAL(fallocate64)(fd, mode, at, size);
}

int ftruncate(int fd, off_t size) { return refused(fd) ? -1 : REAL(ftruncate)(fd, size); }

int ftruncate64(int fd, off64_t size) { return refused(fd) ? -1 : REAL(ftruncate64)(fd, size); }

static int creates(const char *path, int flags) {
    if (!told || !told[2] || !(flags & O_CREAT) || strncmp(path, folder, strlen(folder))) return 0;
    if (access(path, F_OK) == 0) return 0;
    errno = (int)told[2];
    return 1;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return creates(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
