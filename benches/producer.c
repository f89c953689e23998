/* What a harness costs at least: writes a file to stdout, over and over, as fast as stdout takes it.

   producer FILE BYTES BLOCK      the seconds in all and the longest write in milliseconds go to stderr, as JSON
   producer --drain N FILE BYTES BLOCK
                                  N of them, with this program as the reader that only discards: the least that a
                                  reader can do, and so what is the machine's share in the longest write          */

#define _GNU_SOURCE

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
    perror(what);
    return 1;
}

static int produce(const char *path, size_t bytes, size_t block)
{
    struct stat facts;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &facts) < 0 || facts.st_size == 0)
        return fail(path);
    size_t size = (size_t)facts.st_size, at = 0;
    char *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
        return fail(path);
    double started = now(), worst = 0;
    while (bytes > 0) {
        size_t piece = size - at < block ? size - at : block;
        double before = now();
        ssize_t done = write(1, data + at, piece < bytes ? piece : bytes);
        double took = now() - before;
        if (done < 0)
            return fail("write");
        if (took > worst)
            worst = took;
        bytes -= (size_t)done;
        at = (at + (size_t)done) % size;
    }
    fprintf(stderr, "{\"seconds\": %.6f, \"worst_ms\": %.3f}\n", now() - started, worst * 1e3);
    return 0;
}

static int drain(int count, const char *path, size_t bytes, size_t block)
{
    static char buffer[1 << 17];
    struct pollfd *ends = calloc((size_t)count, sizeof *ends);
    for (int n = 0; n < count; n++) {
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
            return fail("pipe");
        fcntl(pair[0], F_SETPIPE_SZ, 1 << 18);
        if (fork() == 0) {
            dup2(pair[1], 1);
            exit(produce(path, bytes, block));
        }
        close(pair[1]);
        ends[n].fd = pair[0];
        ends[n].events = POLLIN;
    }
    for (int left = count; left > 0;) {
        poll(ends, (nfds_t)count, -1);
        for (int n = 0; n < count; n++) {
            if (ends[n].revents && read(ends[n].fd, buffer, sizeof buffer) <= 0) {
                close(ends[n].fd);
                ends[n].fd = -1;
                ends[n].revents = 0;
                left--;
            }
        }
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}

int main(int count, char **words)
{
    if (count == 4)
        return produce(words[1], strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    if (count == 6 && strcmp(words[1], "--drain") == 0)
        return drain(atoi(words[2]), words[3], strtoull(words[4], NULL, 10), strtoull(words[5], NULL, 10));
    fputs("usage: producer [--drain N] FILE BYTES BLOCK\n", stderr);
    return 2;
}
