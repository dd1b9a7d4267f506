/* The start-up stub of the single executable: this program, then an archive (zstd), then a trailer.
 *
 * What the archive holds lies unpacked in a cache, in a directory with the archive's hash for a name. If it is
 * not there yet it is unpacked aside, under a lock, checked (zstd's checksum, every length), synced and renamed: a
 * directory with that name is whole, whatever was killed. Then the interpreter in it takes this process over.
 * A running one holds a shared lock of its directory, which the interpreter inherits; directories of other
 * versions that nobody holds are removed after an unpacking. A start that finds its directory unpacks nothing; it
 * looks whether each file has the size and the time that it was written with, for who tidies a disk up removes
 * what is old, and is that not so, it is unpacked anew.
 *
 * A second archive carries Spark, where there is one. It is unpacked likewise, beside the first, when a report is
 * about to run: the program is told in its environment where it will lie, and by which file it is unpacked, for
 * that is called once more, as `FILE --unpack-spark`.
 *
 * The archive: entries of type (d, f, l, e), mode (octal, 4), length of the name (4, little endian), length of
 * the content (8), name, content. 'l' is a link, its content the target; 'e' the end. Built by build.py.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zstd.h>

#define HASH_LENGTH 32
#define NAME_MAX_LENGTH 1024
#define NEEDS "it needs 200 MB, and 500 MB more where reports run."
#define FETCH_AGAIN "\n  Copy or download it again."
static const char MAGIC[8] = "ODRADEK2";

/* Of size 0 where there is none. */
struct part {
    uint64_t offset, size;
    char hash[HASH_LENGTH];
};

struct trailer {
    struct part spark, own;
    char magic[8];
};

/* What is being unpacked: it may be half a gigabyte on a disk that is full. */
static const char *unfinished;
static void remove_tree(const char *path);

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("odradek: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    if (unfinished)
        remove_tree(unfinished);
    exit(1);
}

static void join(char *into, const char *first, const char *second)
{
    if (snprintf(into, PATH_MAX, "%s/%s", first, second) >= PATH_MAX)
        die("a path below %s is too long", first);
}

/* -- what is in the archive ------------------------------------------------------------------------ */

struct source {
    int file;
    uint64_t left;
    ZSTD_DCtx *context;
    ZSTD_inBuffer in;
    unsigned char *buffer;
    size_t frame_left;
};

static const size_t READ_SIZE = 1 << 20;

/* Fill `into`; ends the program where the archive ends too early or is damaged. */
static void take(struct source *source, void *into, size_t size)
{
    ZSTD_outBuffer out = {into, size, 0};
    while (out.pos < size) {
        if (source->in.pos == source->in.size && source->left) {
            size_t wanted = source->left < READ_SIZE ? source->left : READ_SIZE;
            ssize_t count = read(source->file, source->buffer, wanted);
            if (count <= 0)
                die("this file cannot be read to its end: %s" FETCH_AGAIN, count ? strerror(errno) : "it was cut");
            source->left -= count;
            source->in = (ZSTD_inBuffer){source->buffer, count, 0};
        }
        size_t before = out.pos, fed = source->in.pos;
        source->frame_left = ZSTD_decompressStream(source->context, &out, &source->in);
        if (ZSTD_isError(source->frame_left))
            die("this file is damaged: %s" FETCH_AGAIN, ZSTD_getErrorName(source->frame_left));
        if (out.pos == before && source->in.pos == fed && !source->left)
            die("this file is damaged: its archive ends too early" FETCH_AGAIN);
    }
}

/* The checksum lies behind the last byte: only then is it known that all of them were right. */
static void take_end(struct source *source)
{
    char none;
    while (source->frame_left) {
        ZSTD_outBuffer out = {&none, 0, 0};
        if (source->in.pos == source->in.size) {
            ssize_t count = source->left ? read(source->file, source->buffer, source->left < READ_SIZE ? source->left : READ_SIZE) : 0;
            if (count <= 0)
                die("this file is damaged: its archive has no end" FETCH_AGAIN);
            source->left -= count;
            source->in = (ZSTD_inBuffer){source->buffer, count, 0};
        }
        source->frame_left = ZSTD_decompressStream(source->context, &out, &source->in);
        if (ZSTD_isError(source->frame_left))
            die("this file is damaged: %s" FETCH_AGAIN, ZSTD_getErrorName(source->frame_left));
    }
}

