/*
 * The load program: it is given connections that are already greeted, and frames that are already
 * encoded. It keeps requests under way on all of them, checks every answer, and says how long each
 * took. One thread, one epoll, no copies: so that it is never the load that is measured.
 */
#ifndef LOADER_H
#define LOADER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>

enum {
    READ_SIZE = 1 << 18,    /* bytes that one read takes, or a little more */
    SMALL_REST = 1 << 14,   /* what is left over is copied where it is no more than this */
    REST_LIMIT = 1 << 24,   /* bytes that an answer has at most */
    READY_LIMIT = 1024,     /* connections that are looked at after one poll */
    TIMEOUT_MS = 30 * 1000 /* after so long without any answer it is given up */
};

#define SAMPLES_LIMIT ((size_t)1 << 24) /* latencies that are kept at most */

/* How answers are told apart; the numbers are those of benchmarks/loader/_plan.py. */
enum wire { HTTP, RESP, NATS, AMQP, MQTT, STOMP, FAN };

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Text;

/* What is to be done: all that comes on the standard input. */
typedef struct {
    enum wire wire;
    uint32_t connections;
    uint32_t window;      /* requests under way on each */
    uint32_t frames;      /* different requests, in turn */
    uint32_t isOwn;       /* whether each connection has its own: connections x frames of them */
    uint32_t events;      /* what an answer stands for */
    uint32_t wantedTimes; /* how often an answer must contain what is wanted */
    uint32_t lead;        /* FAN: how far the slowest subscriber may be behind */
    uint32_t place;       /* FAN: where in a delivery its packet identifier is; 0: it has none */
    double seconds;       /* after which nothing more is asked */
    uint64_t limit;       /* of requests, after which nothing more is asked either */
    Text wanted;          /* HTTP: what must be in an answer; FAN: what each delivery is */
    Text unwanted;        /* what must not be in it */
    const uint8_t *bytes; /* the frames, one after the other */
    const uint64_t *starts; /* where each begins, and where the last one ends */
    const int32_t *sockets;
} Plan;

/* What an answer is, and which request it is for. */
typedef struct {
    size_t size;
    int64_t number;  /* of the request, as its frame has it; -1: of the oldest under way */
    int isForAll;    /* whether it is for all up to that one */
} Answer;

enum found { MORE, ANSWER, NOTHING };

/* A connection's bytes that are not a whole answer yet. */
typedef struct {
    uint8_t *bytes;
    size_t size, room;
} Rest;

typedef struct {
    float *seconds;
    size_t count, room;
} Samples;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *need(size_t size);
double now(void);
double computed(void);

Plan readPlan(FILE *input);

/* Takes an answer off the front of what was received: see enum found. Ends the run where it is
 * not a good one. For NOTHING, that many bytes are to be passed over. */
enum found split(const Plan *plan, const uint8_t *bytes, size_t size, Answer *answer);

/* Reads. The bytes are in *bytes, those that were left over first. */
size_t hear(int socket, Rest *rest, const uint8_t **bytes);
/* Keeps those bytes of them that were not used. */
void keep(Rest *rest, const uint8_t *bytes, size_t size);

void addSample(Samples *samples, double seconds);
void watch(int epoll, int operation, int socket, uint32_t index, int wantsToSend);
int await(int epoll, struct epoll_event *ready);
void report(double seconds, uint64_t events, uint64_t answers, double cpu, const Samples *samples);

void publish(const Plan *plan);
void fanOut(const Plan *plan);

#endif
