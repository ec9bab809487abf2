/* A drive that fails: while the link $DRIVE_FAILS exists, calls on files below $DRIVE end with the errno that
 * is its target. As after the restart of a network drive, files that were used meanwhile stay unusable. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int fails(const char *path) {
    const char *drive = getenv("DRIVE"), *number = getenv("DRIVE_FAILS");
    if (!drive || !path || strncmp(path, drive, strlen(drive))) return 0;
    char name[16] = "";
    ssize_t length = readlink(number, name, sizeof name - 1);
    if (length <= 0) return 0;
    errno = atoi(name);
    return 1;
}

static char is_lost[1 << 16];

static int descriptor_fails(int fd) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && fails(path)) is_lost[fd] = 1;
    else if (is_lost[fd]) errno = ENOTCONN;
    return is_lost[fd];
}

#define REAL(name) (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define WRAP(result, name, parameters, arguments, test, bad) \
    result name parameters { return test ? bad : (REAL(name)) arguments; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        return fails(path) ? -1 : (REAL(name))(path, flags, mode); \
    }
#define STAT(name, type) WRAP(int, name, (const char *path, type *buffer), (path, buffer), fails(path), -1)

OPEN(open)
OPEN(open64)
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)
STAT(statvfs, struct statvfs)
STAT(statvfs64, struct statvfs64)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), fails(path), NULL)
WRAP(FILE *, fopen64, (const char *path, const char *mode), (path, mode), fails(path), NULL)
WRAP(DIR *, opendir, (const char *path), (path), fails(path), NULL)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), fails(path), -1)
WRAP(int, unlink, (const char *path), (path), fails(path), -1)
WRAP(int, rename, (const char *from, const char *to), (from, to), fails(from) || fails(to), -1)
WRAP(int, link, (const char *from, const char *to), (from, to), fails(from) || fails(to), -1)
WRAP(int, symlink, (const char *target, const char *path), (target, path), fails(path), -1)
int close(int fd) {
    is_lost[fd < 0 ? 0 : fd] = 0;
    return (REAL(close))(fd);
}
WRAP(int, fsync, (int fd), (fd), descriptor_fails(fd), -1)
WRAP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), descriptor_fails(fd), -1)