static uint64_t number(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

static void no_room(const char *path)
{
    die("cannot write %s: %s\n  ODRADEK_CACHE=DIR names another place; " NEEDS, path, strerror(errno));
}

static void write_file(struct source *source, const char *path, mode_t mode, uint64_t size)
{
    static unsigned char buffer[1 << 18];
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0)
        no_room(path);
    while (size) {
        size_t part = size < sizeof buffer ? size : sizeof buffer, done = 0;
        take(source, buffer, part);
        while (done < part) {
            ssize_t count = write(file, buffer + done, part - done);
            if (count < 0 && errno != EINTR)
                no_room(path);
            if (count > 0)
                done += count;
        }
        size -= part;
    }
    if (close(file))
        no_room(path);
}

static void unpack(int program, const struct part *part, const char *root)
{
    struct source source = {program, part->size, ZSTD_createDCtx(), {0}, malloc(READ_SIZE), 1};
    if (!source.context || !source.buffer)
        die("no memory");
    if (lseek(program, part->offset, SEEK_SET) < 0)
        die("this file cannot be read: %s", strerror(errno));
    for (;;) {
        unsigned char head[17];
        char name[NAME_MAX_LENGTH + 1], path[PATH_MAX], target[NAME_MAX_LENGTH + 1];
        take(&source, head, sizeof head);
        mode_t mode = number(head + 1, 4);
        uint64_t length = number(head + 5, 4), size = number(head + 9, 8);
        if (length > NAME_MAX_LENGTH)
            die("this file is damaged: a name of %llu bytes" FETCH_AGAIN, (unsigned long long)length);
        take(&source, name, length);
        name[length] = 0;
        if (head[0] == 'e')
            break;
        join(path, root, name);
        if (head[0] == 'd') {
            if (mkdir(path, mode))
                no_room(path);
        } else if (head[0] == 'l' && size <= NAME_MAX_LENGTH) {
            take(&source, target, size);
            target[size] = 0;
            if (symlink(target, path))
                no_room(path);
        } else if (head[0] == 'f') {
            write_file(&source, path, mode, size);
        } else {
            die("this file is damaged: an entry of kind %d" FETCH_AGAIN, head[0]);
        }
    }
    take_end(&source);
    ZSTD_freeDCtx(source.context);
    free(source.buffer);
}

/* -- the cache ------------------------------------------------------------------------------------- */

static void remove_tree(const char *path)
{
    struct stat found;
    if (lstat(path, &found))
        return;
    if (S_ISDIR(found.st_mode)) {
        DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory)))
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
                char below[PATH_MAX];
                join(below, path, entry->d_name);
                remove_tree(below);
            }
        if (directory)
            closedir(directory);
        rmdir(path);
    } else {
        unlink(path);
    }
}

/* NULL where `path` can be the cache, which is our own, and nobody else may write there: what lies in it is going
 * to be run. Else what is wrong with it. */
static const char *make_cache(const char *path)
{
    char part[PATH_MAX];
    struct stat found;
    struct statvfs mounted;
    if (path[0] != '/')
        return "is not an absolute path";
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return "is too long";
    for (char *at = part + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            mkdir(part, 0755);
            *at = '/';
        }
    if (mkdir(part, 0700) && errno != EEXIST)
        return strerror(errno);
    if (lstat(part, &found) || !S_ISDIR(found.st_mode))
        return "is no directory";
    if (found.st_uid != geteuid() || found.st_mode & (S_IWGRP | S_IWOTH))
        return "is no directory that is ours alone to write to";
    if (access(part, W_OK | X_OK))
        return strerror(errno);
    if (!statvfs(part, &mounted) && mounted.f_flag & ST_NOEXEC)
        return "is on a file system where nothing may be run (noexec)";
    return NULL;
}

static void find_cache(char *cache)
{
    const char *given = getenv("ODRADEK_CACHE"), *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *wrong;
    if (given && *given) {
        if ((wrong = make_cache(given)))
            die("ODRADEK_CACHE=%s: %s\n  Name another directory there; " NEEDS, given, wrong);
        snprintf(cache, PATH_MAX, "%s", given);
        return;
    }
    if (base && *base == '/') {
        join(cache, base, "odradek");
        if (!make_cache(cache))
            return;
    }
    if (home && *home == '/' && home[1]) {
        join(cache, home, ".cache/odradek");
        if (!make_cache(cache))
            return;
    }
    snprintf(cache, PATH_MAX, "/var/tmp/odradek-%u", (unsigned)geteuid());
    if ((wrong = make_cache(cache)))
        die("there is no place for what this file carries; the last one tried, %s: %s\n  ODRADEK_CACHE=DIR names one; " NEEDS,
            cache, wrong);
}

