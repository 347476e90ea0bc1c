/* Replaces calls between a process and its disk and clock (LD_PRELOAD): fails, shortens and delays writes to files named
 * data.mdb, and shifts the wall clock.
 *
 * FAULTS_CONTROL names a shared file with the instructions, which a test changes while the process runs. Its layout is
 * that of tests/system/faults/shim.py. A failed sync is reported once on every descriptor that was open before, as Linux
 * does (errseq_t).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, TRUNCATES = 4, HEADS = 8 };
enum { DESCRIPTORS_MAX = 65536, PATH_BYTES = 4096 };

struct control {
    int64_t kinds;    /* which kinds of calls are counted, and may fail */
    int64_t first;    /* the first counted call that fails, from 1; 0: none */
    int64_t times;    /* how many of these calls fail */
    int64_t error;    /* the errno of failing calls */
    int64_t part;     /* a failing write takes one part of so many instead; 0: none of it */
    int64_t delay_us; /* delay before every call, in microseconds */
    int64_t counted;  /* calls of these kinds so far */
    int64_t failed;   /* calls that were made to fail */
    int64_t lost;     /* syncs that failed */
    int64_t clock_s;  /* added to the wall clock */
};

static struct control *control;
static int64_t reported[DESCRIPTORS_MAX];

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED)
        return;
    control = shared;
    for (int number = 0; number < DESCRIPTORS_MAX; number++)
        reported[number] = control->lost;
}

static int is_store(int file)
{
    static const char name[] = "/data.mdb";
    char link[64], path[PATH_BYTES];
    char digits[16];
    int length = 0, number = file;
    if (!control || file < 0 || file >= DESCRIPTORS_MAX)
        return 0;
    do
        digits[length++] = '0' + number % 10;
    while (number /= 10);
    strcpy(link, "/proc/self/fd/");
    char *end = link + strlen(link);
    while (length)
        *end++ = digits[--length];
    *end = 0;
    ssize_t bytes = readlink(link, path, sizeof path);
    size_t tail = sizeof name - 1;
    return bytes >= (ssize_t)tail && !memcmp(path + bytes - tail, name, tail);
}

/* Whether this call fails. */
static int fails(int64_t kind)
{
    if (control->delay_us)
        usleep((useconds_t)control->delay_us);
    if (!(control->kinds & kind))
        return 0;
    int64_t number = __sync_add_and_fetch(&control->counted, 1);
    if (!control->first || number < control->first || number - control->first >= control->times)
        return 0;
    __sync_add_and_fetch(&control->failed, 1);
    return 1;
}

static int fail(void)
{
    errno = (int)control->error;
    return -1;
}

static int syncs_each_write(int file)
{
    return fcntl(file, F_GETFL) & O_DSYNC;
}

/* Whether a sync failed since a failure was last reported on this descriptor. */
static int sync_failed(int file)
{
    if (reported[file] == control->lost)
        return 0;
    reported[file] = control->lost;
    return 1;
}

static int lose(int file)
{
    reported[file] = __sync_add_and_fetch(&control->lost, 1);
    return fail();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    if (!is_store(file))
        return REAL(pwrite)(file, bytes, count, offset);
    if (!fails(syncs_each_write(file) ? HEADS : WRITES)) {
        ssize_t written = REAL(pwrite)(file, bytes, count, offset);
        return syncs_each_write(file) && sync_failed(file) ? fail() : written;
    }
    if (control->part)
        return REAL(pwrite)(file, bytes, count / (size_t)control->part, offset);
    if (syncs_each_write(file)) {
        /* The write is in the page cache, but its sync failed. */
        REAL(pwrite)(file, bytes, count, offset);
        return lose(file);
    }
    return fail();
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset)
{
    return pwrite(file, bytes, count, offset);
}

static ssize_t part_of(int file, const struct iovec *pieces, int count, off_t offset)
{
    ssize_t done = 0;
    for (int number = 0; number < count / (int)control->part; number++)
        done += offset < 0 ? REAL(write)(file, pieces[number].iov_base, pieces[number].iov_len)
                           : REAL(pwrite)(file, pieces[number].iov_base, pieces[number].iov_len, offset + done);
    return done;
}

ssize_t pwritev(int file, const struct iovec *pieces, int count, off_t offset)
{
    if (!is_store(file) || !fails(WRITES))
        return REAL(pwritev)(file, pieces, count, offset);
    return control->part ? part_of(file, pieces, count, offset) : fail();
}

ssize_t pwritev64(int file, const struct iovec *pieces, int count, off_t offset)
{
    return pwritev(file, pieces, count, offset);
}

ssize_t write(int file, const void *bytes, size_t count)
{
    if (!is_store(file) || !fails(WRITES))
        return REAL(write)(file, bytes, count);
    return control->part ? REAL(write)(file, bytes, count / (size_t)control->part) : fail();
}

ssize_t writev(int file, const struct iovec *pieces, int count)
{
    if (!is_store(file) || !fails(WRITES))
        return REAL(writev)(file, pieces, count);
    return control->part ? part_of(file, pieces, count, -1) : fail();
}

int fdatasync(int file)
{
    if (!is_store(file))
        return REAL(fdatasync)(file);
    if (fails(SYNCS))
        return lose(file);
    return sync_failed(file) ? fail() : REAL(fdatasync)(file);
}

int fsync(int file)
{
    if (!is_store(file))
        return REAL(fsync)(file);
    if (fails(SYNCS))
        return lose(file);
    return sync_failed(file) ? fail() : REAL(fsync)(file);
}

int ftruncate(int file, off_t bytes)
{
    return is_store(file) && fails(TRUNCATES) ? fail() : REAL(ftruncate)(file, bytes);
}

int ftruncate64(int file, off_t bytes)
{
    return ftruncate(file, bytes);
}

int close(int file)
{
    if (control && file >= 0 && file < DESCRIPTORS_MAX)
        reported[file] = control->lost;
    return REAL(close)(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int answer = REAL(clock_gettime)(clock, now);
    if (control && clock == CLOCK_REALTIME)
        now->tv_sec += control->clock_s;
    return answer;
}

int gettimeofday(struct timeval *now, void *zone)
{
    int answer = REAL(gettimeofday)(now, zone);
    if (control)
        now->tv_sec += control->clock_s;
    return answer;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
