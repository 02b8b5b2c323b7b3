/* What both kinds of load need. */
#include "loader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    exit(1);
}

void *need(size_t size) {
    void *place = calloc(1, size ? size : 1);
    if (!place)
        fail("there is no memory for %zu bytes", size);
    return place;
}

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double computed(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

size_t hear(int socket, Rest *rest, const uint8_t **bytes) {
    static uint8_t shared[READ_SIZE + SMALL_REST];
    uint8_t *place = shared + rest->size;
    size_t room = sizeof shared - rest->size;
    *bytes = shared;
    if (rest->size <= SMALL_REST) {
        if (rest->size)
            memcpy(shared, rest->bytes, rest->size);
    } else {
        /* The end of a large answer is read to where its beginning is: no byte moves twice. */
        if (rest->size == REST_LIMIT)
            fail("an answer has more than %d bytes", REST_LIMIT);
        if (rest->room == rest->size) {
            rest->room *= 2;
            if (!(rest->bytes = realloc(rest->bytes, rest->room)))
                fail("there is no memory for an answer of %zu bytes", rest->room);
        }
        place = rest->bytes + rest->size;
        room = rest->room - rest->size;
        *bytes = rest->bytes;
    }
    ssize_t count = recv(socket, place, room, 0);
    if (count == 0)
        fail("the server has closed a connection");
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail("a connection is lost: %s", strerror(errno));
        count = 0;
    }
    return rest->size + (size_t)count;
}

void keep(Rest *rest, const uint8_t *bytes, size_t size) {
    if (size > rest->room) {
        rest->room = REST_LIMIT;
        for (size_t half = REST_LIMIT / 2; half >= 4096 && half > size; half /= 2)
            rest->room = half;
        if (size > REST_LIMIT)
            fail("an answer has more than %d bytes", REST_LIMIT);
        uint8_t *wider = need(rest->room);
        memcpy(wider, bytes, size);
        free(rest->bytes);
        rest->bytes = wider;
    } else if (size) {
        memmove(rest->bytes, bytes, size);
    }
    rest->size = size;
}

void addSample(Samples *samples, double seconds) {
    if (samples->count == samples->room) {
        if (samples->room == SAMPLES_LIMIT)
            return;
        samples->room = samples->room ? 2 * samples->room : 1 << 16;
        samples->seconds = realloc(samples->seconds, samples->room * sizeof(float));
        if (!samples->seconds)
            fail("there is no memory for %zu latencies", samples->room);
    }
    samples->seconds[samples->count++] = (float)seconds;
}

void watch(int epoll, int operation, int socket, uint32_t index, int wantsToSend) {
    struct epoll_event event = {.events = EPOLLIN | (wantsToSend ? EPOLLOUT : 0)};
    event.data.u32 = index;
    if (epoll_ctl(epoll, operation, socket, &event))
        fail("a connection cannot be watched: %s", strerror(errno));
}

int await(int epoll, struct epoll_event *ready) {
    int count = epoll_wait(epoll, ready, READY_LIMIT, TIMEOUT_MS);
    if (count == 0)
        fail("no answer for %d seconds", TIMEOUT_MS / 1000);
    if (count < 0 && errno != EINTR)
        fail("nothing can be waited for: %s", strerror(errno));
    return count;
}

void report(double seconds, uint64_t events, uint64_t answers, double cpu, const Samples *samples) {
    uint64_t count = samples->count;
    fwrite(&seconds, sizeof seconds, 1, stdout);
    fwrite(&events, sizeof events, 1, stdout);
    fwrite(&answers, sizeof answers, 1, stdout);
    fwrite(&cpu, sizeof cpu, 1, stdout);
    fwrite(&count, sizeof count, 1, stdout);
    fwrite(samples->seconds, sizeof(float), count, stdout);
    if (fflush(stdout))
        fail("what was found cannot be written: %s", strerror(errno));
}

int main(void) {
    Plan plan = readPlan(stdin);
    if (plan.wire == FAN)
        fanOut(&plan);
    else
        publish(&plan);
    return 0;
}
