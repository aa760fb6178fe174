// Records the file operations of a process below one folder, in the order in which they happen, and lets chosen ones fail.
// A library for LD_PRELOAD, compiled by tests/crash/recording.rs, which also reads the records.
//
//   KITH_RECORDER_ROOT   the folder: absolute, without links
//   KITH_RECORDER_LOG    file that the records are appended to, outside of the folder
//   KITH_RECORDER_COUNT  file of 16 bytes: the numbers of changes and of reads so far, which a program passes on by exec
//   KITH_RECORDER_FAIL   (optional) "KIND FIRST LAST ERRNO": changes or reads number FIRST to LAST fail with this error
//
// Operations hold one lock, so that the log has the order of the disk. What the recorder does not understand, such as a
// writable shared map of a file, is a record too: the test then fails.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    CREATE = 1,   // first: the file
    TRUNCATE,     // first, length
    WRITE,        // first, offset, data
    RENAME,       // first, second
    LINK,         // first, second
    SYMLINK,      // first, data: the target
    UNLINK,       // first
    RMDIR,        // first
    MKDIR,        // first
    SYNC,         // first: a file or a folder
    SAID,         // data: what was written to stdout or stderr
    FAILED,       // first: an operation that was made to fail
    UNKNOWN,      // data: an operation that has no record
};

struct header {
    uint32_t kind, n_first, n_second, n_data;
    uint64_t offset;
};

static char root[PATH_MAX];
static size_t n_root;
static int log_fd = -1;
static uint64_t *counts; // of changes, of reads
static int fail_kind = -1, fail_errno;
static uint64_t fail_first, fail_last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t real_write(int fd, const void *bytes, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(fd, bytes, n);
}

static int real_open(const char *path, int flags, mode_t mode) {
    REAL(int, "open", const char *, int, ...);
    return real(path, flags, mode);
}

static ssize_t real_pread(int fd, void *bytes, size_t n, off_t offset) {
    REAL(ssize_t, "pread", int, void *, size_t, off_t);
    return real(fd, bytes, n, offset);
}

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("KITH_RECORDER_ROOT"), *log = getenv("KITH_RECORDER_LOG");
    const char *count = getenv("KITH_RECORDER_COUNT"), *fail = getenv("KITH_RECORDER_FAIL");
    if (!folder || !log || !count || strlen(folder) >= sizeof root) return;
    int opened = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fcntl(opened, F_DUPFD_CLOEXEC, 900); // Out of the way of the program's own descriptors.
    close(opened);
    int shared = real_open(count, O_RDWR | O_CLOEXEC, 0);
    void *map = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    close(shared);
    if (log_fd < 0 || map == MAP_FAILED) abort();
    counts = map;
    char kind[16];
    if (fail && sscanf(fail, "%15s %lu %lu %d", kind, &fail_first, &fail_last, &fail_errno) == 4)
        fail_kind = strcmp(kind, "reads") == 0;
    strcpy(root, folder);
    n_root = strlen(root);
}

// The path of a file from the root, in `out`; false for a file elsewhere, or without a name.
static int from_root(const char *path, char *out) {
    if (strncmp(path, root, n_root) != 0 || (path[n_root] != '/' && path[n_root] != 0)) return 0;
    char *end = out;
    for (const char *part = path + n_root; *part;) {
        while (*part == '/') part++;
        size_t n = strcspn(part, "/");
        if (n == 2 && part[0] == '.' && part[1] == '.') return 0;
        if (n > 0 && !(n == 1 && part[0] == '.')) {
            if (end > out) *end++ = '/';
            memcpy(end, part, n);
            end += n;
        }
        part += n;
    }
    *end = 0;
    return 1;
}