static int open_lock(const char *directory, const char *name, int flags)
{
    char path[PATH_MAX];
    join(path, directory, name);
    return open(path, O_RDWR | flags, 0600);
}

/* Hold the unpacked tree, so that nobody removes it: the lock, or -1 if it is not there (any more). */
static int hold(const char *root)
{
    struct stat held, there;
    char path[PATH_MAX];
    int lock = open_lock(root, ".lock", 0); /* inherited by the interpreter, on purpose */
    if (lock < 0)
        return -1;
    join(path, root, ".lock");
    if (flock(lock, LOCK_SH) || fstat(lock, &held) || stat(path, &there) || held.st_ino != there.st_ino) {
        close(lock);
        return -1;
    }
    return lock;
}

/* -- what lies unpacked ---------------------------------------------------------------------------- */

/* A line for each file below `directory`, which is `name` from the root: size, time, name. Returns how many. */
static long list_files(FILE *list, int directory, const char *name)
{
    DIR *entries = fdopendir(directory);
    struct dirent *entry;
    long count = 0;
    while (entries && (entry = readdir(entries))) {
        struct stat found;
        char below[PATH_MAX];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || (!*name && entry->d_name[0] == '.'))
            continue;
        if (snprintf(below, sizeof below, "%s%s%s", name, *name ? "/" : "", entry->d_name) >= PATH_MAX)
            die("a path below %s is too long", name);
        if (fstatat(directory, entry->d_name, &found, AT_SYMLINK_NOFOLLOW))
            no_room(below);
        if (S_ISDIR(found.st_mode)) {
            int next = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (next < 0)
                no_room(below);
            count += list_files(list, next, below);
        } else {
            fprintf(list, "%lld %lld %s\n", (long long)found.st_size, (long long)found.st_mtime, below);
            count++;
        }
    }
    if (!entries)
        no_room(name);
    closedir(entries);
    return count;
}

static void write_list(const char *root)
{
    char path[PATH_MAX];
    join(path, root, ".files");
    FILE *list = fopen(path, "we");
    int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!list || directory < 0)
        no_room(path);
    long count = list_files(list, directory, "");
    fprintf(list, "%ld files\n", count); /* a list without its end is none */
    if (ferror(list) || fclose(list))
        no_room(path);
}

/* Whether each file is there as it was written. */
static int is_whole(const char *root)
{
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    ssize_t length;
    long count = 0, told = -1;
    int is_sound = 1;
    join(path, root, ".files");
    FILE *list = fopen(path, "re");
    int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (list && is_sound && (length = getline(&line, &room, list)) > 0) {
        struct stat found;
        char *at, *name;
        long long size = strtoll(line, &at, 10), time = strtoll(at, &name, 10);
        line[length - 1] = 0;
        if (at == name) {
            told = size;
        } else {
            is_sound = !fstatat(directory, name + 1, &found, AT_SYMLINK_NOFOLLOW) && found.st_size == size && found.st_mtime == time;
            count++;
        }
    }
    free(line);
    if (list)
        fclose(list);
    if (directory >= 0)
        close(directory);
    return is_sound && count == told;
}

/* Whether it is there and whole; held then. */
static int is_held_whole(const char *root)
{
    int lock = hold(root);
    if (lock >= 0 && is_whole(root))
        return 1;
    if (lock >= 0)
        close(lock);
    return 0;
}

static int is_of(const struct part *part, const char *name)
{
    return part->size && !memcmp(part->hash, name, HASH_LENGTH);
}

static void remove_others(const char *cache, const struct trailer *trailer)
{
    DIR *directory = opendir(cache);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        const char *name = entry->d_name;
        char path[PATH_MAX], gone[PATH_MAX];
        if (name[0] == '.' || strlen(name) != HASH_LENGTH || is_of(&trailer->own, name) || is_of(&trailer->spark, name))
            continue;
        join(path, cache, name);
        int lock = open_lock(path, ".lock", O_CLOEXEC);
        if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB)) {
            join(gone, cache, ".removed");
            remove_tree(gone);
            if (!rename(path, gone))
                remove_tree(gone);
        }
        if (lock >= 0)
            close(lock);
    }
    if (directory)
        closedir(directory);
}

