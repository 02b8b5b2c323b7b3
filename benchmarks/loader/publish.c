/* Requests and their answers: each connection keeps a number of requests under way. */
#include "loader.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

typedef struct {
    int socket;
    uint64_t asked;       /* requests that are under way, or were */
    uint64_t sent;        /* of these, so many went to the socket as a whole */
    uint64_t answered;    /* all below were answered, in the order of the requests */
    size_t offset;        /* bytes of the request being sent that the socket took */
    const uint64_t *starts;
    double *times;        /* when each was asked, modulo the window */
    uint8_t *isEarly;     /* answered before an older one, modulo the window */
    int isBlocked;
    Rest rest;
} Connection;

typedef struct {
    const Plan *plan;
    Connection *connections;
    int epoll;
    double end;
    uint64_t asked, answered;
    Samples samples;
} Load;

/* Sends what the socket takes: as many frames at once as lie one after the other. */
static void flush(Load *load, Connection *connection) {
    const Plan *plan = load->plan;
    int isBlocked = 0;
    while (connection->sent < connection->asked && !isBlocked) {
        uint64_t first = connection->sent % plan->frames;
        uint64_t count = connection->asked - connection->sent;
        if (count > plan->frames - first)
            count = plan->frames - first;
        const uint8_t *start = plan->bytes + connection->starts[first] + connection->offset;
        size_t size = (size_t)(plan->bytes + connection->starts[first + count] - start);
        ssize_t taken = send(connection->socket, start, size, MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno != EAGAIN)
                fail("a connection is lost: %s", strerror(errno));
            taken = 0;
        }
        isBlocked = (size_t)taken < size;
        uint64_t reached = connection->starts[first] + connection->offset + (uint64_t)taken;
        while (first < plan->frames && connection->starts[first + 1] <= reached && count--) {
            first++;
            connection->sent++;
        }
        connection->offset = (size_t)(reached - connection->starts[first]);
    }
    if (isBlocked != connection->isBlocked) {
        uint32_t index = (uint32_t)(connection - load->connections);
        watch(load->epoll, EPOLL_CTL_MOD, connection->socket, index, isBlocked);
        connection->isBlocked = isBlocked;
    }
}

static void ask(Load *load, Connection *connection, uint64_t count, double time) {
    const Plan *plan = load->plan;
    if (time >= load->end)
        count = 0;
    if (count > plan->limit - load->asked)
        count = plan->limit - load->asked;
    for (uint64_t i = 0; i < count; i++)
        connection->times[connection->asked++ % plan->window] = time;
    load->asked += count;
}

/* The oldest under way is answered; and those after it that were before. */
static void advance(Load *load, Connection *connection) {
    uint64_t window = load->plan->window;
    connection->answered++;
    while (connection->isEarly[connection->answered % window]) {
        connection->isEarly[connection->answered % window] = 0;
        connection->answered++;
    }
}

static void takeAnswer(Load *load, Connection *connection, const Answer *answer, double time) {
    const Plan *plan = load->plan;
    uint64_t ahead = 0;
    if (plan->wire == AMQP)
        ahead = (uint64_t)answer->number - connection->answered;
    else if (answer->number >= 0)
        ahead = ((uint64_t)answer->number + plan->frames - connection->answered % plan->frames) %
                plan->frames;
    uint64_t request = connection->answered + ahead;
    if (ahead >= connection->sent - connection->answered ||
        connection->isEarly[request % plan->window])
        fail("an answer is for nothing that is under way: %lld", (long long)answer->number);
    if (answer->isForAll) {
        while (connection->answered <= request) {
            addSample(&load->samples, time - connection->times[connection->answered % plan->window]);
            load->answered++;
            advance(load, connection);
        }
        return;
    }
    addSample(&load->samples, time - connection->times[request % plan->window]);
    load->answered++;
    if (ahead)
        connection->isEarly[request % plan->window] = 1;
    else
        advance(load, connection);
}

static void take(Load *load, Connection *connection) {
    const uint8_t *bytes;
    size_t size = hear(connection->socket, &connection->rest, &bytes);
    double time = now();
    uint64_t before = connection->answered;
    Answer answer;
    enum found found;
    while ((found = split(load->plan, bytes, size, &answer)) != MORE) {
        if (found == ANSWER)
            takeAnswer(load, connection, &answer, time);
        bytes += answer.size;
        size -= answer.size;
    }
    keep(&connection->rest, bytes, size);
    ask(load, connection, connection->answered - before, time);
    flush(load, connection);
}

void publish(const Plan *plan) {
    Load load = {.plan = plan, .epoll = epoll_create1(0)};
    load.connections = need(plan->connections * sizeof *load.connections);
    for (uint32_t index = 0; index < plan->connections; index++) {
        Connection *connection = &load.connections[index];
        connection->socket = plan->sockets[index];
        connection->starts = plan->starts + (plan->isOwn ? (size_t)index * plan->frames : 0);
        connection->times = need(plan->window * sizeof *connection->times);
        connection->isEarly = need(plan->window);
        watch(load.epoll, EPOLL_CTL_ADD, connection->socket, index, 0);
    }
    double began = now(), cpu = computed();
    load.end = began + plan->seconds;
    for (uint32_t index = 0; index < plan->connections; index++) {
        ask(&load, &load.connections[index], plan->window, now());
        flush(&load, &load.connections[index]);
    }
    struct epoll_event ready[READY_LIMIT];
    while (load.answered < load.asked) {
        int count = await(load.epoll, ready);
        for (int i = 0; i < count; i++) {
            Connection *connection = &load.connections[ready[i].data.u32];
            if (ready[i].events & EPOLLOUT)
                flush(&load, connection);
            if (ready[i].events & ~(uint32_t)EPOLLOUT)
                take(&load, connection);
        }
    }
    double took = now() - began;
    for (uint32_t index = 0; index < plan->connections; index++)
        if (load.connections[index].rest.size)
            fail("there is more than the answers");
    report(took, load.answered * plan->events, load.answered, computed() - cpu, &load.samples);
}
