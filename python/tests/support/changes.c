/* Ends the process by SIGKILL before its n-th change of a folder: a file made, moved, linked, removed, written or
 * flushed there. Loaded before the C library, so that it sees what Python, Polars, deltalake and SQLite do. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES = 4096 };

static char folder[PATH_MAX];
static atomic_long changes;
static atomic_long last = -1;
static atomic_char is_inside[FILES];

/* Counts from now on; `at` is the change that is not made any more, -1 for none. */
void watch_changes(const char *where, long at) {
    strncpy(folder, where, sizeof folder - 1);
    atomic_store(&changes, 0);
    atomic_store(&last, at);
}

long count_changes(void) {
    return atomic_load(&changes);
}

static void change(void) {
    if (atomic_fetch_add(&changes, 1) == atomic_load(&last)) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
}

static int is_in_folder(int at, const char *path) {
    char where[PATH_MAX];
    if (folder[0] == 0 || path == NULL) {
        return 0;
    }
    if (path[0] != '/' && at != AT_FDCWD) {
        char link[64];
        strcpy(link, "/proc/self/fd/");
        char digits[16];
        int used = 0;
        for (int left = at; left > 0 || used == 0; left /= 10) {
            digits[used++] = (char)('0' + left % 10);
        }
        size_t end = strlen(link);
        while (used > 0) {
            link[end++] = digits[--used];
        }
        link[end] = 0;
        ssize_t size = readlink(link, where, sizeof where - 1);
        if (size < 0) {
            return 0;
        }
        where[size] = 0;
        path = where;
    }
    return strncmp(path, folder, strlen(folder)) == 0;
}

#define OWN(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int descriptor, int inside) {
    if (descriptor >= 0 && descriptor < FILES) {
        atomic_store(&is_inside[descriptor], (char)inside);
    }
    return descriptor;
}

#define OPEN(name)                                                      \
    int name(const char *path, int flags, ...) {                        \
        va_list arguments;                                              \
        va_start(arguments, flags);                                     \
        mode_t mode = va_arg(arguments, mode_t);                        \
        va_end(arguments);                                              \
        int inside = is_in_folder(AT_FDCWD, path);                      \
        if (inside && (flags & (O_CREAT | O_TRUNC))) {                  \
            change();                                                   \
        }                                                               \
        return opened(OWN(name)(path, flags, mode), inside);            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                    \
    int name(int at, const char *path, int flags, ...) {                \
        va_list arguments;                                              \
        va_start(arguments, flags);                                     \
        mode_t mode = va_arg(arguments, mode_t);                        \
        va_end(arguments);                                              \
        int inside = is_in_folder(at, path);                            \
        if (inside && (flags & (O_CREAT | O_TRUNC))) {                  \
            change();                                                   \
        }                                                               \
        return opened(OWN(name)(at, path, flags, mode), inside);        \
    }
OPENAT(openat)
OPENAT(openat64)

#define ON_PATH(name, parameters, arguments, at, path)                  \
    int name parameters {                                               \
        if (is_in_folder(at, path)) {                                   \
            change();                                                   \
        }                                                               \
        return OWN(name) arguments;                                     \
    }
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
ON_PATH(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path)
ON_PATH(rmdir, (const char *path), (path), AT_FDCWD, path)
ON_PATH(unlink, (const char *path), (path), AT_FDCWD, path)
ON_PATH(unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path)
ON_PATH(link, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_PATH(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags), b, to)
ON_PATH(symlink, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_PATH(rename, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_PATH(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), b, to)
ON_PATH(renameat2, (int a, const char *from, int b, const char *to, unsigned f), (a, from, b, to, f), b, to)

#define ON_FILE(type, name, parameters, arguments)                      \
    type name parameters {                                              \
        if (file >= 0 && file < FILES && atomic_load(&is_inside[file])) { \
            change();                                                   \
        }                                                               \
        return OWN(name) arguments;                                     \
    }
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, ftruncate, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, (int file, off64_t size), (file, size))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