/* Unpack what is not there yet, or not any more, and hold it. */
static void prepare(int program, const struct trailer *trailer, const struct part *part, const char *cache, const char *root)
{
    char aside[PATH_MAX], gone[PATH_MAX];
    if (is_held_whole(root))
        return;
    int lock = open_lock(cache, ".lock", O_CREAT | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX))
        no_room(cache);
    if (is_held_whole(root)) { /* another start was faster */
        close(lock);
        return;
    }
    join(aside, cache, ".unpacking");
    join(gone, cache, ".removed");
    remove_tree(aside);
    remove_tree(gone);
    if (!access(root, F_OK))
        fprintf(stderr, "odradek: files of %s were changed or removed: unpacking them anew\n", root);
    else if (isatty(STDERR_FILENO))
        fprintf(stderr, "odradek: unpacking into %s, once\n", cache);
    if (mkdir(aside, 0700))
        no_room(aside);
    unfinished = aside;
    unpack(program, part, aside);
    write_list(aside);
    int own = open_lock(aside, ".lock", O_CREAT | O_CLOEXEC);
    if (own < 0 || syncfs(own))
        no_room(aside);
    close(own);
    /* Who runs from a damaged one goes on from this one: names stay. */
    if (rename(root, gone) && errno != ENOENT)
        no_room(root);
    if (rename(aside, root))
        no_room(root);
    unfinished = NULL;
    remove_tree(gone);
    if (hold(root) < 0)
        die("%s went away while it was made", root);
    remove_others(cache, trailer);
    close(lock);
}

static void place(char *root, const char *cache, const struct part *part)
{
    char name[HASH_LENGTH + 1];
    memcpy(name, part->hash, HASH_LENGTH);
    name[HASH_LENGTH] = 0;
    join(root, cache, name);
}

static void tell(const char *name, const char *value)
{
    if (setenv(name, value, 1))
        die("no memory");
}

/* Where Spark will lie, and by which file it gets there. */
static void tell_of_spark(const struct trailer *trailer, const char *cache)
{
    char root[PATH_MAX], file[PATH_MAX];
    unsetenv("ODRADEK_CARRIED_SPARK");
    unsetenv("ODRADEK_EXECUTABLE");
    ssize_t length = readlink("/proc/self/exe", file, sizeof file - 1);
    if (!trailer->spark.size || length < 0)
        return;
    file[length] = 0;
    place(root, cache, &trailer->spark);
    tell("ODRADEK_CARRIED_SPARK", root);
    tell("ODRADEK_EXECUTABLE", file);
}

int main(int count, char **arguments)
{
    struct trailer trailer;
    char cache[PATH_MAX], root[PATH_MAX], python[PATH_MAX];
    int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (program < 0)
        die("/proc must be mounted: %s", strerror(errno));
    off_t end = lseek(program, -(off_t)sizeof trailer, SEEK_END);
    if (end < 0 || read(program, &trailer, sizeof trailer) != sizeof trailer || memcmp(trailer.magic, MAGIC, sizeof MAGIC))
        die("this file is not whole" FETCH_AGAIN);
    const struct part *last = trailer.spark.size ? &trailer.spark : &trailer.own;
    if (last->offset + last->size != (uint64_t)end)
        die("this file is not whole" FETCH_AGAIN);
    find_cache(cache);
    if (count == 2 && !strcmp(arguments[1], "--unpack-spark")) {
        if (!trailer.spark.size)
            die("this file carries no Spark");
        place(root, cache, &trailer.spark);
        prepare(program, &trailer, &trailer.spark, cache, root);
        puts(root);
        return 0;
    }
    place(root, cache, &trailer.own);
    prepare(program, &trailer, &trailer.own, cache, root);
    close(program);

    char **with = calloc(count + 3, sizeof *with);
    if (!with)
        die("no memory");
    join(python, root, "bin/python");
    with[0] = python;
    with[1] = "-m";
    with[2] = "appliance";
    for (int number = 1; number < count; number++)
        with[number + 2] = arguments[number];
    /* Nothing of another Python, and nothing of the current directory, gets in: children included. */
    unsetenv("PYTHONHOME");
    unsetenv("PYTHONPATH");
    tell("PYTHONSAFEPATH", "1");
    tell("PYTHONNOUSERSITE", "1");
    tell("PYTHONDONTWRITEBYTECODE", "1");
    tell_of_spark(&trailer, cache);
    execv(python, with);
    die("%s cannot be run: %s\n  ODRADEK_CACHE=DIR names another place; " NEEDS, python, strerror(errno));
}
