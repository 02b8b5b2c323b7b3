/* One publishes with QoS 1, on the first connection; all others subscribe. MQTT 3.1.1. */
#include "loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef struct {
    int socket;
    uint64_t count; /* deliveries; the publisher: acknowledgements */
    uint8_t *unsent;
    size_t size, room;
    int isBlocked;
    Rest rest;
} Reader;

typedef struct {
    const Plan *plan;
    Reader *readers; /* the first one is the publisher */
    int epoll;
    double *times; /* when each publish was sent, modulo the lead */
    uint64_t sent;
    Samples samples;
} Fan;

static void flush(Fan *fan, Reader *reader) {
    size_t done = 0;
    while (done < reader->size) {
        ssize_t taken =
            send(reader->socket, reader->unsent + done, reader->size - done, MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno != EAGAIN)
                fail("a connection is lost: %s", strerror(errno));
            break;
        }
        done += (size_t)taken;
    }
    reader->size -= done;
    memmove(reader->unsent, reader->unsent + done, reader->size);
    int isBlocked = reader->size > 0;
    if (isBlocked != reader->isBlocked) {
        watch(fan->epoll, EPOLL_CTL_MOD, reader->socket, (uint32_t)(reader - fan->readers),
              isBlocked);
        reader->isBlocked = isBlocked;
    }
}

static uint8_t *roomFor(Reader *reader, size_t size) {
    if (reader->size + size > reader->room) {
        reader->room = 2 * (reader->size + size);
        if (reader->room > REST_LIMIT || !(reader->unsent = realloc(reader->unsent, reader->room)))
            fail("a broker does not take what is sent to it");
    }
    uint8_t *place = reader->unsent + reader->size;
    reader->size += size;
    return place;
}

static void takeDeliveries(Fan *fan, Reader *reader, const uint8_t *bytes, size_t size) {
    const Plan *plan = fan->plan;
    const Text *frame = &plan->wanted;
    uint64_t before = reader->count;
    double time = now();
    size_t place = plan->place, after = place ? place + 2 : 0;
    for (; size >= frame->size; bytes += frame->size, size -= frame->size) {
        if (memcmp(bytes, frame->bytes, place) ||
            memcmp(bytes + after, frame->bytes + after, frame->size - after))
            fail("a delivery is not what was published");
        if (place) {
            uint8_t *puback = roomFor(reader, 4);
            puback[0] = 0x40;
            puback[1] = 2;
            memcpy(puback + 2, bytes + place, 2);
        }
        reader->count++;
    }
    keep(&reader->rest, bytes, size);
    if (reader->count > fan->sent)
        fail("there are more deliveries than publishes");
    /* Of what arrives together, the one that waited longest. */
    if (reader->count > before)
        addSample(&fan->samples, time - fan->times[before % plan->lead]);
    flush(fan, reader);
}

static void takeAcknowledgements(Fan *fan, const uint8_t *bytes, size_t size) {
    Reader *publisher = fan->readers;
    for (; size >= 4; bytes += 4, size -= 4) {
        if (bytes[0] != 0x40 || bytes[1] != 2 || publisher->count == fan->sent)
            fail("not an acknowledgement of what was published");
        publisher->count++;
    }
    keep(&publisher->rest, bytes, size);
}

static uint64_t slowestOf(const Fan *fan) {
    uint64_t least = UINT64_MAX;
    for (uint32_t index = 1; index < fan->plan->connections; index++)
        if (fan->readers[index].count < least)
            least = fan->readers[index].count;
    return least;
}

/* Publishes as much as the window and the slowest subscriber leave room for. */
static void publishMore(Fan *fan) {
    const Plan *plan = fan->plan;
    uint64_t room = plan->window - (fan->sent - fan->readers->count);
    uint64_t lead = plan->lead - (fan->sent - slowestOf(fan));
    if (room > lead)
        room = lead;
    if (!room)
        return;
    double time = now();
    while (room) {
        uint64_t first = fan->sent % plan->frames;
        uint64_t count = room < plan->frames - first ? room : plan->frames - first;
        size_t size = (size_t)(plan->starts[first + count] - plan->starts[first]);
        memcpy(roomFor(fan->readers, size), plan->bytes + plan->starts[first], size);
        for (uint64_t i = 0; i < count; i++)
            fan->times[fan->sent++ % plan->lead] = time;
        room -= count;
    }
    flush(fan, fan->readers);
}

static void turn(Fan *fan) {
    struct epoll_event ready[READY_LIMIT];
    int count = await(fan->epoll, ready);
    for (int i = 0; i < count; i++) {
        Reader *reader = &fan->readers[ready[i].data.u32];
        if (ready[i].events & EPOLLOUT)
            flush(fan, reader);
        if (!(ready[i].events & ~(uint32_t)EPOLLOUT))
            continue;
        const uint8_t *bytes;
        size_t size = hear(reader->socket, &reader->rest, &bytes);
        if (reader == fan->readers)
            takeAcknowledgements(fan, bytes, size);
        else
            takeDeliveries(fan, reader, bytes, size);
    }
}

void fanOut(const Plan *plan) {
    if (plan->connections < 2 || plan->lead < plan->window)
        fail("a fan-out needs subscribers, and a lead as large as the window");
    Fan fan = {.plan = plan, .epoll = epoll_create1(0)};
    fan.readers = need(plan->connections * sizeof *fan.readers);
    fan.times = need(plan->lead * sizeof *fan.times);
    for (uint32_t index = 0; index < plan->connections; index++) {
        fan.readers[index].socket = plan->sockets[index];
        watch(fan.epoll, EPOLL_CTL_ADD, plan->sockets[index], index, 0);
    }
    double began = now(), cpu = computed(), end = began + plan->seconds;
    while (now() < end && fan.sent < plan->limit) {
        publishMore(&fan);
        turn(&fan);
    }
    while (fan.readers->count < fan.sent || slowestOf(&fan) < fan.sent)
        turn(&fan);
    uint64_t deliveries = fan.sent * (plan->connections - 1);
    report(now() - began, deliveries, deliveries, computed() - cpu, &fan.samples);
}