static int of_fd(int fd, char *out) {
    char link[64], path[PATH_MAX];
    if (!n_root || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    const char *gone = " (deleted)";
    size_t n_gone = strlen(gone);
    if ((size_t)n > n_gone && strcmp(path + n - n_gone, gone) == 0) return 0;
    return from_root(path, out);
}

static int of_path(int folder, const char *path, char *out) {
    char whole[2 * PATH_MAX], before[PATH_MAX];
    if (!n_root || !path) return 0;
    if (path[0] == '/') return from_root(path, out);
    if (folder == AT_FDCWD) {
        if (!getcwd(before, sizeof before)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, before, sizeof before - 1);
        if (n < 0) return 0;
        before[n] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", before, path);
    return from_root(whole, out);
}

// Operations and their records are one: the lock is held from before the operation to after its record.
static void begin(void) {
    pthread_mutex_lock(&lock);
}

static void end(void) {
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
}

static void record(uint32_t kind, const char *first, const char *second, uint64_t offset, const void *data, size_t n_data) {
    int error = errno;
    size_t n_first = first ? strlen(first) : 0, n_second = second ? strlen(second) : 0;
    struct header header = {kind, n_first, n_second, n_data, offset};
    struct iovec parts[4] = {
        {&header, sizeof header}, {(void *)first, n_first}, {(void *)second, n_second}, {(void *)data, n_data}};
    size_t n = sizeof header + n_first + n_second + n_data;
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (real(log_fd, parts, 4) != (ssize_t)n) abort(); // The log must be whole.
    errno = error;
}

// Counts an operation; true if it is to fail, with errno set.
static int fails(int is_read, const char *path) {
    uint64_t number = __atomic_fetch_add(&counts[is_read], 1, __ATOMIC_RELAXED);
    if (is_read != fail_kind || number < fail_first || number > fail_last) return 0;
    record(FAILED, path, NULL, 0, NULL, 0);
    errno = fail_errno;
    return 1;
}

static void unknown(const char *what, const char *path) {
    char text[2 * PATH_MAX];
    int n = snprintf(text, sizeof text, "%s %s", what, path);
    record(UNKNOWN, NULL, NULL, 0, text, n);
}

// --- Opening ---

static int opening(const char *name, int folder, const char *path, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    char own[PATH_MAX];
    if (!of_path(folder, path, own)) return real(folder, path, flags, mode);
    begin();
    struct stat before;
    int is_new = (flags & O_CREAT) && fstatat(folder, path, &before, AT_SYMLINK_NOFOLLOW) != 0;
    int is_change = is_new || (flags & O_TRUNC);
    if (fails(!is_change, own)) {
        end();
        return -1;
    }
    int fd = real(folder, path, flags, mode);
    if (fd >= 0 && (flags & O_TMPFILE) == O_TMPFILE) unknown(name, own);
    else if (fd >= 0 && is_new) record(CREATE, own, NULL, 0, NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC)) record(TRUNCATE, own, NULL, 0, NULL, 0);
    end();
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opening("open", AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opening("open", AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opening("open", folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opening("open", folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opening("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opening("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

// --- Reading ---

ssize_t read(int fd, void *bytes, size_t n) {
    REAL(ssize_t, "read", int, void *, size_t);
    char own[PATH_MAX];
    if (!of_fd(fd, own)) return real(fd, bytes, n);
    begin();
    ssize_t done = fails(1, own) ? -1 : real(fd, bytes, n);
    end();
    return done;
}

static ssize_t reading(int fd, void *bytes, size_t n, off_t offset) {
    char own[PATH_MAX];
    if (!of_fd(fd, own)) return real_pread(fd, bytes, n, offset);
    begin();
    ssize_t done = fails(1, own) ? -1 : real_pread(fd, bytes, n, offset);
    end();
    return done;
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset) { return reading(fd, bytes, n, offset); }
ssize_t pread64(int fd, void *bytes, size_t n, off_t offset) { return reading(fd, bytes, n, offset); }

// --- Writing ---

// Records `done` bytes that were written at `offset`, as they are in the file now.
static void record_written(int fd, const char *own, off_t offset, ssize_t done) {
    if (done <= 0) return;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = real_open(link, O_RDONLY | O_CLOEXEC, 0);
    char *bytes = malloc(done);
    if (again < 0 || !bytes || real_pread(again, bytes, done, offset) != done) abort();
    record(WRITE, own, NULL, offset, bytes, done);
    free(bytes);
    close(again);
}

// The offset at which a write without one begins.
static off_t place_of(int fd) {
    struct stat now;
    int flags = fcntl(fd, F_GETFL);
    if ((flags & O_APPEND) && fstat(fd, &now) == 0) return now.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

#define WRITING(real_call, offset_of) \
    char own[PATH_MAX]; \
    if (!of_fd(fd, own)) return real_call; \
    begin(); \
    off_t place = offset_of; \
    ssize_t done = fails(0, own) ? -1 : real_call; \
    record_written(fd, own, place, done); \
    end(); \
    return done

ssize_t write(int fd, const void *bytes, size_t n) {
    if ((fd == 1 || fd == 2) && n_root) {
        begin();
        ssize_t done = real_write(fd, bytes, n);
        if (done > 0) record(SAID, NULL, NULL, fd, bytes, done);
        end();
        return done;
    }
    WRITING(real_write(fd, bytes, n), place_of(fd));
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    WRITING(real(fd, parts, n), place_of(fd));
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    WRITING(real(fd, bytes, n, offset), offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    WRITING(real(fd, bytes, n, offset), offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    WRITING(real(fd, parts, n, offset), offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int n, off_t offset) {
    REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off_t);
    WRITING(real(fd, parts, n, offset), offset);
}

ssize_t copy_file_range(int from, off_t *from_offset, int fd, off_t *offset, size_t n, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off_t *, int, off_t *, size_t, unsigned);
    WRITING(real(from, from_offset, fd, offset, n, flags), offset ? *offset : place_of(fd));
}

ssize_t sendfile(int fd, int from, off_t *offset, size_t n) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    WRITING(real(fd, from, offset, n), place_of(fd));
}

ssize_t sendfile64(int fd, int from, off_t *offset, size_t n) {
    REAL(ssize_t, "sendfile64", int, int, off_t *, size_t);
    WRITING(real(fd, from, offset, n), place_of(fd));
}

ssize_t splice(int from, off_t *from_offset, int fd, off_t *offset, size_t n, unsigned flags) {
    REAL(ssize_t, "splice", int, off_t *, int, off_t *, size_t, unsigned);
    WRITING(real(from, from_offset, fd, offset, n, flags), offset ? *offset : place_of(fd));
}

static int truncating(int fd, off_t length) {
    REAL(int, "ftruncate", int, off_t);
    char own[PATH_MAX];
    if (!of_fd(fd, own)) return real(fd, length);
    begin();
    int done = fails(0, own) ? -1 : real(fd, length);
    if (done == 0) record(TRUNCATE, own, NULL, length, NULL, 0);
    end();
    return done;
}

int ftruncate(int fd, off_t length) { return truncating(fd, length); }
int ftruncate64(int fd, off_t length) { return truncating(fd, length); }

static int truncating_path(const char *path, off_t length) {
    REAL(int, "truncate", const char *, off_t);
    char own[PATH_MAX];
    if (!of_path(AT_FDCWD, path, own)) return real(path, length);
    begin();
    int done = fails(0, own) ? -1 : real(path, length);
    if (done == 0) record(TRUNCATE, own, NULL, length, NULL, 0);
    end();
    return done;
}

int truncate(const char *path, off_t length) { return truncating_path(path, length); }
int truncate64(const char *path, off_t length) { return truncating_path(path, length); }

// Space for a file: it may become longer.
static int allocating(int fd, int mode, off_t offset, off_t length) {
    REAL(int, "fallocate", int, int, off_t, off_t);
    char own[PATH_MAX];
    if (!of_fd(fd, own)) return real(fd, mode, offset, length);
    begin();
    struct stat now;
    int done = fails(0, own) ? -1 : real(fd, mode, offset, length);
    if (done == 0 && (mode & ~FALLOC_FL_KEEP_SIZE)) unknown("fallocate", own);
    else if (done == 0 && fstat(fd, &now) == 0) record(TRUNCATE, own, NULL, now.st_size, NULL, 0);
    end();
    return done;
}

int fallocate(int fd, int mode, off_t offset, off_t length) { return allocating(fd, mode, offset, length); }
int fallocate64(int fd, int mode, off_t offset, off_t length) { return allocating(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return allocating(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t length) { return allocating(fd, 0, offset, length) ? errno : 0; }

static void *mapping(const char *name, void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    char own[PATH_MAX];
    if (fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && (protection & PROT_WRITE) && of_fd(fd, own)) {
        begin();
        unknown(name, own);
        end();
    }
    return real(address, length, protection, flags, fd, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    return mapping("mmap", address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    return mapping("mmap", address, length, protection, flags, fd, offset);
}

// --- Names ---

static int moving(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    char first[PATH_MAX], second[PATH_MAX];
    int is_first = of_path(from_folder, from, first), is_second = of_path(to_folder, to, second);
    if (!is_first && !is_second) return real(from_folder, from, to_folder, to, flags);
    begin();
    int done = fails(0, is_second ? second : first) ? -1 : real(from_folder, from, to_folder, to, flags);
    if (done == 0 && is_first && is_second && !(flags & ~RENAME_NOREPLACE)) record(RENAME, first, second, 0, NULL, 0);
    else if (done == 0) unknown("rename", is_second ? second : first);
    end();
    return done;
}

int rename(const char *from, const char *to) { return moving(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return moving(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return moving(from_folder, from, to_folder, to, flags);
}

static int linking(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    char first[PATH_MAX], second[PATH_MAX];
    int is_first = of_path(from_folder, from, first);
    if (!of_path(to_folder, to, second)) return real(from_folder, from, to_folder, to, flags);
    begin();
    int done = fails(0, second) ? -1 : real(from_folder, from, to_folder, to, flags);
    if (done == 0 && is_first) record(LINK, first, second, 0, NULL, 0);
    else if (done == 0) unknown("link", second);
    end();
    return done;
}

int link(const char *from, const char *to) { return linking(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return linking(from_folder, from, to_folder, to, flags);
}

int symlinkat(const char *target, int folder, const char *path) {
    REAL(int, "symlinkat", const char *, int, const char *);
    char own[PATH_MAX];
    if (!of_path(folder, path, own)) return real(target, folder, path);
    begin();
    int done = fails(0, own) ? -1 : real(target, folder, path);
    if (done == 0) record(SYMLINK, own, NULL, 0, target, strlen(target));
    end();
    return done;
}

int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    char own[PATH_MAX];
    if (!of_path(folder, path, own)) return real(folder, path, flags);
    begin();
    // A full disk does not keep anybody from removing files.
    int done = fail_errno != ENOSPC && fails(0, own) ? -1 : real(folder, path, flags);
    if (done == 0) record((flags & AT_REMOVEDIR) ? RMDIR : UNLINK, own, NULL, 0, NULL, 0);
    end();
    return done;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    char own[PATH_MAX];
    if (!of_path(folder, path, own)) return real(folder, path, mode);
    begin();
    int done = fails(0, own) ? -1 : real(folder, path, mode);
    if (done == 0) record(MKDIR, own, NULL, 0, NULL, 0);
    end();
    return done;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

// --- Syncing ---

#define SYNCING(name) \
    REAL(int, name, int); \
    char own[PATH_MAX]; \
    if (!of_fd(fd, own)) return real(fd); \
    begin(); \
    int done = fails(0, own) ? -1 : real(fd); \
    if (done == 0) record(SYNC, own, NULL, 0, NULL, 0); \
    end(); \
    return done

int fsync(int fd) { SYNCING("fsync"); }
int fdatasync(int fd) { SYNCING("fdatasync"); }
